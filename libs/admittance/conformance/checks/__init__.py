"""Drives a check controller through the protocol and reports its faults.

It plays the workload-controller's part on a real bus, in a namespace of its own: `stand` asks and
listens, `form` looks at each message by itself, `cases` are what is tried, `report` what comes out.
"""
