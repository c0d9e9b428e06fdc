"""The schedules that stored workloads need, and the orders that set them. The core is pure."""
