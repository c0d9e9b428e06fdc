"""``admit check-test`` and ``admit provider-test``."""
