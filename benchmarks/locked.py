"""What a locked server costs the services: throughput, latency and start, beside an open one.

``python -m benchmarks.locked [GENERATOR.yaml] [--scale 1] [--rounds 3] [--rate 50] [--seconds 20]``

Each round measures `admit up --insecure` and `admit up`, one after the other. The load
generator is a user of the services' account, so messages of people do not cross the border.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from admittance.cli.bench import system
from admittance.cli.bench.generator import BenchPlan, bench_plan, read
from admittance.cli.bench.run import Find, loop_factory, main_of, play
from admittance.cli.bench.system import with_load_user
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError
from benchmarks import latency

BASELINE = Path(__file__).parent / "baseline.yaml"


class Figures(NamedTuple):
    """The figures of one system. ``start``: seconds until it is ready; ``rate``: workloads a
    second; ``delay``: submitted to admitted, in ms, at a steady rate."""

    start: float
    rate: float
    delay: float


async def _figures(locked: bool, load: BenchPlan, steady: BenchPlan) -> Figures:
    with tempfile.TemporaryDirectory(prefix="admit-bench-") as name:
        data = Path(name) / "data"
        arguments = ["up", "--no-runner", "--port", "0", "--data-dir", str(data)]
        began = clock.monotonic()
        child = await system.start(
            arguments if locked else [*arguments, "--insecure"], Path(name) / "log"
        )
        try:
            url = await child.ready()
            start = clock.monotonic() - began
            access = await with_load_user(data / "auth", url)
            bus = await Bus.connect(url, name="benchmark", access=access)
            return await measured(bus, start, load, steady, lambda: system.family(child.pid))
        finally:
            await child.stop()


async def measured(
    bus: Bus, start: float, load: BenchPlan, steady: BenchPlan, find: Find
) -> Figures:
    """Plays the steady load, then the other, and closes the connection. ``find``: the processes of
    the system. Raises SetupError if workloads do not finish."""
    try:
        delays, _ = await play(bus, steady, find)
        loaded, _ = await play(bus, load, find)
    finally:
        await bus.close()
    for report in (delays, loaded):
        if report.trouble or report.finished < report.workloads:
            raise SetupError(report.trouble or "not all workloads finished")
    delay = delays.time_to_admission_ms["steady"].p50
    return Figures(start, loaded.workloads_per_second, delay)


async def _compared(rounds: int, load: BenchPlan, steady: BenchPlan) -> list[str]:
    found: dict[bool, list[Figures]] = {False: [], True: []}
    lines = []
    for number in range(rounds):
        # The order changes, so that a warmer machine favors both.
        for locked in (False, True) if number % 2 == 0 else (True, False):
            one = await _figures(locked, load, steady)
            found[locked].append(one)
            lines.append(
                f"{'locked' if locked else 'open  '}  ready in {one.start:.2f} s, "
                f"{one.rate:.1f} workloads a second, p50 {one.delay:.2f} ms"
            )
    opened, closed = (Figures(*map(median, zip(*found[one], strict=True))) for one in (False, True))
    return [
        *lines,
        f"medians of {rounds} rounds, locked to open: "
        f"throughput {closed.rate / opened.rate:.2f} (at least 0.9), "
        f"latency {closed.delay / opened.delay:.2f} (at most 1.15), "
        f"start {closed.start - opened.start:+.2f} s (at most +1)",
    ]


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("generator", type=Path, nargs="?", default=BASELINE)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the workloads")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=50.0, help="of the steady load, a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the steady load")
    given = parser.parse_args()
    load = bench_plan(read(given.generator), scale=given.scale)
    steady = latency.bench_plan(given.rate, given.seconds)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_compared(max(1, given.rounds), load, steady))


if __name__ == "__main__":
    main_of(command)
