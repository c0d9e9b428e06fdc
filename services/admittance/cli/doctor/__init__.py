"""``admit doctor``."""
