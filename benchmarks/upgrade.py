"""How long from quota that comes free on a better flavor until the job starts there.

``python -m benchmarks.upgrade [--families 300] [--checks 0] [--nats URL]``: so many jobs
run on the worse of two flavors, and other ones on all of the better. Those end one after the
other; each time one job moves up. It stops as soon as it is told to, and what is measured ends when
its parent is admitted again: the job's own stop and start apart. A check of the better flavor says
Ready at once.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from typing import Final

from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.load import Publisher, SimulatedController, submission, until_settled
from admittance.bench.run import delay, loop_factory, main_of, system
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError
from benchmarks.hearing import Jobs

BETWEEN_SECONDS: Final = 0.03
"""On average, from one upgrade to the next."""
SETTLE_SECONDS: Final = 3.0


def bench_plan(families: int, checks: int = 0) -> BenchPlan:
    """Other workloads first, as many as families, one unit of quota each."""
    names = tuple(f"check-{n}" for n in range(checks))
    queue = PlannedQueue(
        "upgrade",
        "cq",
        "",
        "default",
        1000 * families,
        None,
        None,
        "Never",
        "Never",
        names,
        variants=2,
    )
    best = generator.flavors_of(queue)[0]
    others = [
        PlannedWorkload(0.0, 1.0, f"other-{n}", 0, "other", 1000, 10, (best,))
        for n in range(families)
    ]
    jobs = [PlannedWorkload(0.0, 1.0, f"job-{n}", 0, "job", 1000, 0) for n in range(families)]
    return BenchPlan((queue,), (*others, *jobs))


async def measured(families: int, checks: int, nats: str | None) -> list[str]:
    """The figures, one line each. Raises SetupError when an upgrade does not come."""
    what = bench_plan(families, checks)
    async with system(nats) as (url, access, _):
        bus = await Bus.connect(url, name="admit-bench", access=access)
        try:
            await generator.create(bus, what)
            publisher = Publisher(bus)
            publishing = asyncio.create_task(publisher.run())
            jobs = Jobs(publisher)
            for word in ("admitted", "evicted"):
                await bus.nc.listen(f"admit.workload.{word}.>", jobs.hear)
            await bus.nc.listen("admit.check.requested.>", SimulatedController(publisher).hear)
            await _submit(bus, publisher, jobs, what, 0, families)
            await _submit(bus, publisher, jobs, what, families, 2 * families)
            await asyncio.sleep(SETTLE_SECONDS)
            restarted, told = await _upgrades(jobs, families)
            publishing.cancel()
        finally:
            await bus.close()
    whole, first = delay(restarted), delay(told)
    return [
        f"{families} upgrades, {checks} checks: from quota that comes free to the job that may "
        f"start there: p50 {whole.p50:.1f} ms, p99 {whole.p99:.1f} ms, at most "
        f"{max(restarted):.1f} ms; until it is told to stop: p50 {first.p50:.1f} ms, "
        f"p99 {first.p99:.1f} ms"
    ]


async def _submit(
    bus: Bus, publisher: Publisher, jobs: Jobs, what: BenchPlan, begin: int, end: int
) -> None:
    for workload in what.workloads[begin:end]:
        subject = f"admit.workload.submitted.default.{workload.name}"
        publisher.publish(subject, submission(workload, "default", what.queues[0].name))
    await publisher.until_acknowledged(30.0)
    await jobs.reach(end)
    await until_settled(bus, publisher.sequence)


async def _upgrades(jobs: Jobs, families: int) -> tuple[list[float], list[float]]:
    """Milliseconds each: until the second admission, and until the eviction before it."""
    pauses = random.Random(1)  # so that no rhythm of the system is met each time
    restarted, told = [], []
    for n in range(families):
        before = sum(jobs.admissions.values())
        freed = jobs.end(f"other-{n}")
        await jobs.reach(before + 1)
        name, at = jobs.last
        if not name.startswith("job-") or jobs.admissions[name] != 2:
            raise SetupError(f"{name} was admitted, and not for an upgrade")
        restarted.append(1000 * (at - freed))
        told.append(1000 * (jobs.evicted_at - freed))
        await asyncio.sleep(pauses.expovariate(1 / BETWEEN_SECONDS))
    return restarted, told


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--families", type=int, default=300)
    parser.add_argument("--checks", type=int, default=0, help="of each variant; at most 8")
    parser.add_argument("--nats", default=None, help="a running system instead of an embedded one")
    found = parser.parse_args()
    if found.families < 1 or not 0 <= found.checks <= 8:
        raise SetupError("--families must be at least 1, --checks 0 to 8")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(measured(found.families, found.checks, found.nats))


if __name__ == "__main__":
    main_of(command)
