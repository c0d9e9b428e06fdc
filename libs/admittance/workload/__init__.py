"""Workloads as they are stored, their conditions, their phase, and their legal moves. Pure."""
