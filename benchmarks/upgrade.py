"""How long from quota that comes free on a better flavor until the job starts there.

``python -m benchmarks.upgrade [--families 300] [--checks 0] [--nats URL]``: so many jobs
run on the worse of two flavors, and other ones on all of the better. Those end one after the
other; each time one job moves up. It stops at the first signal. The measurement ends when its
parent is admitted again, and leaves out the job's own stop and start. A check of the better flavor
says Ready at once.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.load import SimulatedController
from admittance.bench.run import delay
from admittance.runtime.errors import SetupError
from benchmarks.harness.load import Jobs, load_on
from benchmarks.harness.program import CHECKS_MAX, NATS, Option, run_program

BETWEEN_SECONDS: Final = 0.03
"""On average, from one upgrade to the next."""
SETTLE_SECONDS: Final = 3.0


def bench_plan(families: int, checks: int = 0) -> BenchPlan:
    """Other workloads first, as many as families, one unit of quota each."""
    names = tuple(f"check-{n}" for n in range(checks))
    queue = PlannedQueue("upgrade", nominal=1000 * families, checks=names, variants=2)
    best = generator.flavors_of(queue)[0]
    others = [
        PlannedWorkload(0.0, 1.0, f"other-{n}", 0, "other", 1000, 10, (best,))
        for n in range(families)
    ]
    jobs = [PlannedWorkload(0.0, 1.0, f"job-{n}", 0, "job", 1000, 0) for n in range(families)]
    return BenchPlan((queue,), (*others, *jobs))


async def measured(*, families: int, checks: int, nats: str | None) -> list[str]:
    """The figures, one line each. Raises SetupError when an upgrade does not come."""
    what = bench_plan(families, checks)
    async with load_on(nats) as load:
        await generator.create(load.link, what)
        jobs = Jobs(load)
        nc = load.link.bus.nc
        for word in ("admitted", "evicted"):
            await nc.listen(f"admit.workload.{word}.>", jobs.on_message)
        await nc.listen("admit.check.requested.>", SimulatedController(load.publisher).on_message)
        for begin, end in ((0, families), (families, 2 * families)):
            await load.submit(what, begin, end)
            await jobs.reach(end)
            await load.settled()
        await asyncio.sleep(SETTLE_SECONDS)
        restarted, told = await _upgrades(jobs, families)
    whole, first = delay(restarted), delay(told)
    return [
        f"{families} upgrades, {checks} checks: from quota that comes free to the job that may "
        f"start there: p50 {whole.p50:.1f} ms, p99 {whole.p99:.1f} ms, at most "
        f"{max(restarted):.1f} ms; until it is told to stop: p50 {first.p50:.1f} ms, "
        f"p99 {first.p99:.1f} ms"
    ]


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


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--families", 300, least=1),
        Option("--checks", 0, "of each variant", least=0, most=CHECKS_MAX),
        NATS,
    )
