"""What a locked server costs the services: throughput, latency and start, beside an open one.

``python -m benchmarks.locked [GENERATOR.yaml] [--scale 1] [--rounds 3] [--rate 50] [--seconds 20]``

Each round measures `admit up --insecure` and `admit up`, one after the other. The load
generator is a user of the services' account, so messages of people do not cross the border.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.harness.pairs import COMPARED, medians_in_turns, of_up, steady_and_full
from benchmarks.harness.program import run_program


async def measured(
    *, generator: Path, scale: float, rounds: int, rate: float, seconds: float
) -> list[str]:
    """The figures of each round, and the comparison of their medians."""
    loads = steady_and_full(generator, scale, rate, seconds)
    systems = {"open": partial(of_up, loads, ["--insecure"]), "locked": partial(of_up, loads)}
    (opened, closed), lines = await medians_in_turns(systems, rounds)
    return [
        *lines,
        f"medians of {rounds} rounds, locked to open: "
        f"throughput {closed.rate / opened.rate:.2f} (at least 0.9), "
        f"latency {closed.p50 / opened.p50:.2f} (at most 1.15), "
        f"start {closed.start - opened.start:+.2f} s (at most +1)",
    ]


if __name__ == "__main__":
    run_program(measured, __doc__, *COMPARED)
