"""What the page of a workload shows beneath its reasons: facts in full, output, elements."""
