"""Workloads as they are stored, with their conditions, their phase, and the allowed transitions.
The package is pure.
"""
