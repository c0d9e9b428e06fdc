"""Measures the scheduler's pure core: one Python process, no bus. See `__main__`."""
