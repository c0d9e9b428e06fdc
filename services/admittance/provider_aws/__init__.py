"""EC2 On-Demand Capacity Reservations as a capacity provider: makes one reservation for each
request, watches it, and cancels it when the request is cancelled. The provider uses boto3, which
the extra ``aws`` of the package installs.

Consumes: requests of its provisioning class; EC2's list of reservations. Publishes: the provider's
answers to the requests. Owns: the reservations tagged with its provisioning class. Leadership: one
active instance.
"""
