"""What the machine of a runner has: processors, memory, devices, labels."""
