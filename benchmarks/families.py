"""How many families of concurrent admission are admitted a second, and what a family costs beside a
regular workload.

``python -m benchmarks.families [--families 10000] [--variants 3] [--full 0] [--kept 2000]
[--nats URL]``: submitted at once to 30 queues of so many flavors. The first ``--full`` of these
have no quota, so that so many variants are tried in vain; the next has room for all. A job ends
a fifth of a second after its admission. The same is done with regular workloads, and ``--kept`` of
either are kept running, for their memory.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from typing import Final, NamedTuple

from admittance.bench import generator
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.load import IN_FLIGHT_MAX, Publisher, submission, until_settled
from admittance.bench.run import loop_factory, main_of, play, system
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError
from benchmarks.hearing import Jobs

QUEUES: Final = 30
RUNTIME: Final = 0.2
FOR_EVER: Final = 86_400.0
SETTLE_SECONDS: Final = 3.0
WARM: Final = 300
DECISIONS: Final = ("assigned", "refused", "planned", "preempted", "confirmed", "revoked")


class Cost(NamedTuple):
    """Of one family, or regular workload. ``bytes_kept``: of the services' memory while it runs;
    0: not measured."""

    per_second: float
    cpu_ms: float
    messages: float
    decisions: float
    bytes_kept: float
    told: str


def bench_plan(count: int, variants: int, full: int = 0, runtime: float = RUNTIME) -> BenchPlan:
    """So many families at the very start; ``variants`` 0: regular workloads."""
    room = 1000 * (count + WARM + 1)
    made = tuple(
        PlannedQueue(
            f"families-{n}",
            "cq",
            f"c-{n % 5}",
            "default",
            room,
            0,
            None,
            "Never",
            "Never",
            variants=variants,
            full=full,
        )
        for n in range(QUEUES)
    )
    return BenchPlan(
        made,
        tuple(
            PlannedWorkload(0.0, runtime, f"families-{n}", n % QUEUES, "family", 1000, 0)
            for n in range(count)
        ),
    )


async def measured_cost(count: int, variants: int, full: int, kept: int, nats: str | None) -> Cost:
    """What one family costs. Raises SetupError."""
    what = bench_plan(count, variants, full)
    told: Counter[str] = Counter()

    def hear(subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        told[subject.split(b".", 3)[2].decode()] += 1

    def hear_submitted(subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        told["variants"] += b"-variant-" in subject

    async with system(nats) as (url, access, find):
        bus = await Bus.connect(url, name="admit-bench", access=access)
        try:
            for word in DECISIONS:
                await bus.nc.listen(f"admit.workload.{word}.>", hear)
            await bus.nc.listen("admit.workload.submitted.>", hear_submitted)
            report, outcome = await play(bus, what, find)
        finally:
            await bus.close()
    if report.trouble:
        raise SetupError(report.trouble)
    if variants and told["variants"] < variants * count:
        made = told["variants"]
        raise SetupError(f"{made} variants were made for {count} families: is the gate on?")
    took = max(outcome.admitted_at) - min(outcome.created_at)
    uses = ", ".join(f"{use.name} {use.cpu_seconds:.1f} s" for use in report.processes)
    each = "families" if variants else "regular workloads"
    per_second = count / took
    return Cost(
        per_second=per_second,
        cpu_ms=report.cpu_ms_per_workload,
        messages=report.persisted_messages_per_second * report.wall_seconds / count,
        decisions=sum(told[word] for word in DECISIONS) / count,
        bytes_kept=await bytes_per_admitted(kept, variants, full) if kept and nats is None else 0.0,
        told=(
            f"{count} {each}: all admitted after {took:.1f} s, {per_second:.0f} a second; all "
            f"ended after {report.wall_seconds:.1f} s; {uses}, "
            f"the load {report.load_generator.cpu_seconds:.1f} s; "
            f"{report.peak_memory_bytes >> 20} MiB at the peak"
        ),
    )


async def bytes_per_admitted(count: int, variants: int, full: int) -> float:
    """Bytes that the services' process grows by for each that is admitted and runs on."""
    what = bench_plan(count + WARM, variants, full, FOR_EVER)
    async with system(None) as (url, access, find):
        bus = await Bus.connect(url, name="admit-bench", access=access)
        try:
            await generator.create(bus, what)
            publisher = Publisher(bus)
            publishing = asyncio.create_task(publisher.run())
            jobs = Jobs(publisher)
            await bus.nc.listen("admit.workload.admitted.>", jobs.hear)
            sizes = []
            for begin, end in ((0, WARM), (WARM, WARM + count)):
                await _submit(publisher, what, begin, end)
                await jobs.reach(end)
                await until_settled(bus, publisher.sequence)
                await asyncio.sleep(SETTLE_SECONDS)
                services, *_ = find()
                sizes.append(services.memory_info().rss)
            publishing.cancel()
            return (sizes[1] - sizes[0]) / count
        finally:
            await bus.close()


async def _submit(publisher: Publisher, what: BenchPlan, begin: int, end: int) -> None:
    for workload in what.workloads[begin:end]:
        if publisher.in_flight > IN_FLIGHT_MAX:
            await publisher.until_acknowledged()
        queue = what.queues[workload.queue].name
        subject = f"admit.workload.submitted.default.{workload.name}"
        publisher.publish(subject, submission(workload, "default", queue))
    await publisher.until_acknowledged(30.0)


def comparison_lines(family: Cost, regular: Cost, variants: int) -> list[str]:
    """Two runs side by side, a line each."""
    lines = [
        family.told,
        regular.told,
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


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--families", type=int, default=10_000)
    parser.add_argument("--variants", type=int, default=3, help="of each family; at most 16")
    parser.add_argument("--full", type=int, default=0, help="flavors without quota, the best ones")
    parser.add_argument("--kept", type=int, default=2000, help="kept running, for memory; 0: none")
    parser.add_argument("--nats", default=None, help="a running system instead of an embedded one")
    found = parser.parse_args()
    if found.families < 1 or not 1 <= found.variants <= 16:
        raise SetupError("--families must be at least 1, --variants 1 to 16")
    if not 0 <= found.full < found.variants or found.kept < 0:
        raise SetupError("--full must leave a flavor, and --kept be at least 0")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        of = found.families, found.kept, found.nats
        regular = runner.run(measured_cost(of[0], 0, 0, *of[1:]))
        family = runner.run(measured_cost(of[0], found.variants, found.full, *of[1:]))
    return comparison_lines(family, regular, found.variants)


if __name__ == "__main__":
    main_of(command)
