"""Explains the scheduler's state: why workloads wait, which workloads are pending, the status of
queues. Explanations leave the state unchanged."""
