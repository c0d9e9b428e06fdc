"""Compares two systems: rounds of both in turns, each a new system under the same loads."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from admittance.bench.connection import connected
from admittance.bench.generator import (
    BenchPlan,
    PlannedQueue,
    PlannedWorkload,
    bench_plan,
    read,
)
from admittance.bench.run import Find, play
from admittance.bench.system import embedded, family
from admittance.bench.turns import in_turns
from admittance.client.requests.link import Link
from admittance.runtime.errors import SetupError
from benchmarks.harness.program import BASELINE, Option


class Figures(NamedTuple):
    """The figures of one system. ``start``: seconds until it is ready; ``rate``: workloads a
    second; ``p50``, ``p99``: submitted to admitted, in ms, at a steady rate."""

    start: float
    rate: float
    p50: float
    p99: float

    def __str__(self) -> str:
        return (
            f"ready in {self.start:.2f} s, {self.rate:.1f} workloads a second, "
            f"p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms"
        )


class Loads(NamedTuple):
    """The loads of each system: first a steady load, then as many jobs as it accepts."""

    steady: BenchPlan
    full: BenchPlan


async def measured_figures(link: Link, start: float, loads: Loads, find: Find) -> Figures:
    """Plays the loads. ``find``: the processes of the system. Raises SetupError if workloads do not
    finish."""
    steady, _ = await play(link, loads.steady, find)
    full, _ = await play(link, loads.full, find)
    for report in (steady, full):
        if report.trouble or report.finished < report.workloads:
            raise SetupError(report.trouble or "not all workloads finished")
    delay = steady.time_to_admission_ms["steady"]
    return Figures(start, full.workloads_per_second, delay.p50, delay.p99)


async def of_up(
    loads: Loads, options: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Figures:
    """The figures of `admit up` with these options and further variables."""
    async with (
        embedded("--no-runner", *options, env=env) as child,
        connected(child.url, child.access) as link,
    ):
        return await measured_figures(link, child.ready_seconds, loads, lambda: family(child.pid))


async def medians_in_turns(
    systems: Mapping[str, Callable[[], Awaitable[Figures]]], rounds: int
) -> tuple[list[Figures], list[str]]:
    """The medians of each system, and a line for each run."""
    width = max(map(len, systems))
    lines: list[str] = []

    def add_line(name: str, figures: Figures) -> None:
        lines.append(f"{name:{width}}  {figures}, load average {os.getloadavg()[0]:.1f}")

    measured = await in_turns(systems, rounds, add_line)
    return [Figures(*map(median, zip(*each, strict=True))) for each in measured.values()], lines


RUNTIME_SECONDS: Final = 0.2


def steady_plan(
    rate: float, seconds: float, checks: int = 0, queue_name: str = "steady"
) -> BenchPlan:
    """rate workloads a second for so many seconds, evenly, on one queue that has room for all.
    ``checks``: how many each has; every check answers Ready at once."""
    names = tuple(f"check-{n}" for n in range(checks))
    count = max(1, round(rate * seconds))
    room = round(1000 * max(100.0, rate * 10))
    return BenchPlan(
        (PlannedQueue(queue_name, nominal=room, checks=names),),
        tuple(
            PlannedWorkload(
                (n + 1) / rate, RUNTIME_SECONDS, f"{queue_name}-{n}", 0, queue_name, 1000, 0
            )
            for n in range(count)
        ),
    )


def steady_and_full(generator: Path, scale: float, rate: float, seconds: float) -> Loads:
    """A steady load, then that of a generator file."""
    return Loads(steady_plan(rate, seconds), bench_plan(read(generator), scale=scale))


ROUNDS: Final = Option("--rounds", 3, least=1)
RATE: Final = Option("--rate", 50.0, "of the steady load, a second", above=0)
SECONDS: Final = Option("--seconds", 20.0, "of the steady load", above=0)
COMPARED: Final = (
    Option("generator", BASELINE, "a file of Kueue's generator", kind=Path),
    Option("--scale", 1.0, "fraction of the workloads", above=0),
    ROUNDS,
    RATE,
    SECONDS,
)
"""The options of a comparison under the load of a generator file."""
