"""Explains the scheduler: why workloads wait, pending workloads, status of queues. Read only."""
