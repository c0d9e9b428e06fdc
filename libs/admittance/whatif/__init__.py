"""Simulates what would happen if manifests were applied now, on copies of the bucket.

The cores of the scheduler and the workload-controller decide on the copies; nothing reaches the
bus. Pure except `__main__`, the process that the scheduler starts for each request, so that no
decision waits for a simulation.
"""
