"""Submissions: the workload of a command or manifest, whether it could ever start, and its fact."""
