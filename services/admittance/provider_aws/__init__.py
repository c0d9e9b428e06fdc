"""EC2 On-Demand Capacity Reservations as a capacity provider: makes one reservation for each
request, watches it, and cancels it with the request. Uses boto3 (extra ``aws``).

Consumes: requests of its class; the list of reservations of EC2. Publishes: answers to the
requests. Owns: the reservations tagged with its class. Leadership: one active instance."""
