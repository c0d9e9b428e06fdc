"""Variants of a family: which may be tried, what they hold together, and migration."""
