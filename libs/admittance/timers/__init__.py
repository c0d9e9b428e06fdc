"""When to look at a workload again: schedules as a function of what is stored. Pure."""
