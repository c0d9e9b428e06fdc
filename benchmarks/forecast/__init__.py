"""Scores the forecast of starts against generated days. See `__main__`."""
