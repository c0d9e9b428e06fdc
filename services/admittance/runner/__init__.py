"""Starts admitted jobs and stops evicted ones.

Consumes ``admitted`` and ``evicted``; publishes ``started``, ``pods_ready``, ``finished`` and
``stopped``. Owns the runner's claims in the bucket ``admittance_claims`` and the folder ``runner``
of its data folder. Runners have no leader: every runner claims admissions.
"""
