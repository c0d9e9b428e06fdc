"""The forecast of a cohort tree: when each waiting workload will start.

The tree is played several times, each time with other run times and other arrivals. The intervals
of the plays are widened by the errors of earlier forecasts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from admittance.forecast.arrivals import Arrivals
from admittance.forecast.play import QueueRules, play
from admittance.forecast.rows import Holding, Key, Waiting
from admittance.forecast.run_times import Chance, Running, RunTimes, Sample
from admittance.forecast.widening import Interval, Widening, quantiles

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
    """A tree now. ``queues``: by name; their cells have the usage of all in ``holding``."""

    queues: Mapping[str, QueueRules]
    waiting: Sequence[Waiting]
    holding: Sequence[Holding]


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
    after: dict[Key, Key] | None = None,
) -> dict[Key, Interval]:
    """Returns for each waiting workload the interval of its start, in seconds from now. A workload
    that did not start within `HORIZON` in most plays has none. ``after``: gets for each of them the
    workload that ends last before its start, if that is the same one in most plays."""
    running = Running((held.source, max(0.0, now - held.since)) for held in rows.holding)
    plays: list[dict[Key, float]] = []
    causes: list[dict[Key, Key]] = []
    for _ in range(samples_of(len(rows.waiting))):
        caused: dict[Key, Key] = {}
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


def _same_in_most(causes: Sequence[Mapping[Key, Key]]) -> dict[Key, Key]:
    counted: Counter[tuple[Key, Key]] = Counter()
    for caused in causes:
        counted.update(caused.items())
    return {key: cause for (key, cause), times in counted.items() if 2 * times > len(causes)}


def _play(
    rows: Rows,
    memory: Memory,
    running: Running,
    now: float,
    chance: Chance,
    causes: dict[Key, Key],
) -> dict[Key, float]:
    sample = Sample(memory.run_times, running, chance)

    def run_time(job: Waiting) -> float:
        seconds = sample.draw(job.source, job.limit)
        return inf if seconds is None else seconds

    ends = []
    for held in rows.holding:
        whole = sample.draw(held.source, held.limit, max(0.0, now - held.since))
        if whole is not None:
            ends.append((max(now, held.since + whole), held))
    until = now + HORIZON
    arrivals = memory.arrivals.drawn(now, until, rows.queues, chance)
    return play(
        rows.queues,
        rows.waiting,
        ends,
        run_time,
        now,
        arrivals=arrivals,
        until=until,
        causes=causes,
    )
