"""Conformance kits: they test a check controller or a provider through the protocol on a real bus,
in their own namespace, and report its faults.

`requester` sends requests and records answers, `faults` and `messages` check single messages, `kit`
runs the cases and makes the report, `program` starts the tested process and a server.
"""
