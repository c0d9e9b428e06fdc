"""What three servers with three replicas cost: throughput and latency beside one server.

``python -m benchmarks.replicas [GENERATOR.yaml] [--scale 0.3] [--rounds 2] [--rate 20]
[--seconds 20]``

Each round measures the services in one process (`admit up --nats`), once on one server and once on
a cluster of three, one after the other. All three servers share the disk and the processors of one
machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from pathlib import Path
from statistics import median

import psutil

from admittance.cli.bench import system
from admittance.cli.bench.generator import BenchPlan, bench_plan, read
from admittance.cli.bench.run import loop_factory, main_of
from admittance.runtime import clock
from benchmarks import latency
from benchmarks.locked import BASELINE, Figures, measured
from benchmarks.server_cluster import ServerCluster


async def _figures(servers: int, load: BenchPlan, steady: BenchPlan) -> Figures:
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

                bus = await cluster.connect()
                return await measured(bus, start, load, steady, processes)
            finally:
                await child.stop()
        finally:
            await cluster.stop()


async def _compared(rounds: int, load: BenchPlan, steady: BenchPlan) -> list[str]:
    found: dict[int, list[Figures]] = {1: [], 3: []}
    lines = []
    for number in range(rounds):
        # The order changes, so that a warmer machine favors both.
        for servers in (1, 3) if number % 2 == 0 else (3, 1):
            one = await _figures(servers, load, steady)
            found[servers].append(one)
            lines.append(
                f"{servers} server(s)  ready in {one.start:.2f} s, {one.rate:.1f} workloads a "
                f"second, p50 {one.delay:.2f} ms, load average {os.getloadavg()[0]:.1f}"
            )
    single, three = (Figures(*map(median, zip(*found[n], strict=True))) for n in (1, 3))
    return [
        *lines,
        f"medians of {rounds} rounds, three replicas to one: "
        f"throughput {three.rate / single.rate:.2f}, latency {three.delay / single.delay:.2f}",
    ]


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("generator", type=Path, nargs="?", default=BASELINE)
    parser.add_argument("--scale", type=float, default=0.3, help="fraction of the workloads")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate", type=float, default=20.0, help="of the steady load, a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the steady load")
    given = parser.parse_args()
    load = bench_plan(read(given.generator), scale=given.scale)
    steady = latency.bench_plan(given.rate, given.seconds)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_compared(max(1, given.rounds), load, steady))


if __name__ == "__main__":
    main_of(command)
