"""A forecast that one broken row does not prevent: the row is left out, and the others are played.

An exception of a play is a bug, and most often the data of one workload lead to it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Final, NamedTuple

from admittance.forecast.forecast import Memory, Rows, end_of, forecast, run_time_of
from admittance.forecast.play import play
from admittance.forecast.rows import Key, Waiting
from admittance.forecast.run_times import Chance, Running, Sample
from admittance.forecast.widening import Interval

FAILED: Final = "its forecast failed: the log of the forecast service names the error"
TREE_FAILED: Final = (
    "the forecast of its tree failed: the log of the forecast service names the error"
)


class Found(NamedTuple):
    """The interval of each start, the workloads that free its quota, and the ``errors`` of
    workloads that are left out."""

    starts: Mapping[Key, Interval]
    after: Mapping[Key, tuple[Key, ...]]
    errors: Mapping[Key, Exception]


def guarded_forecast(rows: Rows, memory: Memory, now: float, chance: Chance) -> Found:
    """The forecast of a tree. If it raises, it is made again without the workloads that alone raise
    an exception; quota that these hold stays taken. Raises what the forecast raises if no workload
    alone does."""
    after: dict[Key, tuple[Key, ...]] = {}
    try:
        return Found(forecast(rows, memory, now, chance, after), after, {})
    except Exception:
        errors = _errors(rows, memory, now, chance)
        if not errors:
            raise
    kept = rows._replace(
        waiting=[job for job in rows.waiting if job.key not in errors],
        holding=[held for held in rows.holding if held.key not in errors],
    )
    after = {}
    return Found(forecast(kept, memory, now, chance, after), after, errors)


def _errors(rows: Rows, memory: Memory, now: float, chance: Chance) -> dict[Key, Exception]:
    """The exceptions of plays with one workload each."""
    errors: dict[Key, Exception] = {}
    sample = Sample(memory.run_times, Running(), chance)
    for job in rows.waiting:
        try:
            seconds = run_time_of(job, sample)
            play(rows.queues, [job], (), partial(_same, seconds), now)
        except Exception as error:
            errors[job.key] = error
    for held in rows.holding:
        try:
            play(rows.queues, (), [(end_of(held, sample, now), held)], partial(_same, inf), now)
        except Exception as error:
            errors[held.key] = error
    return errors


def _same(seconds: float, _: Waiting) -> float:
    return seconds
