"""Pools of machines as a capacity provider: books room for pods on machines of a pool; a machine
without bookings boots first. MachinePool manifests describe the machines.

Consumes: requests of the pools' provisioning classes; MachinePools from the bucket. Publishes:
answers to the requests. Owns: the bookings of pools in the bucket of providers. Leadership: one
active instance.
"""
