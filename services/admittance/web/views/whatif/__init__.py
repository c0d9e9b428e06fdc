"""What would happen if: a change that is tried, and what would let a workload start."""
