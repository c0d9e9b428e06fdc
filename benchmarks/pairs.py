"""Compares two systems: rounds of both in turns, each a new system under the same loads."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from admittance.bench import system
from admittance.bench.generator import BenchPlan, bench_plan, read
from admittance.bench.run import Find, play
from admittance.bench.system import with_load_user
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError
from benchmarks import latency

BASELINE = Path(__file__).parent / "baseline.yaml"


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
    """What each system gets: first a steady load, then as much as it takes."""

    steady: BenchPlan
    full: BenchPlan


async def measured(bus: Bus, start: float, loads: Loads, find: Find) -> Figures:
    """Plays the loads, and closes the connection. ``find``: the processes of the system. Raises
    SetupError if workloads do not finish."""
    try:
        steady, _ = await play(bus, loads.steady, find)
        full, _ = await play(bus, loads.full, find)
    finally:
        await bus.close()
    for report in (steady, full):
        if report.trouble or report.finished < report.workloads:
            raise SetupError(report.trouble or "not all workloads finished")
    delay = steady.time_to_admission_ms["steady"]
    return Figures(start, full.workloads_per_second, delay.p50, delay.p99)


async def of_up(
    loads: Loads, options: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Figures:
    """The figures of `admit up` with these options and further variables."""
    with tempfile.TemporaryDirectory(prefix="admit-bench-") as name:
        data = Path(name) / "data"
        arguments = ["up", "--no-runner", "--port", "0", "--data-dir", str(data), *options]
        began = clock.monotonic()
        child = await system.start(arguments, Path(name) / "log", env)
        try:
            url = await child.ready()
            start = clock.monotonic() - began
            access = await with_load_user(data / "auth", url)
            bus = await Bus.connect(url, name="benchmark", access=access)
            return await measured(bus, start, loads, lambda: system.family(child.pid))
        finally:
            await child.stop()


async def in_turns(
    systems: Mapping[str, Callable[[], Awaitable[Figures]]], rounds: int
) -> tuple[list[Figures], list[str]]:
    """The medians of each system, and a line for each run."""
    found: dict[str, list[Figures]] = {name: [] for name in systems}
    width = max(map(len, systems))
    lines = []
    for number in range(max(1, rounds)):
        # The order changes, so that a warmer machine favors both.
        for name in systems if number % 2 == 0 else reversed([*systems]):
            one = await systems[name]()
            found[name].append(one)
            lines.append(f"{name:{width}}  {one}, load average {os.getloadavg()[0]:.1f}")
    return [Figures(*map(median, zip(*found[name], strict=True))) for name in systems], lines


def options(
    about: str, *, scale: float = 1.0, rounds: int = 3, rate: float = 50.0
) -> argparse.ArgumentParser:
    """The options of a comparison, with their defaults. ``about``: what it compares."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("generator", type=Path, nargs="?", default=BASELINE)
    parser.add_argument("--scale", type=float, default=scale, help="fraction of the workloads")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--rate", type=float, default=rate, help="of the steady load, a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the steady load")
    return parser


def loads_of(given: argparse.Namespace) -> Loads:
    """The loads that the options choose."""
    return Loads(
        latency.bench_plan(given.rate, given.seconds),
        bench_plan(read(given.generator), scale=given.scale),
    )
