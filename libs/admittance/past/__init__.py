"""The past as it was: objects at a revision, and light pictures of queues and workloads.

Pure: `admittance.past.rows`, `admittance.past.index` and `admittance.past.picture`. The other
modules read the bus, in a process of their own: `python -m admittance.past`.
"""
