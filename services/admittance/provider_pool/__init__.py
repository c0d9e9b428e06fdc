"""A pool of machines as a capacity provider: books pods on existing machines, or boots them.
MachinePool manifests describe the machines.

Consumes: requests of its classes; MachinePools from the bucket. Publishes: answers to the requests.
Owns: its bookings in the bucket of providers. Leadership: one active instance."""
