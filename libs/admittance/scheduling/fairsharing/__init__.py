"""Fair sharing: the consumed usage of LocalQueues over time, the shares of ClusterQueues and
cohorts, and the order of a cycle's entries by shares.
"""
