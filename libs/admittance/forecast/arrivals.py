"""Future arrivals: those of the same hours of one of the last days, once more."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator
from typing import Final

from admittance.forecast.rows import Waiting
from admittance.forecast.run_times import Chance

DAY: Final = 86_400.0
DAYS: Final = 2
"""From how many days arrivals are drawn."""
ARRIVAL: Final = "(arrival)"
"""The namespace of drawn arrivals: no namespace has parentheses."""


class Arrivals:
    """The workloads that arrived in the last days. ``begin``: since when they are known."""

    def __init__(self, begin: float) -> None:
        self._begin = begin
        self._jobs: list[Waiting] = []
        self._times: list[float] = []

    def add(self, job: Waiting) -> None:
        """Adds a workload, which arrived at its ``queued_at``."""
        place = bisect_left(self._times, job.queued_at)
        self._times.insert(place, job.queued_at)
        self._jobs.insert(place, job)

    def forget(self, now: float) -> None:
        """Forgets arrivals of earlier days."""
        gone = bisect_left(self._times, now - DAYS * DAY)
        del self._times[:gone], self._jobs[:gone]

    def drawn(
        self, now: float, until: float, queues: Container[str], chance: Chance
    ) -> Iterator[Waiting]:
        """Yields arrivals in these queues from ``now`` on: for each day to come those of one of the
        last days. The last of these days has the time ``until``. If fewer hours than a day are
        known, these hours follow each other."""
        known = min(DAYS * DAY, now - self._begin)
        period = min(DAY, known)
        if not self._jobs or period <= 0:
            return
        begin, count = now, 0
        while begin < until:
            back = period * (1 + int(chance() * int(known // period))) + (begin - now)
            first = bisect_left(self._times, begin - back)
            last = bisect_left(self._times, begin - back + period)
            for job in self._jobs[first:last]:
                if job.queue in queues:
                    count += 1
                    yield job._replace(key=(ARRIVAL, f"{count:08}"), queued_at=job.queued_at + back)
            begin += period
