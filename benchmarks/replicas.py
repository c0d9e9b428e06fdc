"""What three servers with three replicas cost: throughput and latency beside one server.

``python -m benchmarks.replicas [--burst 3000] [--rounds 3] [--rate 20] [--seconds 15]``

Each round measures the services in one process (`admit up --nats`), once on one server and once on
a cluster of three, one after the other: the latency at a steady rate, then the throughput of a
burst, with enough quota for all. The three servers share disk and processors of one machine.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from functools import partial
from pathlib import Path

import psutil

from admittance.bench import system
from admittance.bench.run import loop_factory, main_of
from admittance.runtime import clock
from benchmarks import latency
from benchmarks.pairs import Figures, Loads, in_turns, measured
from benchmarks.server_cluster import ServerCluster


async def _figures(servers: int, loads: Loads) -> Figures:
    with tempfile.TemporaryDirectory(prefix="admit-bench-") as name:
        cluster = ServerCluster(Path(name), servers)
        began = clock.monotonic()
        try:
            await cluster.start()
            await cluster.formed()
            child = await system.start(
                ["up", "--no-runner", "--nats", cluster.url],
                Path(name) / "log",
                {"ADMIT_REPLICAS": str(servers), "ADMIT_DATA_DIR": str(Path(name) / "data")},
            )
            try:
                await child.ready()
                start = clock.monotonic() - began

                def processes() -> list[psutil.Process]:
                    return [*system.family(child.pid), *map(psutil.Process, cluster.pids)]

                return await measured(await cluster.connect(), start, loads, processes)
            finally:
                await child.stop()
        finally:
            await cluster.stop()


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--burst", type=int, default=3000, help="workloads within a second")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=20.0, help="of the steady load, a second")
    parser.add_argument("--seconds", type=float, default=15.0, help="of the steady load")
    given = parser.parse_args()
    loads = Loads(
        latency.bench_plan(given.rate, given.seconds),
        latency.bench_plan(given.burst, 1.0, queue_name="burst"),
    )
    systems = {f"{n} server(s)": partial(_figures, n, loads) for n in (1, 3)}
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        (single, three), lines = runner.run(in_turns(systems, given.rounds))
    return [
        *lines,
        f"medians of {given.rounds} rounds, three replicas to one: "
        f"throughput {three.rate / single.rate:.2f}, latency {three.p50 / single.p50:.2f}",
    ]


if __name__ == "__main__":
    main_of(command)
