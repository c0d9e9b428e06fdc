"""Conformance kits: they test a check controller or a provider through the protocol on a real bus,
in their own namespace, and report its faults.

`check_kit` plays the workload-controller for a check controller, `provider_kit` the provisioning
check for a provider; `check_requester` and `provider_requester` send requests, record answers and
find faults in single messages. Both kits share `kit`, which runs the test cases and makes the
report, `requester`, which sends requests, and `program`, which starts the tested program and a NATS
server.
"""
