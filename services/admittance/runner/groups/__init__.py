"""Groups of processes in which the kernel limits and ends the pods of a run: cgroup v1, cgroup v2,
or none."""
