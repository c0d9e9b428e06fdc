"""Keeps families as policy wants them: one variant per flavor, or per explicit variant.

Decides: which variants a parent lacks and which are too many, who of them is turned on and off,
whose gate on preemption opens, all from the workloads and queues as they are stored.
Hears: workloads, ClusterQueues and LocalQueues, from the bucket.
Says: submitted, activated, deactivated, reprioritized, deleted and ungated of variants, aggregated
of parents. All are wishes: said twice they change nothing.
Owns: nothing. Who is admitted, and what becomes of the others' quota then, is the scheduler's and
the workload-controller's, who ask the same policy (`admittance.family`).
"""
