"""What stops a run: a promise that was not kept."""

from __future__ import annotations


class Broken(Exception):
    """An invariant does not hold; the text says which and how."""
