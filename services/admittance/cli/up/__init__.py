"""``admit up`` and ``admit serve``: how services start together, and in which order they end."""
