"""Fair sharing: usage of LocalQueues over time, shares, and the order of entries by shares."""
