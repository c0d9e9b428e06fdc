"""Calls of Python functions as jobs."""
