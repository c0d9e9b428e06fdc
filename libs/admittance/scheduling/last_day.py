"""How many workloads waited in each ClusterQueue, and what they held, in the last 24 hours.

The scheduler counts both once a minute, and keeps the means of 48 half hours in memory. A half hour
in which nothing was counted, for example because the scheduler did not run, is a gap."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from operator import add
from typing import Final, NamedTuple

from admittance.events.requests.queues import DayOfNode, LastDay, LastDayQuery, QueuesReply

HALF_HOURS: Final = 48
HALF_HOUR_SECONDS: Final = 1800
SAMPLE_SECONDS: Final = 60.0
"""Time between two counts."""
NAMES_MAX: Final = 500
"""The most queues and cohorts of one answer."""

KEPT_MAX: Final = 5_000
"""The most rows that are kept for later answers."""


class Sample(NamedTuple):
    """How many workloads wait in a ClusterQueue now, and what workloads hold, by resource."""

    queue: str
    waiting: int
    used: Mapping[str, int]


class _Ring:
    """The means of one ClusterQueue by the number of the half hour modulo 48. ``counted``: how
    often each half hour was counted; where that is 0, the means are 0, too."""

    def __init__(self) -> None:
        self.counted = array("i", [0] * HALF_HOURS)
        self.waiting = _zeros()
        self.used: dict[str, array[float]] = {}

    def clear(self, place: int) -> None:
        self.counted[place] = 0
        for means in (self.waiting, *self.used.values()):
            means[place] = 0

    def count(self, place: int, sample: Sample) -> None:
        self.counted[place] += 1
        self._add(self.waiting, place, sample.waiting)
        self.used = {name: self.used.get(name) or _zeros() for name in sample.used}
        for name, amount in sample.used.items():
            self._add(self.used[name], place, amount)

    def _add(self, means: array[float], place: int, value: float) -> None:
        means[place] += (value - means[place]) / self.counted[place]


def _zeros() -> array[float]:
    return array("d", [0] * HALF_HOURS)


class DaySamples:
    """The means of all ClusterQueues. Those of a deleted ClusterQueue are forgotten."""

    def __init__(self) -> None:
        self._rings: dict[str, _Ring] = {}
        self._half_hour: int | None = None  # since 1970
        self._made: dict[tuple[str, str, str], DayOfNode] = {}

    def count(self, samples: Iterable[Sample], *, now: datetime) -> None:
        """Counts what each ClusterQueue has now. A clock that went back counts in the last half
        hour."""
        half_hour = int(now.timestamp() // HALF_HOUR_SECONDS)
        last = self._half_hour if self._half_hour is not None else half_hour
        for begun in range(max(last + 1, half_hour - HALF_HOURS + 1), half_hour + 1):
            for ring in self._rings.values():
                ring.clear(begun % HALF_HOURS)
        self._half_hour = max(last, half_hour)
        rings: dict[str, _Ring] = {}
        for sample in samples:
            ring = rings[sample.queue] = self._rings.get(sample.queue) or _Ring()
            ring.count(self._half_hour % HALF_HOURS, sample)
        self._rings = rings
        self._made.clear()

    def answer(self, query: LastDayQuery, below: Mapping[str, Sequence[str]]) -> QueuesReply:
        """Returns the last 24 hours of the ClusterQueues and cohorts of the query; names that do
        not exist are left out. ``below``: the ClusterQueues below each cohort of the query. The
        rows are kept until the next count, because pages ask much more often."""
        if len(query.cluster_queues) + len(query.cohorts) > NAMES_MAX:
            return QueuesReply(error=f"lastDay has more than {NAMES_MAX} names: ask for less")
        if self._half_hour is None:
            return QueuesReply(last_day=LastDay())
        return QueuesReply(
            last_day=LastDay(
                begin=datetime.fromtimestamp(
                    (self._half_hour - HALF_HOURS + 1) * HALF_HOUR_SECONDS, UTC
                ),
                cluster_queues=tuple(
                    self._row("ClusterQueue", name, [name], query.resource)
                    for name in query.cluster_queues
                    if name in self._rings
                ),
                cohorts=tuple(
                    self._row("Cohort", name, below[name], query.resource)
                    for name in query.cohorts
                    if name in below
                ),
            )
        )

    def _row(self, kind: str, name: str, queues: Iterable[str], resource: str) -> DayOfNode:
        key = kind, name, resource
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= KEPT_MAX:
                self._made.clear()
            made = self._made[key] = self._sum(name, queues, resource)
        return made

    def _sum(self, name: str, queues: Iterable[str], resource: str) -> DayOfNode:
        rings = [self._rings[queue] for queue in queues if queue in self._rings]
        holding = [ring for ring in rings if resource in ring.used]
        waiting = self._in_order(rings, [ring.waiting for ring in rings])
        used = self._in_order(holding, [ring.used[resource] for ring in holding])
        return DayOfNode(
            name=name,
            # A number above 0 is never rounded to 0.
            waiting=tuple(None if mean is None else ceil(mean * 10) / 10 for mean in waiting),
            used=tuple(None if mean is None else ceil(mean) for mean in used),
        )

    def _in_order(
        self, rings: Iterable[_Ring], several: Iterable[array[float]]
    ) -> Iterator[float | None]:
        """Yields the sum of the means of each half hour, the oldest first; None: no ring was
        counted then. Whole rings are added, because a cohort may have thousands of queues."""
        assert self._half_hour is not None
        counted, sums = [0] * HALF_HOURS, [0.0] * HALF_HOURS
        for ring, means in zip(rings, several, strict=True):
            counted = list(map(add, counted, ring.counted))
            sums = list(map(add, sums, means))
        for half_hour in range(self._half_hour + 1, self._half_hour + 1 + HALF_HOURS):
            place = half_hour % HALF_HOURS
            # A mean of whole numbers has an error of rounding, which must not become a tenth.
            yield round(sums[place], 6) if counted[place] else None
