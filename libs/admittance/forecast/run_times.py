"""Draws of run times from those of earlier workloads.

The levels of a source are its array, its script and user, its user and queue, its queue, and all.
Each draw takes the first level with probability n / (n + 2), where n is the number of its run
times, else the next one."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from admittance.forecast.rows import Source

Chance: TypeAlias = Callable[[], float]
"""Returns a random number from 0 to below 1."""
Level: TypeAlias = tuple[str, ...]

KEPT: Final = 50
"""How many run times of a level count: the last ones."""
AGE: Final = 14 * 86_400.0
"""For how many seconds after its end a run time counts."""
DOUBT: Final = 2
ARRAYS_KEPT: Final = 20


class Basis(NamedTuple):
    """On what the run times of a source rest: ``runs`` of the nearest known ``level``."""

    runs: int
    level: Level


def levels(source: Source) -> tuple[Level, ...]:
    """The levels of a source, the nearest first; a level without a name is left out."""
    named = (
        ("array", source.array) if source.array else (),
        ("script", source.script, source.user) if source.script else (),
        ("user", source.user, source.queue) if source.user else (),
        ("queue", source.queue),
        ("all",),
    )
    return tuple(level for level in named if level)


class RunTimes:
    """The run times of workloads that finished."""

    def __init__(self) -> None:
        self._kept: dict[Level, deque[tuple[float, float]]] = {}
        self._arrays: dict[Level, deque[str]] = {}
        self._sorted: dict[Level, list[float]] = {}

    def add(self, source: Source, seconds: float, ended: float) -> None:
        """Adds a run that ended at ``ended``. Runs are added in the order of their ends."""
        for level in levels(source):
            kept = self._kept.get(level)
            if kept is None:
                kept = self._kept[level] = deque(maxlen=KEPT)
            kept.append((ended, seconds))
            self._sorted.pop(level, None)
        if source.array:
            for level in _array_levels(source):
                uids = self._arrays.setdefault(level, deque(maxlen=ARRAYS_KEPT))
                if source.array not in uids:
                    uids.append(source.array)

    def forget(self, now: float) -> None:
        """Forgets runs that are too old to count."""
        for level, kept in list(self._kept.items()):
            before = len(kept)
            while kept and kept[0][0] < now - AGE:
                kept.popleft()
            if len(kept) != before:
                self._sorted.pop(level, None)
            if not kept:
                del self._kept[level]
        for near, uids in list(self._arrays.items()):
            known = [uid for uid in uids if ("array", uid) in self._kept]
            if known:
                self._arrays[near] = deque(known, maxlen=ARRAYS_KEPT)
            else:
                del self._arrays[near]

    def values(self, level: Level) -> Sequence[float]:
        """The run times of a level in seconds, the shortest first."""
        found = self._sorted.get(level)
        if found is None:
            found = sorted(seconds for _, seconds in self._kept.get(level, ()))
            self._sorted[level] = found
        return found

    def basis(self, source: Source) -> Basis | None:
        """The nearest level with at least as many runs as `DOUBT`; None: there is none."""
        for level in levels(source):
            count = len(self.values(level))
            if count >= DOUBT:
                return Basis(count, level)
        return None

    def past_arrays(self, source: Source) -> Sequence[str]:
        """The uids of arrays of the same user and queue that have run times; else of the queue."""
        for level in _array_levels(source):
            if found := self._arrays.get(level):
                return found
        return ()


class Running:
    """How long the workloads of each level have run that hold quota now: their run times are at
    least as long. Without them only short runs of a new script would be known."""

    def __init__(self, elapsed: Iterable[tuple[Source, float]] = ()) -> None:
        self._sorted: dict[Level, list[float]] = {}
        for source, seconds in elapsed:
            for level in levels(source):
                self._sorted.setdefault(level, []).append(seconds)
        for each in self._sorted.values():
            each.sort()

    def values(self, level: Level) -> Sequence[float]:
        """The elapsed seconds of a level, the shortest first."""
        return self._sorted.get(level, ())


class Sample:
    """The draws of one play. The elements of an array are drawn from one past array, so that they
    are long or short together."""

    def __init__(self, run_times: RunTimes, running: Running, chance: Chance) -> None:
        self._run_times = run_times
        self._running = running
        self._chance = chance
        self._chosen: dict[str, Level | None] = {}

    def draw(self, source: Source, limit: float | None, elapsed: float = 0.0) -> float | None:
        """A whole run time in seconds: more than ``elapsed``, and at most ``limit``. None: nothing
        is known about run times, and there is no limit."""
        drawn = self._drawn(source, elapsed)
        if drawn is None:
            return limit
        return drawn if limit is None else min(drawn, max(limit, elapsed))

    def _drawn(self, source: Source, elapsed: float) -> float | None:
        """A run time of the first level that is taken; a workload that still runs stands for a run
        that is longer, which a farther level may give."""
        least, taken = elapsed, None
        for level in self._levels(source):
            ended, going = self._run_times.values(level), self._running.values(level)
            if not ended:
                continue
            taken = level
            first, first_going = bisect_right(ended, least), bisect_right(going, least)
            count = len(ended) - first
            all_of = count + len(going) - first_going
            if not count or self._chance() >= all_of / (all_of + DOUBT):
                continue
            place = int(self._chance() * all_of)
            if place < count:
                return ended[first + place]
            least = going[first_going + place - count]
            first = bisect_right(ended, least)
            if first < len(ended):
                return ended[first + int(self._chance() * (len(ended) - first))]
        if taken is None:
            return None
        values = self._run_times.values(taken)
        first = bisect_right(values, least)
        if first < len(values):
            return values[first + int(self._chance() * (len(values) - first))]
        return max(least, values[-1]) * (1 + self._chance()) if least else values[-1]

    def _levels(self, source: Source) -> Iterator[Level]:
        for level in levels(source):
            if level[0] == "array" and not self._run_times.values(level):
                past = self._of_past_array(source)
                if past is not None:
                    yield past
            else:
                yield level

    def _of_past_array(self, source: Source) -> Level | None:
        if source.array not in self._chosen:
            past = self._run_times.past_arrays(source)
            place = int(self._chance() * len(past))
            self._chosen[source.array] = ("array", past[place]) if past else None
        return self._chosen[source.array]


def _array_levels(source: Source) -> tuple[Level, ...]:
    return (("user", source.user, source.queue), ("queue", source.queue))
