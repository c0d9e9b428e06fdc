"""What people ask for: submissions, changes of workloads, and in which order. Pure."""
