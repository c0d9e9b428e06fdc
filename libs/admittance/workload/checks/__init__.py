"""What is stored of the checks of a workload: rows, remarks, additions to its pods. Pure."""
