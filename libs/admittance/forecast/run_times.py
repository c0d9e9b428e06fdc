"""Draws of run times from those of earlier workloads.

The levels of a source are its array, its script and user, its user and queue, its queue, and all.
Each draw takes the first level with probability n / (n + doubt), where n is the number of its run
times, else the next one. The drawn run time is varied a little, since the next run is near earlier
ones and not equal to one of them.

In each sample all run times of a script are longer or shorter by one factor, the less certain the
fewer of its runs are known, and those of an array by a second one: what few runs say of the next
ones is wrong for all of them together."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple, TypeAlias

from admittance.forecast.rows import Source

Chance: TypeAlias = Callable[[], float]
"""Returns a random number from 0 to below 1."""
Level: TypeAlias = tuple[str, ...]

KEPT: Final = 50
"""How many run times of a level count: the last ones."""
AGE: Final = 14 * 86_400.0
"""For how many seconds after its end a run time counts."""
DOUBT: Final = 1.0
ARRAY_DOUBT: Final = 8.0
"""The elements of an array are hardly more alike than other runs of their script, and the first of
them that end are the short ones."""
KNOWN: Final = 2
"""From how many runs on a level is named as that on which a forecast rests."""
DRAWS: Final = 12
"""How often a run time is drawn again that is shorter than the workload has run already."""
FEW: Final = 4
"""With fewer run times their logarithms count as `SPREAD` wide."""
SPREAD: Final = 0.6
SPREADS: Final = (0.05, 1.0)
"""The least and the greatest spread by which run times are varied."""
BANDWIDTH: Final = 0.5
ARRAY_RUNS: Final = 4
"""As many ended runs of an array halve the variance of what its runs have in common."""
QUARTILES: Final = 1.35
"""How many standard deviations lie between the quartiles of a normal distribution."""
_STEPS: Final = 256
_NORMAL: Final = tuple(NormalDist().inv_cdf((step + 0.5) / _STEPS) for step in range(_STEPS))
"""A standard normal number for each of as many equal parts of chance."""


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
    """The run times of workloads that finished, in seconds, and how long the checks of each queue
    took."""

    def __init__(self) -> None:
        self._kept: dict[Level, list[tuple[float, float]]] = {}
        self._sorted: dict[Level, list[float]] = {}
        self._widths: dict[Level, float] = {}
        self._spreads: dict[Level, float] = {}

    def add(self, source: Source, seconds: float, ended: float, checked: float = 0.0) -> None:
        """Adds a run that ended at ``ended``. ``checked``: how long its quota was held before its
        admission."""
        for level in levels(source):
            self._add(level, seconds, ended)
        self._add(_checks_of(source.queue), checked, ended)

    def _add(self, level: Level, seconds: float, ended: float) -> None:
        kept = self._kept.setdefault(level, [])
        insort(kept, (ended, seconds))
        del kept[:-KEPT]
        self._changed(level)

    def _changed(self, level: Level) -> None:
        self._sorted.pop(level, None)
        self._widths.pop(level, None)
        self._spreads.pop(level, None)

    def forget(self, now: float) -> None:
        """Forgets runs that are too old to count."""
        for level, kept in list(self._kept.items()):
            old = bisect_left(kept, (now - AGE,))
            if old:
                del kept[:old]
                self._changed(level)
            if not kept:
                del self._kept[level]

    def values(self, level: Level) -> Sequence[float]:
        """The run times of a level in seconds, the shortest first."""
        found = self._sorted.get(level)
        if found is None:
            found = sorted(seconds for _, seconds in self._kept.get(level, ()))
            self._sorted[level] = found
        return found

    def checks(self, queue: str) -> Sequence[float]:
        """How long workloads of the queue held quota before their admission, the shortest first."""
        return self.values(_checks_of(queue))

    def width(self, level: Level) -> float:
        """The standard deviation by which the logarithm of a run time of the level is varied."""
        found = self._widths.get(level)
        if found is None:
            count = len(self.values(level))
            found = self._widths[level] = float(BANDWIDTH * self.spread(level) * count**-0.2)
        return found

    def spread(self, level: Level) -> float:
        """The standard deviation of the logarithms of the run times of a level."""
        found = self._spreads.get(level)
        if found is None:
            found = self._spreads[level] = _spread(self.values(level))
        return found

    def basis(self, source: Source) -> Basis | None:
        """The nearest level with at least `KNOWN` runs; None: there is none."""
        for level in levels(source):
            count = len(self.values(level))
            if count >= KNOWN:
                return Basis(count, level)
        return None


def _checks_of(queue: str) -> Level:
    return ("checks", queue)


def _spread(values: Sequence[float]) -> float:
    count = len(values)
    spread = SPREAD
    if count >= FEW:
        low, high = (max(1.0, values[(count - 1) * part // 4]) for part in (1, 3))
        spread = log(high / low) / QUARTILES
    least, most = SPREADS
    return max(least, min(spread, most))


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


class _Known(NamedTuple):
    """A level with run times. ``taken``: the probability with which it is taken."""

    ended: Sequence[float]
    going: Sequence[float]
    width: float
    taken: float


class Sample:
    """The draws of one forecast."""

    def __init__(self, run_times: RunTimes, running: Running, chance: Chance) -> None:
        self._run_times = run_times
        self._running = running
        self._chance = chance
        self._known: dict[Source, tuple[_Known, ...]] = {}
        self._factors: dict[Source, float] = {}
        self._shifts: dict[Level, float] = {}

    def draw(self, source: Source, limit: float | None, elapsed: float = 0.0) -> float | None:
        """A whole run time in seconds: more than ``elapsed``, and at most ``limit``. None: nothing
        is known about run times, and there is no limit."""
        known = self._levels(source)
        if not known:
            return limit
        factor = self._factors[source]
        drawn = factor * self._drawn(known, factor)
        for _ in range(DRAWS):
            if drawn > elapsed or not elapsed:
                break
            drawn = factor * self._drawn(known, factor)
        else:
            drawn = self._beyond(known, elapsed)
        return drawn if limit is None else min(drawn, max(limit, elapsed))

    def checks(self, queue: str, elapsed: float = 0.0) -> float:
        """How long checks of the queue take, more than ``elapsed``: 0 without earlier runs."""
        values = self._run_times.checks(queue)
        first = bisect_right(values, elapsed) if elapsed else 0
        if first < len(values):
            return values[first + int(self._chance() * (len(values) - first))]
        return elapsed * (1 + self._chance())

    def _levels(self, source: Source) -> tuple[_Known, ...]:
        found = self._known.get(source)
        if found is None:
            found = self._known[source] = tuple(self._each_level(source))
            self._factors[source] = exp(self._shift(source))
        return found

    def _shift(self, source: Source) -> float:
        """By how much the logarithms of all run times of the source differ from those of earlier
        runs in this sample."""
        near = next(level for level in levels(source) if level[0] != "array")
        spread, count = self._run_times.spread(near), len(self._run_times.values(near))
        shift = self._shift_of(near, spread / sqrt(1 + count))
        if source.array:
            array = ("array", source.array)
            ended = len(self._run_times.values(array))
            shift += self._shift_of(array, spread / sqrt(1 + ended / ARRAY_RUNS))
        return shift

    def _shift_of(self, level: Level, deviation: float) -> float:
        found = self._shifts.get(level)
        if found is None:
            found = self._shifts[level] = deviation * self._normal()
        return found

    def _normal(self) -> float:
        return _NORMAL[int(self._chance() * _STEPS)]

    def _each_level(self, source: Source) -> Iterable[_Known]:
        known = [level for level in levels(source) if self._run_times.values(level)]
        for level in known:
            ended, going = self._run_times.values(level), self._running.values(level)
            doubt = ARRAY_DOUBT if level[0] == "array" else DOUBT
            count = len(ended) + len(going)
            taken = 1.0 if level is known[-1] else count / (count + doubt)
            yield _Known(ended, going, self._run_times.width(level), taken)

    def _drawn(self, known: Sequence[_Known], factor: float) -> float:
        """A run time of the first level that is taken, before it is multiplied by the ``factor``. A
        workload that still runs stands for a run that is longer, which a farther level may give."""
        least = 0.0
        for level in known:
            if self._chance() >= level.taken:
                continue
            ended = level.ended
            place = int(self._chance() * (len(ended) + len(level.going)))
            if place < len(ended) and not least:
                return self._varied(ended[place], level)
            if place >= len(ended):
                least = max(least, level.going[place - len(ended)] / factor)
            for _ in range(DRAWS // 2):
                drawn = self._varied(ended[int(self._chance() * len(ended))], level)
                if drawn > least:
                    return drawn
        return self._beyond(known, least)

    def _beyond(self, known: Sequence[_Known], least: float) -> float:
        """A run time above ``least`` of a level that has one; else up to twice as long."""
        for level in known:
            first = bisect_right(level.ended, least)
            if first < len(level.ended):
                return level.ended[first + int(self._chance() * (len(level.ended) - first))]
        return least * (1 + self._chance())

    def _varied(self, seconds: float, level: _Known) -> float:
        return seconds * exp(level.width * self._normal())
