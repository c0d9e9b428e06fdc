"""The errors of plays that are given what no forecast has: how much of the error is the model, how
much the arrivals to come, and how much the run times."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from admittance.forecast.forecast import HORIZON
from admittance.forecast.play import RunTime, play
from admittance.forecast.rows import Holding, Key, Source, Waiting
from admittance.forecast.widening import Interval, quantiles

from .days import Day, Life, scripts_of
from .score import Forecaster, Moment, key_of, score, waiting_of

FLOOR_HEAD: Final = "seed load urgent | " + " | ".join(
    ("true run times and arrivals", "true run times", "and drawn arrivals", "known distributions")
)
PLAYS: Final = 20
TRIES: Final = 50

Starts = Mapping[Key, Interval]
Whole = Callable[[Source, Key, float], float]
"""Source, key and elapsed seconds of a workload: its whole run time."""


def floor_of(day: Day, questions: int) -> dict[str, float]:
    """The median errors in minutes over that of the mean wait of the last 20, for each kind of
    knowledge: true run times with the true arrivals, without arrivals, and with drawn ones; and the
    distributions from which the run times are drawn, with drawn arrivals."""
    kinds: dict[str, Forecaster] = {
        "all": partial(_by_truth, arrivals="true", plays=1),
        "noArrivals": partial(_by_truth, arrivals="none", plays=1),
        "drawnArrivals": partial(_by_truth, arrivals="drawn", plays=PLAYS),
        "distributions": _by_distributions,
    }
    return {name: round(score(day, questions, by).ratio, 2) for name, by in kinds.items()}


def floor_line(day: Day, floor: Mapping[str, float]) -> str:
    """A floor as a line under `FLOOR_HEAD`."""
    ratios = " | ".join(f"{ratio:5.2f}" for ratio in floor.values())
    return f"{day.seed:4} {day.load:4.2f} {day.urgent:6.2f} | {ratios}"


def _by_truth(moment: Moment, chance: random.Random, *, arrivals: str, plays: int) -> Starts:
    lives = {key_of(life): life for life in moment.past}
    lengths = [life.job.planned.runtime for life in moment.past]

    def whole(_source: Source, key: Key, _elapsed: float) -> float:
        life = lives.get(key)
        return life.job.planned.runtime if life is not None else chance.choice(lengths)

    def later() -> Iterable[Waiting]:
        if arrivals == "true":
            return _true_arrivals(moment.past, moment.now)
        return _drawn_arrivals(moment, chance) if arrivals == "drawn" else ()

    return _played(moment, lambda: whole, later, plays)


def _by_distributions(moment: Moment, chance: random.Random) -> Starts:
    scripts = scripts_of(moment.day)

    def begin() -> Whole:
        shifts: dict[str, float] = {}

        def whole(source: Source, _key: Key, elapsed: float) -> float:
            script = scripts[source.user, source.script]
            shift = 0.0
            if source.array:
                shift = shifts.setdefault(source.array, chance.gauss(0, script.spread))
            drawn = 0.0
            for _ in range(TRIES):
                drawn = script.run_time(shift, chance)
                if drawn > elapsed:
                    return drawn
            return max(drawn, elapsed * (1 + script.spread / 4 * chance.random()))

        return whole

    return _played(moment, begin, partial(_drawn_arrivals, moment, chance), PLAYS)


def _true_arrivals(past: Iterable[Life], now: float) -> list[Waiting]:
    later = [waiting_of(life) for life in past if life.job.planned.at > now]
    return sorted(later, key=lambda job: job.queued_at)


def _drawn_arrivals(moment: Moment, chance: random.Random) -> Iterable[Waiting]:
    now, queues = moment.now, moment.rows.queues
    return moment.memory.arrivals.drawn(now, now + HORIZON, queues, chance.random)


def _played(
    moment: Moment,
    begin: Callable[[], Whole],
    later: Callable[[], Iterable[Waiting]],
    plays: int,
) -> Starts:
    rows, now = moment.rows, moment.now
    played: list[Mapping[Key, float]] = []
    for _ in range(plays):
        whole = begin()
        ends = [(_end(held, whole, now), held) for held in rows.holding]
        run_time: RunTime = partial(_run_time, whole=whole)
        played.append(
            play(
                rows.queues,
                rows.waiting,
                ends,
                run_time,
                now,
                arrivals=later(),
                until=now + HORIZON,
            )
        )
    far = now + HORIZON
    return {
        job.key: quantiles([starts.get(job.key, far) - now for starts in played])
        for job in rows.waiting
    }


def _end(held: Holding, whole: Whole, now: float) -> float:
    return max(now, held.since + whole(held.source, held.key, now - held.since))


def _run_time(job: Waiting, whole: Whole) -> float:
    return whole(job.source, job.key, 0.0)
