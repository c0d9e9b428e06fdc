"""What three servers with three replicas cost: throughput and latency beside one server.

``python -m benchmarks.replicas [--burst 3000] [--rounds 3] [--rate 20] [--seconds 15]``

Each round measures the services in one process (`admit up --nats`), once on one server and once on
a cluster of three, one after the other: the latency at a steady rate, then the throughput of a
burst, with enough quota for all. The three servers share disk and processors of one machine.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import psutil

from admittance.bench.connection import connected
from admittance.bench.system import family
from admittance.runtime import clock
from benchmarks.harness.fleet import UP, Fleet
from benchmarks.harness.pairs import (
    RATE,
    ROUNDS,
    SECONDS,
    Figures,
    Loads,
    measured_figures,
    medians_in_turns,
    steady_plan,
)
from benchmarks.harness.program import Option, run_program
from benchmarks.harness.server_cluster import ServerCluster


async def _figures(servers: int, loads: Loads) -> Figures:
    with tempfile.TemporaryDirectory(prefix="admit-bench-") as name:
        cluster = ServerCluster(Path(name), servers)
        fleet = Fleet(Path(name), cluster, [f"{UP}-0"])
        began = clock.monotonic()

        def processes() -> list[psutil.Process]:
            return [*family(fleet.pid(f"{UP}-0")), *map(psutil.Process, cluster.pids)]

        try:
            await cluster.start()
            await cluster.formed()
            await fleet.start(f"{UP}-0")
            await fleet.ready()
            start = clock.monotonic() - began
            async with connected(cluster.url) as link:
                return await measured_figures(link, start, loads, processes)
        finally:
            await fleet.stop()


async def measured(*, burst: int, rounds: int, rate: float, seconds: float) -> list[str]:
    """The figures of each round, and the comparison of their medians."""
    loads = Loads(steady_plan(rate, seconds), steady_plan(burst, 1.0, queue_name="burst"))
    systems = {f"{n} server(s)": partial(_figures, n, loads) for n in (1, 3)}
    (single, three), lines = await medians_in_turns(systems, rounds)
    return [
        *lines,
        f"medians of {rounds} rounds, three replicas to one: "
        f"throughput {three.rate / single.rate:.2f}, latency {three.p50 / single.p50:.2f}",
    ]


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--burst", 3000, "workloads within a second", least=1),
        ROUNDS,
        RATE._replace(default=20.0),
        SECONDS._replace(default=15.0),
    )
