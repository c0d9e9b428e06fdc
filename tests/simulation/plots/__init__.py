"""The scenarios that are played: queues, workloads, what users and admins do, and faults."""
