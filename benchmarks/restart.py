"""Measures how long a killed system with many pending workloads needs until it serves again.

``python -m benchmarks.restart [--pending 50000]``: fills the queues, kills everything with
``kill -9``, starts it again on the same data folder, and waits for ``ready`` and for the scheduler
to know every pending workload.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from admittance.bench import generator
from admittance.bench.connection import connected, messages_stored
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.client.requests.link import Link
from admittance.client.requests.queues import questions
from admittance.events import subjects
from admittance.events.requests.queues import PendingQuery
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError
from benchmarks.harness.load import load_over, own_system
from benchmarks.harness.program import Option, run_program
from benchmarks.harness.waits import until_right

QUEUES: Final = 30
PATIENCE: Final = 300.0
SILENCE_SECONDS: Final = 3.0


def bench_plan(pending: int) -> BenchPlan:
    """So many workloads on 30 queues, none of which ever fits its quota's rest."""
    queues = tuple(
        PlannedQueue(f"full-{n}", cohort=f"c-{n % 5}", nominal=1000, borrowing=0)
        for n in range(QUEUES)
    )
    return BenchPlan(
        queues,
        # Twice the quota: each stays pending, without a neighbour that never ends.
        tuple(
            PlannedWorkload(0.0, 1.0, f"wait-{n}", n % QUEUES, "wait", 2000, 0)
            for n in range(pending)
        ),
    )


async def measured(*, pending: int) -> list[str]:
    """Fills, kills, starts again. Raises SetupError when it does not come back whole."""
    async with own_system() as system:
        async with connected(await system.start()) as link:
            began = clock.monotonic()
            await _fill(link, bench_plan(pending))
            filled = clock.monotonic() - began
        system.kill()
        await system.ended()

        began = clock.monotonic()
        async with connected(await system.start(PATIENCE)) as link:
            ready = clock.monotonic() - began
            await _known(link, pending)
        known = clock.monotonic() - began
        memory = [f"{each.name()} {each.memory_info().rss >> 20}" for each in system.processes]
    return [
        f"{pending} pending: ready {ready:.1f} s after the start, all of them known to "
        f"the scheduler after {known:.1f} s (they were submitted in {filled:.1f} s)",
        f"memory, MiB: {', '.join(memory)}",
    ]


async def _fill(link: Link, what: BenchPlan) -> None:
    await generator.create(link, what)
    async with load_over(link) as load:
        await load.submit(what)
        await load.settled(PATIENCE)
        await _known(link, len(what.workloads))
        await _silence(link.bus)


async def _silence(bus: Bus) -> None:
    """Waits until no more facts come: the scheduler publishes a while later why each workload
    waits."""
    before = -1
    # Only the log: heartbeats in the bucket of claims never stop.
    while (now := await messages_stored(bus, (subjects.STREAM,))) != before:
        before = now
        await asyncio.sleep(SILENCE_SECONDS)


async def _known(link: Link, count: int) -> None:
    ask = partial(questions.pending_rows, link, PendingQuery(), None, 1)
    answer = await until_right(
        ask, lambda answer: answer.total == count, seconds=PATIENCE, every=0.05
    )
    total = -1 if answer is None else answer.total
    if total != count:
        raise SetupError(f"{total} of {count} workloads are pending, after {PATIENCE:.0f} s")


if __name__ == "__main__":
    run_program(measured, __doc__, Option("--pending", 50_000, least=1))
