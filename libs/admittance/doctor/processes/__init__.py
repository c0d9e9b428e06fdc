"""What `admit doctor` finds about the services: their instances, leaders, consumers and runners.

The functions are given the services, since a library imports none.
"""
