"""What a locked server costs the services: throughput, latency and start, beside an open one.

``python -m benchmarks.locked [GENERATOR.yaml] [--scale 1] [--rounds 3] [--rate 50] [--seconds 20]``

Each round measures `admit up --insecure` and `admit up`, one after the other. The load
generator is a user of the services' account, so messages of people do not cross the border.
"""

from __future__ import annotations

import asyncio
from functools import partial

from admittance.bench.run import loop_factory, main_of
from benchmarks.pairs import in_turns, loads_of, of_up, options


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    given = options((__doc__ or "").splitlines()[0]).parse_args()
    loads = loads_of(given)
    systems = {"open": partial(of_up, loads, ["--insecure"]), "locked": partial(of_up, loads)}
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        (opened, closed), lines = runner.run(in_turns(systems, given.rounds))
    return [
        *lines,
        f"medians of {given.rounds} rounds, locked to open: "
        f"throughput {closed.rate / opened.rate:.2f} (at least 0.9), "
        f"latency {closed.p50 / opened.p50:.2f} (at most 1.15), "
        f"start {closed.start - opened.start:+.2f} s (at most +1)",
    ]


if __name__ == "__main__":
    main_of(command)
