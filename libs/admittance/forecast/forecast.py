"""The forecast of a cohort tree: when each waiting workload will start.

The tree is played several times, each time with other run times and other arrivals. The intervals
of the plays are widened by the errors of earlier forecasts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

from admittance.forecast.arrivals import Arrivals
from admittance.forecast.play import play
from admittance.forecast.played import QueueRules
from admittance.forecast.rows import Holding, Key, Waiting
from admittance.forecast.run_times import Chance, Running, RunTimes, Sample
from admittance.forecast.widening import Interval, Widening, quantiles
from admittance.scheduling.state.held.person_limits import Person

SAMPLES: Final = 20
SAMPLES_LEAST: Final = 8
STARTS: Final = 100_000
"""How many starts one forecast plays, about 40 microseconds of CPU each."""
COMPARED: Final = 20
"""How many workloads of each forecast are compared with their starts: chance takes them, so that a
workload counts as often as a user may ask about it."""
KEPT: Final = 100
"""How many forecasts of one workload wait for its start, so that a workload that waits for days
neither fills the memory nor outweighs the others."""
HORIZON: Final = 4 * 86_400.0
"""A start that lies more seconds ahead is not forecast."""


class Rows(NamedTuple):
    """A tree now. ``queues``: by name; their cells have the usage of all in ``holding``.
    ``persons``: those that arrivals of a user in a queue count for, of the users with a workload
    now. ``strategies``: those of preemption with fair sharing; None: it is off.
    ``migrates``: better variants wait to take over the jobs of their families."""

    queues: Mapping[str, QueueRules]
    waiting: Sequence[Waiting]
    holding: Sequence[Holding]
    persons: Mapping[tuple[str, str], tuple[Person, ...]] = MappingProxyType({})
    strategies: tuple[str, ...] | None = None
    migrates: bool = False


@dataclass(slots=True)
class Memory:
    """What earlier workloads of a tree say about the next ones. ``made``: forecasts
    that will be compared with the start of their workload, as they were before they were widened,
    each with the time at which it was made. ``compared``: how many forecasts were compared, and
    ``inside``: how many of these starts lay between p10 and p90 of the widened forecast."""

    run_times: RunTimes
    arrivals: Arrivals
    widening: Widening = field(default_factory=Widening)
    made: dict[Key, list[tuple[float, Interval]]] = field(default_factory=dict)
    compared: int = 0
    inside: int = 0

    def started(self, key: Key, at: float) -> None:
        """Compares the forecasts of a workload with its start."""
        for made_at, interval in self.made.pop(key, ()):
            widened = self.widening.widened(interval)
            self.compared += 1
            self.inside += widened.p10 <= at - made_at <= widened.p90
            self.widening.add(interval, at - made_at)

    def gone(self, key: Key) -> None:
        """Drops the forecasts of a workload that left its queue and did not start."""
        self.made.pop(key, None)


def samples_of(waiting: int) -> int:
    """How many plays a forecast of so many waiting workloads has."""
    return max(SAMPLES_LEAST, min(SAMPLES, STARTS // max(1, waiting)))


def forecast(
    rows: Rows,
    memory: Memory,
    now: float,
    chance: Chance,
    after: dict[Key, tuple[Key, ...]] | None = None,
) -> dict[Key, Interval]:
    """Returns for each waiting workload the interval of its start, in seconds from now. A workload
    that did not start within `HORIZON` in most plays has none. ``after``: gets for each of them the
    workloads that free the quota for its start in most plays, in the order in which they end."""
    running = running_of(rows.holding, now)
    plays: list[dict[Key, float]] = []
    causes: list[dict[Key, tuple[Key, ...]]] = []
    for _ in range(samples_of(len(rows.waiting))):
        caused: dict[Key, tuple[Key, ...]] = {}
        plays.append(_play(rows, memory, running, now, chance, caused))
        causes.append(caused)
    if after is not None:
        after |= _same_in_most(causes)
    raw: dict[Key, Interval] = {}
    for job in rows.waiting:
        interval = quantiles([played.get(job.key, inf) - now for played in plays])
        if interval.p50 < inf:
            raw[job.key] = interval._replace(p90=min(interval.p90, HORIZON))
    keys = list(raw)
    for _ in range(min(COMPARED, len(keys))):
        key = keys[int(chance() * len(keys))]
        made = memory.made.setdefault(key, [])
        if len(made) >= KEPT:
            del made[int(chance() * len(made))]
        made.append((now, raw[key]))
    return {key: memory.widening.widened(interval) for key, interval in raw.items()}


def _same_in_most(causes: Sequence[Mapping[Key, tuple[Key, ...]]]) -> dict[Key, tuple[Key, ...]]:
    """Of each workload the ends that freed its quota in more than half of the plays. Their order is
    that of most plays: each end has the sum of its places from the last."""
    plays: dict[Key, Counter[Key]] = {}
    places: Counter[tuple[Key, Key]] = Counter()
    for caused in causes:
        for key, ends in caused.items():
            counted = plays.setdefault(key, Counter())
            for place, end in enumerate(reversed(ends)):
                counted[end] += 1
                places[key, end] += place
    found: dict[Key, tuple[Key, ...]] = {}
    for key, counted in plays.items():
        often = [end for end, times in counted.items() if 2 * times > len(causes)]
        if often:
            mean = {end: places[key, end] / counted[end] for end in often}
            found[key] = tuple(sorted(often, key=lambda end: (-mean[end], end)))
    return found


def _play(
    rows: Rows,
    memory: Memory,
    running: Running,
    now: float,
    chance: Chance,
    causes: dict[Key, tuple[Key, ...]],
) -> dict[Key, float]:
    sample = Sample(memory.run_times, running, chance)
    ends = [(end_of(held, sample, now), held) for held in rows.holding]
    until = now + HORIZON
    return play(
        rows.queues,
        rows.waiting,
        ends,
        partial(run_time_of, sample=sample),
        now,
        strategies=rows.strategies,
        arrivals=_arrivals(rows, memory, now, until, chance),
        until=until,
        causes=causes,
    )


def _arrivals(
    rows: Rows, memory: Memory, now: float, until: float, chance: Chance
) -> Iterator[Waiting]:
    for job in memory.arrivals.drawn(now, until, rows.queues, chance):
        persons = rows.persons.get((job.queue, job.source.user)) if rows.persons else None
        yield job if persons is None else job._replace(persons=persons)


def run_time_of(job: Waiting, sample: Sample) -> float:
    """Draws for how many seconds a workload holds quota that starts: for its checks, and for its
    run. Infinite: nothing is known."""
    seconds = sample.draw(job.source, job.limit)
    return inf if seconds is None else sample.checks(job.queue) + seconds


def end_of(held: Holding, sample: Sample, now: float) -> float:
    """Draws when a workload ends that holds quota; infinite: nothing is known."""
    if held.is_leaving:
        return now
    elapsed = max(0.0, now - held.since)
    if held.is_checked:
        seconds = sample.draw(held.source, held.limit)
        whole = None if seconds is None else sample.checks(held.queue, elapsed) + seconds
    else:
        whole = sample.draw(held.source, held.limit, elapsed)
    return inf if whole is None else max(now, held.since + whole)


def running_of(holding: Iterable[Holding], now: float) -> Running:
    """How long the workloads have run that hold quota."""
    return Running(
        (held.source, max(0.0, now - held.since)) for held in holding if not held.is_checked
    )
