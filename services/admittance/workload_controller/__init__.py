"""Leads every workload through its life: pending, quota reserved, admitted, finished.

Decides: which transition a workload makes for each fact (`admittance.workload.transitions`), and
whether a decision of a scheduler is still valid. Consumes: facts about workloads, verdicts,
decisions, due timers, barriers, changed objects. Publishes: ``quota_reserved``, ``admitted``,
``evicted``, ``quota_released``, ``requeued``, ``rejected``, ``pending``, ``check.requested``,
``check.withdrawn``, ``object.applied``, ``object.deleted``. Owns: the bucket, and the sums of used
quota on the stream ``ADMITTANCE_USAGE``. No other service writes a workload or a manifest.
Leadership: one active leader; the server refuses the puts of a stale leader, because they
expect outdated revisions.
"""
