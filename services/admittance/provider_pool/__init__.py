"""A pool of machines as a capacity provider: books pods on machines of the pool, or boots machines.
MachinePool manifests describe the machines.

Consumes: requests of the pools' provisioning classes; MachinePools from the bucket. Publishes:
answers to the requests. Owns: the bookings of pools in the bucket of providers. Leadership: one
active instance.
"""
