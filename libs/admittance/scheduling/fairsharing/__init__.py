"""Usage of LocalQueues over time, and the order of shares."""
