"""What each kind of fact makes of a workload: the moves that the table of transitions names."""
