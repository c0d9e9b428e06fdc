"""One workload: why it waits, its changes, ends, history, variants and elements."""
