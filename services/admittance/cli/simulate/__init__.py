"""``admit simulate``."""
