"""Pauses between attempts: each longer than the one before, up to a limit. Pure.

The shim of a run imports no package of Admittance, so it has a function of its own
(`runner/jobs/job_policy.py`); no other module computes such pauses.
"""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Final, TypeVar

GROWTHS_MAX: Final = 30
"""The most times that a pause grows: more would only overflow, in a pause without a limit."""

P = TypeVar("P", float, timedelta)


def pause_after(failures: int, first: P, most: P, *, factor: float = 2.0) -> P:
    """The pause after so many failures in a row: ``first``, then each ``factor`` times as long as
    the one before, at most ``most``. No pause after no failure.
    """
    if failures <= 0:
        return first * 0
    growth = factor ** min(failures - 1, GROWTHS_MAX)
    # The product may be longer than any timedelta.
    return min(first * growth, most) if first < most / growth else most


class Backoff:
    """Counts failed attempts, and returns the seconds of the pause after each: `pause_after`.

    ``free``: after so many failures there is no pause yet. ``calm_seconds``: after an attempt that
    lasted so long, earlier failures no longer count.
    """

    __slots__ = ("_calm", "_factor", "_first", "_free", "_most", "failures")

    def __init__(
        self,
        first: float,
        most: float = inf,
        *,
        factor: float = 2.0,
        free: int = 0,
        calm_seconds: float = inf,
    ) -> None:
        self._first = first
        self._most = most
        self._factor = factor
        self._free = free
        self._calm = calm_seconds
        self.failures = 0
        """How many attempts in a row have failed."""

    def next(self, lasted_seconds: float = 0.0) -> float:
        """Counts a failed attempt. Returns the seconds until the next attempt."""
        if lasted_seconds >= self._calm:
            self.failures = 0
        self.failures += 1
        return pause_after(self.failures - self._free, self._first, self._most, factor=self._factor)

    def reset(self) -> None:
        """Forgets the failures, after an attempt that succeeded."""
        self.failures = 0
