"""Keeps families as the concurrent admission policy requires: one variant per flavor, or per
explicit variant.

Decides, from stored workloads and queues: variants to create and delete, variants to activate and
deactivate, and the preemption gate to open.

Consumes: workloads, ClusterQueues and LocalQueues, from the bucket. Publishes: submitted,
activated, deactivated, reprioritized, deleted and ungated for variants, aggregated for parents. All
are requests; a repeated request changes nothing. Owns: nothing. The scheduler and the
workload-controller use the same policy (`admittance.family`) for quota and admission.
Leadership: one active instance."""
