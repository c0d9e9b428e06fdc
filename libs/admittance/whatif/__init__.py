"""Simulates on copies of the bucket what would happen if manifests were applied now.

The cores of the scheduler and the workload-controller decide on the copies; nothing is published.
All modules but `__main__` are pure. The scheduler starts a process that runs `__main__` for each
request, so that no decision waits for a simulation.
"""
