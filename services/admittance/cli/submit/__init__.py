"""``admit submit``."""
