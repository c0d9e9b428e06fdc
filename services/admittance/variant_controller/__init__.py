"""Keeps families as the concurrent admission policy requires: one variant per flavor, or per
explicit variant.

Decides: which variants are missing or surplus, which are active, which preemption gate opens, all
from the stored workloads and queues.

Consumes: workloads, ClusterQueues and LocalQueues, from the bucket. Publishes: submitted,
activated, deactivated, reprioritized, deleted and ungated for variants, aggregated for parents. All
are requests; a repeated one changes nothing. Owns: nothing. The scheduler and the
workload-controller decide on admission and quota with the same policy (`admittance.family`).
Leadership: one active instance."""
