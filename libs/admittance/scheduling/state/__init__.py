"""What the scheduler keeps in memory: queues, workloads and domains, kept current by events."""
