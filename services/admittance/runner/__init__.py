"""Starts admitted jobs and stops evicted ones.

Consumes ``admitted`` and ``evicted``; publishes ``started``, ``pods_ready``, ``finished`` and
``stopped``. Owns its claims in the bucket ``admittance_claims`` and the folder ``runner`` of its
data folder. No leader: every runner claims admissions.
"""
