"""``admit explain``."""
