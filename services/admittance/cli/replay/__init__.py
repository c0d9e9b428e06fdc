"""``admit replay``."""
