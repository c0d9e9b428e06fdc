"""What an instance did in the last hour, minute by minute, for its health reply.

The memory is bounded: sixty minutes, and for the present one how often each duration occurred, in
steps of a tenth.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from datetime import datetime
from math import ceil, log
from typing import Final

from admittance.events.requests.services import Series

MINUTES: Final = 60
STEP: Final = 1.1
"""The factor between two durations that count as different."""
SHORTEST_MS: Final = 0.001


class _Minute:
    """``index``: minutes since 1970. ``waiting``: at its beginning, or when it was last asked."""

    def __init__(self, index: int, waiting: int) -> None:
        self.index = index
        self.waiting = waiting
        self.decisions = 0
        self.p99_ms = 0.0


class LastHour:
    """Counts decisions. ``waiting``: returns how many workloads wait now."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        self._waiting = waiting
        self._minutes: deque[_Minute] = deque(maxlen=MINUTES)
        self._durations: Counter[int] = Counter()

    def count(self, now: datetime, decisions: int, seconds: float) -> None:
        """Counts decisions that took some time together."""
        minute = self._minute(now)
        minute.decisions += decisions
        if decisions:
            each = max(seconds * 1000 / decisions, SHORTEST_MS)
            self._durations[ceil(log(each / SHORTEST_MS, STEP) - 1e-9)] += decisions

    def series(self, now: datetime) -> Series:
        """The last minutes, with the present one."""
        self._minute(now).waiting = self._waiting()
        self._close()
        return Series(
            decisions=tuple(minute.decisions for minute in self._minutes),
            p99_ms=tuple(minute.p99_ms for minute in self._minutes),
            waiting=tuple(minute.waiting for minute in self._minutes),
        )

    def _minute(self, now: datetime) -> _Minute:
        """The present minute; minutes since the last one had no decision. A clock that went back
        counts in the last minute."""
        index = int(now.timestamp() // 60)
        if not self._minutes:
            self._minutes.append(_Minute(index, self._waiting()))
        last = self._minutes[-1]
        if index <= last.index:
            return last
        self._close()
        self._durations.clear()
        for between in range(max(last.index + 1, index - MINUTES), index):
            self._minutes.append(_Minute(between, last.waiting))
        self._minutes.append(_Minute(index, self._waiting()))
        return self._minutes[-1]

    def _close(self) -> None:
        """Notes the 99th percentile of the last minute."""
        left = ceil(self._durations.total() * 0.99)
        for step in sorted(self._durations):
            left -= self._durations[step]
            if left <= 0:
                self._minutes[-1].p99_ms = round(SHORTEST_MS * STEP**step, 3)
                return
