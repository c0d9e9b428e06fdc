"""The only module that reads the clock. All others get a `Clock` or a time as an argument."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]
"""Returns the time: aware, in UTC. Tests replace it."""


def now() -> datetime:
    """The wall clock, aware, in UTC."""
    return datetime.now(UTC)  # noqa: TID251  (this is the module that may)


def monotonic() -> float:
    """Seconds since an arbitrary moment; never goes back. For durations and deadlines only."""
    return time.monotonic()


def from_nanoseconds(nanoseconds: int) -> datetime:
    """The server's timestamp as a time, to the microsecond."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
