"""The core of the workload-controller: a batch of facts in, a commit out. The core is pure."""
