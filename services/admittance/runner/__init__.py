"""Starts what was admitted, stops what was evicted.

Hears ``admitted`` and ``evicted``; says ``started``, ``pods_ready``, ``finished`` and ``stopped``.
Owns its claims in the bucket ``admittance_claims`` and the folder ``runner`` of its data folder.
"""
