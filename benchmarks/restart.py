"""How long a killed system needs until it serves again, with many workloads pending.

``python -m benchmarks.restart [--pending 50000]``: fills the queues, kills everything with
``kill -9``, starts it again on the same data folder, and waits for ``ready`` and for the scheduler
to know every pending workload.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import psutil

from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.load import Publisher, submission, until_settled
from admittance.bench.run import loop_factory, main_of, messages_stored
from admittance.bench.system import family, start
from admittance.events import subjects
from admittance.events.requests import PendingQuery, PendingReply
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError, Unavailable

QUEUES: Final = 30
PATIENCE: Final = 300.0
SILENCE_SECONDS: Final = 3.0

_pending = msgspec.json.Decoder(PendingReply)


def bench_plan(pending: int) -> BenchPlan:
    """So many workloads on 30 queues, none of which ever fits its quota's rest."""
    made = tuple(
        PlannedQueue(f"full-{n}", "cq", f"c-{n % 5}", "default", 1000, 0, None, "Never", "Never")
        for n in range(QUEUES)
    )
    return BenchPlan(
        made,
        # Twice the quota: each stays pending, without a neighbour that never ends.
        tuple(
            PlannedWorkload(0.0, 1.0, f"wait-{n}", n % QUEUES, "wait", 2000, 0)
            for n in range(pending)
        ),
    )


async def measured(what: BenchPlan) -> list[str]:
    """Fills, kills, starts again. Raises SetupError when it does not come back whole."""
    with tempfile.TemporaryDirectory(prefix="admit-restart-") as folder:
        arguments = [
            "up",
            "--insecure",
            "--port",
            "0",
            "--no-runner",
            "--data-dir",
            str(Path(folder) / "data"),
        ]
        log = Path(folder) / "log"
        first = await start(arguments, log)
        bus = await Bus.connect(await first.ready(), name="admit-bench")
        try:
            filling = clock.monotonic()
            await _fill(bus, what)
            filled = clock.monotonic() - filling
        finally:
            await bus.close()
        _kill(family(first.pid))
        await first.process.wait()

        started = clock.monotonic()
        second = await start(arguments, log)
        try:
            bus = await Bus.connect(await second.ready(PATIENCE), name="admit-bench")
            ready = clock.monotonic() - started
            try:
                await _known(bus, len(what.workloads))
            finally:
                await bus.close()
            known = clock.monotonic() - started
            memory = {
                measure.name(): measure.memory_info().rss >> 20 for measure in family(second.pid)
            }
        finally:
            await second.stop()
    return [
        f"{len(what.workloads)} pending: ready {ready:.1f} s after the start, all of them known to "
        f"the scheduler after {known:.1f} s (they were submitted in {filled:.1f} s)",
        "memory, MiB: " + ", ".join(f"{name} {size}" for name, size in memory.items()),
    ]


async def _fill(bus: Bus, what: BenchPlan) -> None:
    await generator.create(bus, what)
    publisher = Publisher(bus)
    publishing = asyncio.create_task(publisher.run())
    for number, workload in enumerate(what.workloads):
        subject = f"admit.workload.submitted.default.{workload.name}"
        queue = what.queues[workload.queue].name
        publisher.publish(subject, submission(workload, "default", queue))
        if number % 500 == 499:
            await publisher.until_acknowledged(30.0)
    await publisher.until_acknowledged(30.0)
    if publisher.refused:
        raise SetupError(f"a submission was refused: {publisher.refused[0]}")
    await until_settled(bus, publisher.sequence, patience=PATIENCE)
    await _known(bus, len(what.workloads))
    await _silence(bus)
    publishing.cancel()


async def _silence(bus: Bus) -> None:
    """Waits until nothing is said any more: why each of them waits is stated after a while."""
    before = -1
    # Only the log: heartbeats in the bucket of claims never stop.
    while (now := await messages_stored(bus, (subjects.STREAM,))) != before:
        before = now
        await asyncio.sleep(SILENCE_SECONDS)


async def _known(bus: Bus, count: int) -> None:
    deadline = clock.monotonic() + PATIENCE
    query = msgspec.json.encode(PendingQuery(limit=1))
    found = -1
    while clock.monotonic() < deadline:
        with suppress(Unavailable):
            found = _pending.decode(await bus.request("admit.api.pending", query, 5.0)).total
            if found == count:
                return
        await asyncio.sleep(0.05)
    raise SetupError(f"{found} of {count} workloads are pending, after {PATIENCE:.0f} s")


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pending", type=int, default=50_000)
    found = parser.parse_args()
    if found.pending < 1:
        raise SetupError("--pending must be at least 1")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(measured(bench_plan(found.pending)))


if __name__ == "__main__":
    main_of(command)
