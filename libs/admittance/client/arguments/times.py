"""Times and durations in the form that people read."""

from __future__ import annotations

from datetime import UTC, datetime


def span(seconds: float) -> str:
    """A duration as text: ``45s``, ``5m10s``, ``3h20m``, ``4d2h``: two units; a smaller unit of
    zero is left out.
    """
    left = max(0, round(seconds))
    if left < 60:
        return f"{left}s"
    pairs = (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1))
    for big, big_seconds, small, small_seconds in pairs:
        if left >= big_seconds:
            rest = left % big_seconds // small_seconds
            return f"{left // big_seconds}{big}" + (f"{rest}{small}" if rest else "")
    return f"{left}s"


def stamp(moment: datetime | None) -> str:
    """The moment as text, like ``2026-02-07T00:10:00Z``; ``-`` for None."""
    if moment is None:
        return "-"
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
