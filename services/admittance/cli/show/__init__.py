"""How objects look in lists and descriptions."""
