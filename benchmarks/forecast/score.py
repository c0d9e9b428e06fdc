"""Asks the forecast about waiting workloads of generated days, and compares with what came true."""

from __future__ import annotations

import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from admittance.bench.generator import BenchPlan
from admittance.forecast.arrivals import Arrivals
from admittance.forecast.forecast import Memory, Rows, forecast
from admittance.forecast.play import play
from admittance.forecast.played import QueueRules
from admittance.forecast.rows import Holding, Key, Need, Waiting
from admittance.forecast.run_times import RunTimes
from admittance.forecast.widening import Interval
from admittance.quota.cell import Quota
from admittance.quota.tree import Tree
from admittance.scheduling.state.flavor_plan import NO_PREEMPTION, Policy

from .days import COHORT, DAY, DAYS, Day, Life, lives

CPU: Final = ("default", "cpu")
EVERY: Final = 3600.0
"""Seconds between two questions."""
FIRST: Final = 2 * DAY
"""When the first forecast is made; the score begins a day later."""
LAST_STARTS: Final = 20
UNLIMITED_RUN: Final = DAY
"""What the naive guess from declared limits takes as the limit of a workload that has none."""


class Answer(NamedTuple):
    """A question about a workload, in seconds from the question: the forecast, what came true, and
    what two naive guesses say."""

    forecast: Interval
    actual: float
    mean_wait: float
    limits: float


class Score(NamedTuple):
    """``inside``: the share of starts between p10 and p90. ``width``: median of p90 - p10 over the
    time that came true. Errors are medians, in minutes. ``cpu_ms``: of one forecast."""

    day: Day
    workloads: int
    questions: int
    unknown: int
    inside: float
    width: float
    error: float
    naive_error: float
    limits_error: float
    cpu_ms: float

    @property
    def ratio(self) -> float:
        return self.error / self.naive_error if self.naive_error else 0.0


class _Seen:
    """The memory of a forecast at a moment of the day; `advance` adds what happened since."""

    def __init__(self, past: Sequence[Life]) -> None:
        self.memory = Memory(RunTimes(), Arrivals(0.0))
        self.waits: dict[str, deque[float]] = {}
        number = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        for life in past:
            planned = life.job.planned
            self._at(planned.at, next(number), partial(self._arrived, life))
            for begin, _ in life.runs:
                self._at(begin, next(number), partial(self._began, life, begin))
            self._at(life.runs[-1][1], next(number), partial(self._ended, life))
        heapify(self._events)

    def _at(self, moment: float, number: int, what: Callable[[], None]) -> None:
        self._events.append((moment, number, what))

    def advance(self, now: float) -> None:
        """Adds all that happened until now."""
        while self._events and self._events[0][0] <= now:
            heappop(self._events)[2]()
        self.memory.run_times.forget(now)
        self.memory.arrivals.forget(now)

    def _arrived(self, life: Life) -> None:
        self.memory.arrivals.add(waiting_of(life))

    def _began(self, life: Life, at: float) -> None:
        waited = self.waits.setdefault(life.job.source.queue, deque(maxlen=LAST_STARTS))
        waited.append(at - life.job.planned.at)
        self.memory.started(key_of(life), at)

    def _ended(self, life: Life) -> None:
        begin, end = life.runs[-1]
        self.memory.run_times.add(life.job.source, end - begin, end)


def key_of(life: Life) -> tuple[str, str]:
    planned = life.job.planned
    return ("ns", f"{planned.at:.6f}-{life.runs[0][0]:.6f}-{id(life)}")


def need_of(life: Life) -> Need:
    return ((CPU, life.job.planned.request),)


def waiting_of(life: Life) -> Waiting:
    job = life.job
    return Waiting(
        key=key_of(life),
        queue=job.source.queue,
        queued_at=job.planned.at,
        choices=((need_of(life),),),
        source=job.source,
        priority=job.planned.priority,
        limit=job.limit,
    )


def rows_at(now: float, past: Sequence[Life], plan: BenchPlan) -> Rows:
    """The tree at a moment."""
    tree = Tree()
    rules = {
        queue.name: QueueRules(
            tree.set_queue(queue.name, COHORT, {CPU: Quota(queue.nominal)}),
            policy=Policy(queue.within) if queue.within != "Never" else NO_PREEMPTION,
        )
        for queue in plan.queues
    }
    waiting, holding = [], []
    for life in past:
        if life.waits(now):
            waiting.append(waiting_of(life))
        elif (since := life.holds(now)) is not None:
            source, need = life.job.source, need_of(life)
            rules[source.queue].node.cell(CPU).charge(need[0][1])
            held = Holding(
                *(key_of(life), source.queue, need, since, source, life.job.limit),
                again=waiting_of(life),
            )
            holding.append(held)
    return Rows(rules, waiting, holding)


def _by_limits(rows: Rows, now: float) -> Mapping[tuple[str, str], float]:
    """Starts if all run until their limits."""
    ends = [(max(now, held.since + (held.limit or UNLIMITED_RUN)), held) for held in rows.holding]
    return play(rows.queues, rows.waiting, ends, lambda job: job.limit or UNLIMITED_RUN, now)


class Moment(NamedTuple):
    """What a forecast may read. ``past``: all workloads of the day, also what becomes of them."""

    day: Day
    now: float
    rows: Rows
    memory: Memory
    past: Sequence[Life]


Forecaster: TypeAlias = Callable[[Moment, random.Random], Mapping[Key, Interval]]


def by_forecast(moment: Moment, chance: random.Random) -> Mapping[Key, Interval]:
    """The forecast of the product."""
    return forecast(moment.rows, moment.memory, moment.now, chance.random)


def score(
    day: Day,
    questions: int = 1,
    forecaster: Forecaster = by_forecast,
) -> Score:
    """Plays the day and scores forecasts. ``questions``: how many workloads are asked about at each
    hour."""
    past, plan = lives(day)
    # The questions are the same whatever the forecasts draw.
    asker, chance = random.Random(day.seed), random.Random(day.seed + 1)
    seen = _Seen(past)
    answers: list[Answer] = []
    unknown, spent = 0, []
    now = FIRST
    while now < DAYS * DAY:
        seen.advance(now)
        rows = rows_at(now, past, plan)
        if rows.waiting:
            before = time.process_time()
            found = forecaster(Moment(day, now, rows, seen.memory, past), chance)
            spent.append(time.process_time() - before)
            asked = [life for life in past if life.waits(now)]
            if now >= FIRST + DAY:
                limits = _by_limits(rows, now)
                for life in asker.sample(asked, min(questions, len(asked))):
                    actual = (life.start_after(now) or now) - now
                    interval = found.get(key_of(life))
                    if interval is None:
                        unknown += 1
                        continue
                    waits = seen.waits.get(life.job.source.queue, [0.0])
                    naive = max(0.0, life.job.planned.at + statistics.fmean(waits) - now)
                    by_limits = limits.get(key_of(life), now) - now
                    answers.append(Answer(interval, actual, naive, by_limits))
        now += EVERY
    return _scored(day, len(past), answers, unknown, spent)


def _scored(
    day: Day, workloads: int, answers: Sequence[Answer], unknown: int, spent: Sequence[float]
) -> Score:
    inside = [a.forecast.p10 <= a.actual <= a.forecast.p90 for a in answers]
    widths = [(a.forecast.p90 - a.forecast.p10) / max(a.actual, 60.0) for a in answers]
    return Score(
        day=day,
        workloads=workloads,
        questions=len(answers),
        unknown=unknown,
        inside=statistics.fmean(inside),
        width=statistics.median(widths),
        error=statistics.median(abs(a.forecast.p50 - a.actual) for a in answers) / 60,
        naive_error=statistics.median(abs(a.mean_wait - a.actual) for a in answers) / 60,
        limits_error=statistics.median(abs(a.limits - a.actual) for a in answers) / 60,
        cpu_ms=statistics.median(spent) * 1000,
    )
