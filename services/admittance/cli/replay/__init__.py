"""``admit replay``: repeats logged decisions and scenario files, and compares the results."""
