"""What three servers with three replicas cost: throughput and latency beside one server.

``python -m benchmarks.replicas [GENERATOR.yaml] [--scale 0.3] [--rounds 2] [--rate 20]
[--seconds 20]``

Each round measures the services in one process (`admit up --nats`), once on one server and once on
a cluster of three, one after the other. All three servers share the disk and the processors of one
machine.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path

import psutil

from admittance.cli.bench import system
from admittance.cli.bench.run import loop_factory, main_of
from admittance.runtime import clock
from benchmarks.pairs import Figures, Loads, in_turns, loads_of, measured, options
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
    about = (__doc__ or "").splitlines()[0]
    given = options(about, scale=0.3, rounds=2, rate=20.0).parse_args()
    loads = loads_of(given)
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
