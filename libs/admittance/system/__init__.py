"""A whole system in memory: stored state, and the cores of the services over it.

What-if, replays and tests wire the cores here, and nowhere else. The package is pure.
"""
