"""The pure cores for tests: queues and workloads in a line each, without a bus."""
