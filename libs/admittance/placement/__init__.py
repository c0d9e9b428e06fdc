"""The placement's core: which runners start the pods of a workload, and with which devices. Pure.

Bottom up: what is known of machines (`machines`); requests, bookings, room, the search, and what is
missing (`search`); the order of waiting workloads with the verdicts of the check.
"""
