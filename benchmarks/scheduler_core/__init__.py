"""What the scheduler's pure core costs: one Python process, no bus. See `__main__`."""
