"""Observers: what must hold of every write, of every message and in the end."""
