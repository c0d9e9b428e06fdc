"""Simulates on copies of the bucket what would happen if manifests were applied now.

The cores of the scheduler and the workload-controller decide on the copies; nothing is published.
Pure except `__main__`. The scheduler starts that process for each request, so that no decision
waits for a simulation.
"""
