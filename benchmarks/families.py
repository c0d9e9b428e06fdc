"""How many families of concurrent admission are admitted a second, and what a family costs beside a
regular workload.

``python -m benchmarks.families [--families 10000] [--variants 3] [--full 0] [--kept 2000]
[--nats URL]``: submitted at once to 30 queues of so many flavors. The first ``--full`` of these
have no quota, so that so many variants are tried in vain; the next has room for all. A job ends
a fifth of a second after its admission. The same is done with regular workloads, and ``--kept`` of
either are kept running, for their memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, NamedTuple

from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.run import measured_system, play
from admittance.runtime.errors import SetupError
from benchmarks.harness.load import Jobs, load_on
from benchmarks.harness.program import NATS, Option, run_program

QUEUES: Final = 30
RUNTIME: Final = 0.2
FOR_EVER: Final = 86_400.0
SETTLE_SECONDS: Final = 3.0
WARM: Final = 300
DECISIONS: Final = ("assigned", "refused", "planned", "preempted", "confirmed", "revoked")


class Cost(NamedTuple):
    """The cost of one family, or of one regular workload. ``bytes_kept``: of the services' memory
    while it runs; 0: not measured."""

    per_second: float
    cpu_ms: float
    messages: float
    decisions: float
    bytes_kept: float
    summary: str


def bench_plan(count: int, variants: int, full: int = 0, runtime: float = RUNTIME) -> BenchPlan:
    """So many families at the very start; ``variants`` 0: regular workloads."""
    room = 1000 * (count + WARM + 1)
    queues = tuple(
        PlannedQueue(
            f"families-{n}",
            cohort=f"c-{n % 5}",
            nominal=room,
            borrowing=0,
            variants=variants,
            full=full,
        )
        for n in range(QUEUES)
    )
    return BenchPlan(
        queues,
        tuple(
            PlannedWorkload(0.0, runtime, f"families-{n}", n % QUEUES, "family", 1000, 0)
            for n in range(count)
        ),
    )


async def measured_cost(count: int, variants: int, full: int, kept: int, nats: str | None) -> Cost:
    """The cost of one family. Raises SetupError."""
    what = bench_plan(count, variants, full)
    counts: Counter[str] = Counter()

    def on_decision(subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        counts[subject.split(b".", 3)[2].decode()] += 1

    def on_submitted(subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        counts["variants"] += b"-variant-" in subject

    async with measured_system(nats) as (link, find):
        for word in DECISIONS:
            await link.bus.nc.listen(f"admit.workload.{word}.>", on_decision)
        await link.bus.nc.listen("admit.workload.submitted.>", on_submitted)
        report, outcome = await play(link, what, find)
    if report.trouble:
        raise SetupError(report.trouble)
    if variants and counts["variants"] < variants * count:
        made = counts["variants"]
        raise SetupError(f"{made} variants were made for {count} families: is the gate on?")
    took = max(outcome.admitted_at) - min(outcome.created_at)
    each = "families" if variants else "regular workloads"
    per_second = count / took
    return Cost(
        per_second=per_second,
        cpu_ms=report.cpu_ms_per_workload,
        messages=report.persisted_messages_per_second * report.wall_seconds / count,
        decisions=sum(counts[word] for word in DECISIONS) / count,
        bytes_kept=await bytes_per_admitted(kept, variants, full) if kept and nats is None else 0.0,
        summary=(
            f"{count} {each}: all admitted after {took:.1f} s, {per_second:.0f} a second; all "
            f"ended after {report.wall_seconds:.1f} s; {report.cpu_of_processes}, "
            f"the load {report.load_generator.cpu_seconds:.1f} s; "
            f"{report.peak_memory_bytes >> 20} MiB at the peak"
        ),
    )


async def bytes_per_admitted(count: int, variants: int, full: int) -> float:
    """By how many bytes the process of the services grows for each family that is admitted and
    keeps running."""
    what = bench_plan(count + WARM, variants, full, FOR_EVER)
    async with load_on(None) as load:
        await generator.create(load.link, what)
        jobs = Jobs(load)
        await load.link.bus.nc.listen("admit.workload.admitted.>", jobs.on_message)
        sizes = []
        for begin, end in ((0, WARM), (WARM, WARM + count)):
            await load.submit(what, begin, end)
            await jobs.reach(end)
            await load.settled()
            await asyncio.sleep(SETTLE_SECONDS)
            services, *_ = load.find()
            sizes.append(services.memory_info().rss)
        return (sizes[1] - sizes[0]) / count


def comparison_lines(family: Cost, regular: Cost, variants: int) -> list[str]:
    """Two runs side by side, a line each."""
    lines = [
        family.summary,
        regular.summary,
        f"of a family, and of a regular workload: {family.cpu_ms:.2f} and {regular.cpu_ms:.2f} ms "
        f"CPU ({family.cpu_ms / regular.cpu_ms:.1f} times as much), {family.messages:.1f} and "
        f"{regular.messages:.1f} messages stored, {family.decisions:.2f} and "
        f"{regular.decisions:.2f} decisions; {variants} variants and their parent may cost "
        f"{variants + 1} times as much",
    ]
    if family.bytes_kept:
        ratio = family.bytes_kept / max(1.0, regular.bytes_kept)
        lines.append(
            f"memory of the services while it runs: {family.bytes_kept / 1024:.1f} and "
            f"{regular.bytes_kept / 1024:.1f} KiB ({ratio:.1f} times as much)"
        )
    return lines


async def measured(
    *, families: int, variants: int, full: int, kept: int, nats: str | None
) -> list[str]:
    """The figures of families and of regular workloads, and their comparison."""
    if full >= variants:
        raise SetupError("--full must leave a flavor")
    regular = await measured_cost(families, 0, 0, kept, nats)
    family = await measured_cost(families, variants, full, kept, nats)
    return comparison_lines(family, regular, variants)


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--families", 10_000, least=1),
        Option("--variants", 3, "of each family", least=1, most=16),
        Option("--full", 0, "flavors without quota, the best ones", least=0),
        Option("--kept", 2000, "kept running, for memory; 0: none", least=0),
        NATS,
    )
