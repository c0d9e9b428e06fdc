"""Simulates on copies of the bucket what would happen if a user applied or deleted manifests now.

The cores of the scheduler, the workload-controller and the variant-controller decide on the copies;
nothing is published on the real log. All modules but `__main__` are pure. For each what-if request
the scheduler starts a process that runs `__main__`, so that no decision of the scheduler waits for
a simulation.
"""
