"""What the daily commands of a user cost: ``python -m benchmarks.queue_day``.

Submits an array of ``--elements`` elements of which ten may run at once, and prints how long that
takes and how many objects the bucket has for it. Then ``--pending`` single workloads wait in one
cohort tree, and the benchmark prints how long ``admit queue`` takes, and the CPU time of the
forecast's process for ``--seconds`` of questions about them and for as long without a question.
Of commands the first figure is the time until they end, the second their own CPU time.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from admittance import forecast_service
from admittance.bench import generator
from admittance.bench.connection import connected
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.system import Child, embedded, family
from admittance.client.client import Client
from admittance.client.requests import forecasts
from admittance.client.requests.link import Link
from admittance.client.requests.queues import questions
from admittance.events.requests.queues import PendingQuery, PendingReply
from admittance.events.subjects import BUCKET
from admittance.forecast.answers import ASKED_SECONDS
from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from benchmarks.harness.jobs import NAMESPACE
from benchmarks.harness.load import load_over
from benchmarks.harness.program import Option, run_program
from benchmarks.harness.waits import QUIET_SECONDS, until_right, until_unchanged

PATIENCE: Final = 240.0
QUEUES: Final = 5
ASKED: Final = 50
"""As many expected starts `admit queue` asks for."""
ASK_EVERY_SECONDS: Final = 2.0


def bench_plan(pending: int) -> BenchPlan:
    """Queues of one cohort that are full after two workloads of each, and a queue of an array."""
    full = tuple(
        PlannedQueue(f"full-{n}", cohort="all", nominal=4000, borrowing=0) for n in range(QUEUES)
    )
    return BenchPlan(
        (*full, PlannedQueue("sweeps", nominal=100_000)),
        tuple(
            PlannedWorkload(0.0, 1.0, f"wait-{n}", n % QUEUES, "wait", 2000, n % 3)
            for n in range(pending)
        ),
    )


async def measured(*, elements: int, pending: int, rounds: int, seconds: float) -> list[str]:
    """The figures, one line each. Raises SetupError."""
    async with (
        embedded("--insecure", "--no-runner") as child,
        connected(child.url, child.access) as link,
        load_over(link) as load,
    ):
        plan = bench_plan(pending)
        await generator.create(link, plan, timeout=PATIENCE)
        lines = await _array(child, link, elements, rounds)
        await load.submit(plan)
        await load.settled(PATIENCE)
        await _until_pending(link, pending - 2 * QUEUES)
        lines.append(
            await _command(
                child, "queue, while the forecast begins", ["queue", "-n", NAMESPACE], rounds
            )
        )
        names = [row.name for row in (await _pending(link, ASKED)).rows]

        async def ask() -> None:
            await forecasts.forecast(link, names, NAMESPACE)

        await ask()
        await asyncio.sleep(QUIET_SECONDS)
        lines.append(await _forecast_cpu(child, "with questions", seconds, ask))
        lines.append(
            await _command(child, "queue, with starts", ["queue", "-n", NAMESPACE], rounds)
        )
        await asyncio.sleep(ASKED_SECONDS)
        lines.append(await _forecast_cpu(child, "without a question", seconds, None))
    return lines


# Commands. ------------------------------------------------------------------------------


async def _command(child: Child, name: str, words: list[str], rounds: int) -> str:
    """The times of a command, after a first time that writes byte code."""
    walls, cpus = [], []
    for number in range(rounds + 1):
        wall, cpu = await _timed(child, words)
        if number:
            walls.append(wall)
            cpus.append(cpu)
    return f"admit {name}: {_ms(walls)}, CPU {_ms(cpus)}"


async def _timed(child: Child, words: list[str]) -> tuple[float, float]:
    """Seconds until the command ended, and of its own CPU time. Raises SetupError."""
    admit = Path(sys.executable).parent / "admit"
    environ = {**os.environ, "ADMIT_NATS_URL": child.url}

    def run() -> tuple[float, float]:
        begun = clock.monotonic()
        process = subprocess.Popen(
            [str(admit), *words],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        said = process.stderr.read().decode()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            raise SetupError(f"admit {' '.join(words)}: {said.strip()}")
        return clock.monotonic() - begun, used.ru_utime + used.ru_stime

    return await asyncio.to_thread(run)


def _ms(seconds: list[float]) -> str:
    return f"{1000 * median(seconds):.0f} ms"


# Arrays. --------------------------------------------------------------------------------


async def _array(child: Child, link: Link, elements: int, rounds: int) -> list[str]:
    indexes = f"0-{elements - 1}%10"
    options = ["--array", indexes, "-q", "sweeps", "-n", NAMESPACE, "--cpu", "1", "--", "true"]
    before = await _objects(link)
    took = await _submitted(child, indexes, "of-client")
    await until_unchanged(link.bus, seconds=PATIENCE)
    stored = await _objects(link) - before
    command = await _command(child, f"submit --array {indexes}", ["submit", *options], rounds)
    return [
        f"an array {indexes} by client.submit: {_ms([took])}, {stored:,} objects stored",
        command,
    ]


async def _submitted(child: Child, indexes: str, name: str) -> float:
    """How long `client.submit` takes, over a connection that exists."""
    client = await Client.connect(child.url, namespace=NAMESPACE)
    try:
        begun = clock.monotonic()
        await client.submit(["true"], queue="sweeps", name=name, array=indexes, cpu="1")
        return clock.monotonic() - begun
    finally:
        await client.close()


async def _objects(link: Link) -> int:
    """How many objects the bucket has."""
    info = await link.bus.api(f"STREAM.INFO.KV_{BUCKET}")
    return int(info["state"]["messages"])


# The forecast. --------------------------------------------------------------------------


async def _until_pending(link: Link, count: int) -> None:
    async def total() -> int:
        return (await _pending(link, 1)).total

    if await until_right(total, lambda now: now >= count, seconds=PATIENCE) is None:
        raise SetupError(f"not all of {count} workloads are pending")


async def _pending(link: Link, limit: int) -> PendingReply:
    return await questions.pending_page(link, PendingQuery(limit=limit), NAMESPACE)


async def _forecast_cpu(
    child: Child, what: str, seconds: float, ask: Callable[[], Awaitable[None]] | None
) -> str:
    """The CPU time of the forecast's process, as much as it would take in a minute."""
    before = _cpu_of_forecast(child)
    begun = clock.monotonic()
    while (left := seconds - (clock.monotonic() - begun)) > 0:
        if ask is not None:
            await ask()
        await asyncio.sleep(min(left, ASK_EVERY_SECONDS))
    used = (_cpu_of_forecast(child) - before) * 60 / (clock.monotonic() - begun)
    return f"the forecast {what}: {used:.2f} s of CPU a minute"


def _cpu_of_forecast(child: Child) -> float:
    """CPU seconds so far. Raises SetupError if the process does not run."""
    for process in family(child.pid):
        with suppress(psutil.Error):
            if forecast_service.SERVICE.package in process.cmdline():
                times = process.cpu_times()
                return float(times.user + times.system)
    raise SetupError("no process of the forecast runs")


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--elements", 10_000, least=1),
        Option("--pending", 10_000, least=100),
        Option("--rounds", 5, least=1),
        Option("--seconds", 60.0, above=0),
    )
