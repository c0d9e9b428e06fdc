"""Times that came, and nothing followed: when to look, ever less often. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from admittance.retry_timer.slots import Slot

PATIENCE: Final = timedelta(seconds=5)
"""After a time has come, until somebody looks; doubled each time that nothing followed."""
PATIENCE_MAX: Final = timedelta(minutes=5)
SPARE: Final = 1000


class _Expected(NamedTuple):
    """``look`` None: taken, and not expected anew."""

    at: datetime
    look: datetime | None
    tries: int


class Overdue:
    """Slots whose time is awaited. What is no longer awaited is dropped from the heap in passing,
    or when it is most of it."""

    def __init__(self) -> None:
        self._expected: dict[Slot, _Expected] = {}
        self._heap: list[tuple[datetime, Slot]] = []

    def expect(self, slot: Slot, at: datetime, now: datetime) -> None:
        """A schedule for that time stands there."""
        before = self._expected.get(slot)
        if before is not None and before.at == at and before.look is not None:
            return
        tries = before.tries if before is not None and before.at == at else 0
        look = max(at, now) + min(PATIENCE * 2 ** min(tries, 10), PATIENCE_MAX)
        self._expected[slot] = _Expected(at, look, tries)
        heappush(self._heap, (look, slot))
        if len(self._heap) > 2 * len(self._expected) + SPARE:
            self._heap = [(e.look, s) for s, e in self._expected.items() if e.look is not None]
            heapify(self._heap)

    def forget(self, slot: Slot) -> None:
        """Its workload waits for nothing there, or for another time."""
        self._expected.pop(slot, None)

    def next(self) -> datetime | None:
        """When to look; None: nothing is awaited."""
        while self._heap:
            look, slot = self._heap[0]
            expected = self._expected.get(slot)
            if expected is not None and expected.look == look:
                return look
            heappop(self._heap)
        return None

    def take(self, now: datetime) -> Iterator[Slot]:
        """Those to look at; they are awaited again once something is set there."""
        while (look := self.next()) is not None and look <= now:
            _, slot = heappop(self._heap)
            expected = self._expected[slot]
            self._expected[slot] = expected._replace(look=None, tries=expected.tries + 1)
            yield slot
