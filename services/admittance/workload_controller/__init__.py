"""Keeps a workload's life: pending, quota reserved, admitted, finished.

Decides: what every fact makes of its workload (`admittance.workload.transitions`), and whether a
decision of a scheduler still holds.
Hears: all facts about workloads, verdicts, decisions, due timers, barriers, changed objects.
Says: ``quota_reserved``, ``admitted``, ``evicted``, ``requeued``, ``rejected``, ``pending``,
``check.requested``, ``check.withdrawn``, ``object.applied``, ``object.deleted``.
Owns: the bucket. Nobody else writes a workload or a manifest.
"""
