"""Requests that the active workload-controller answers."""
