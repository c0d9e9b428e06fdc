"""Budgets: how much a queue, namespace or user may use in a window of time. A function of the sums
of used quota, of what workloads hold, and of the time. The package is pure.

A budget says no to a start; it never stops a job. docs/spec/budgets.md
"""
