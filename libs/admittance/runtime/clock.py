"""The only module that reads the clock. All other modules get a `Clock` or a time as an
argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]
"""A function that returns the present time as a timezone-aware datetime in UTC. Tests replace it.
"""


def _system_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  (this module may read the clock)


_now: Clock = _system_now
_monotonic: Callable[[], float] = time.monotonic


def now() -> datetime:
    """The time of the wall clock, aware, in UTC."""
    return _now()


def monotonic() -> float:
    """Seconds since an arbitrary moment; the value never goes back. Use `monotonic` for durations
    and deadlines only.
    """
    return _monotonic()


def thread_seconds() -> float:
    """CPU seconds of the present thread since its start."""
    return time.thread_time()


@contextmanager
def replaced(wall: Clock, monotonic: Callable[[], float]) -> Iterator[None]:
    """Replaces both clocks until the end of the block, for simulations."""
    global _now, _monotonic
    before = _now, _monotonic
    _now, _monotonic = wall, monotonic
    try:
        yield
    finally:
        _now, _monotonic = before


def from_nanoseconds(nanoseconds: int) -> datetime:
    """The server's timestamp, nanoseconds since 1970, as a UTC time with microseconds."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
