"""Families in the pure cores."""
