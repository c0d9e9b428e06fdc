"""``admit events``."""
