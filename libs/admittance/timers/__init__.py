"""The core of the retry-timer: the schedules that stored workloads need, and the orders that set
these schedules on the bus. The core is pure.
"""
