"""Commands for the system as a whole, and for those that build upon it."""
