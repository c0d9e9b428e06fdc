"""Queues: what waits in them, what was used, and the capacity that they ask for."""
