"""Workloads as they are stored, their conditions, their phase, and their legal moves. The package
is pure."""
