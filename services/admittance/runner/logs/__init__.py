"""What people read of the output of jobs, and how much of it is kept for a namespace."""
