"""The verdicts of the check, and the times after which they are due."""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from admittance.api.checks import MACHINES_CONTROLLER
from admittance.events.facts import CheckReported
from admittance.events.placement import Placement
from admittance.placement.reservation import Judged
from admittance.workload.checks.rows import placement_of

NAMED_MAX: Final = 5
"""The most runners that a message names."""


class PlacementTimes(NamedTuple):
    """``retry_after``: how long a reservation waits for room; ``retry_delay``: how long its quota
    is left to others after that. ``hold_after``: how long the first workload waits until room is
    held back for it; None: never. ``hold_without_quota``: for how long room is held back while the
    workload has no reservation. ``lost_after``: how long a runner may not be heard of until its
    jobs are moved. ``say_after``: how long a workload waits before it is said what is missing;
    ``say_again``: the first pause between two such sentences, which doubles up to
    ``say_again_most``. ``repeat_after``: when a verdict without effect is sent again;
    ``taken_again``: when the workload-controller knew of another state of the machine.
    """

    retry_after: timedelta = timedelta(minutes=2)
    retry_delay: timedelta = timedelta(minutes=1)
    hold_after: timedelta | None = timedelta(minutes=5)
    hold_without_quota: timedelta = timedelta(minutes=10)
    lost_after: timedelta = timedelta(minutes=1)
    say_after: timedelta = timedelta(seconds=1)
    say_again: timedelta = timedelta(seconds=10)
    say_again_most: timedelta = timedelta(minutes=10)
    repeat_after: timedelta = timedelta(seconds=30)
    taken_again: timedelta = timedelta(seconds=1)


class PlacementVerdict(NamedTuple):
    """A verdict to be published. ``placement``: of a Ready one. ``delay_seconds``: of a Retry."""

    namespace: str
    name: str
    uid: str
    check: str
    cycle: int
    state: str
    message: str
    reason: str = ""
    delay_seconds: int | None = None
    placement: Placement = ()

    def fact(self, time: datetime | None) -> CheckReported:
        """The fact that publishes the verdict."""
        return CheckReported(
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            time=time,
            controller=MACHINES_CONTROLLER,
            check=self.check,
            cycle=self.cycle,
            state=self.state,
            message=self.message,
            reason=self.reason,
            requeue_after_seconds=self.delay_seconds,
            placement=self.placement,
        )

    def repeats(self, other: PlacementVerdict | None) -> bool:
        """Whether the other verdict has the same effect. A second Retry of one cycle has none."""
        if other is not None and self.state == other.state == "Retry":
            return self.cycle == other.cycle
        return self == other

    def is_stored(self, judged: Judged) -> bool:
        """Whether the row of the workload says the same; remarks may follow its message."""
        row = judged.row
        if row.state != self.state or row.verdict_cycle != self.cycle:
            return False
        if self.state == "Ready":
            return placement_of((row,)) == self.placement
        return row.reason == self.reason and row.message.startswith(self.message)


def verdict_on(
    judged: Judged, state: str, message: str, *, reason: str = "", delay: int | None = None
) -> PlacementVerdict:
    """A verdict without an assignment."""
    return PlacementVerdict(
        judged.namespace,
        judged.name,
        judged.uid,
        judged.row.name,
        judged.cycle,
        state,
        message,
        reason,
        delay,
    )


def runner_names(parts: Placement) -> str:
    """The runners of an assignment, for people."""
    names = list(dict.fromkeys(part.runner for part in parts))
    more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


class DueTimes:
    """The next time of each key."""

    def __init__(self) -> None:
        self._next: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def add(self, key: str, at: datetime) -> None:
        """The key is due at that time, unless it is due earlier."""
        known = self._next.get(key)
        if known is None or at < known:
            self._next[key] = at
            heapq.heappush(self._heap, (at, key))

    def take(self, now: datetime) -> set[str]:
        """Removes and returns the keys that are due."""
        due = set()
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._next.get(key) == at:
                del self._next[key]
                due.add(key)
        return due

    @property
    def first(self) -> datetime | None:
        """The earliest time; None: nothing is due."""
        while self._heap and self._next.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
