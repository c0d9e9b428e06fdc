"""EC2 On-Demand Capacity Reservations as a provider of capacity: a reservation for each request,
waited for, watched, and cancelled when the workload has gone. The only room that knows boto3, which
the extra ``aws`` brings.
"""
