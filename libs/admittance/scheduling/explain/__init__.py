"""Explains the scheduler: why workloads wait, pending workloads, status of queues. Explanations
only read the state."""
