"""`admit bench`: one generator file against a live system. Reports the figures of the run, as JSON
and as text.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec
import psutil

from admittance.bench import generator as queues
from admittance.bench import system as measure
from admittance.bench.connection import connected, messages_stored
from admittance.bench.generator import BenchPlan, PlannedWorkload, bench_plan, read
from admittance.bench.load import Outcome, execute
from admittance.bench.system import ProcessUse, embedded
from admittance.client.requests.link import Link
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.process.progress import NO_STEPS, Steps


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and percentiles of delays, in milliseconds."""

    mean: float
    p50: float
    p99: float


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The JSON of `admit bench`, which other programs read.

    The run is complete if ``finished`` equals ``workloads`` and ``trouble`` is empty.
    ``cpuMsPerWorkload`` leaves out the CPU of ``loadGenerator``, the process of `admit bench`.
    """

    wall_seconds: float
    lower_bound_seconds: float
    workloads: int
    finished: int
    workloads_per_second: float
    cluster_queue_usage_percent: dict[str, float]
    useful_usage_percent: float
    time_to_admission_ms: dict[str, Delay]
    first_admission_seconds: float = 0.0
    """From the first submission to the first admission."""
    evictions: int
    cpu_ms_per_workload: float
    cpu_seconds: float
    peak_memory_bytes: int
    bus_raw_publish_per_second: float
    persisted_messages_per_second: float
    processes: tuple[ProcessUse, ...]
    load_generator: ProcessUse
    trouble: str = ""

    @property
    def complete(self) -> bool:
        """Whether all workloads finished."""
        return self.finished == self.workloads and not self.trouble

    @property
    def cpu_of_processes(self) -> str:
        """The CPU time of each process as text."""
        return ", ".join(f"{use.name} {use.cpu_seconds:.1f} s" for use in self.processes)


def report(
    plan: BenchPlan,
    outcome: Outcome,
    *,
    processes: Sequence[ProcessUse],
    peak_memory_bytes: int,
    load_generator: ProcessUse,
    raw_per_second: float,
    persisted: int,
) -> Report:
    """The figures of a run, computed from its ``outcome`` and from ``persisted``, the number of
    messages that it stored.
    """
    wall = outcome.wall_seconds
    finished = len(outcome.finished)
    cpu = sum(use.cpu_seconds for use in processes)
    return Report(
        wall_seconds=round(wall, 3),
        lower_bound_seconds=round(lower_bound_seconds(plan), 3),
        workloads=len(plan.workloads),
        finished=finished,
        workloads_per_second=round(finished / wall, 1),
        cluster_queue_usage_percent=usage_by_class(plan, outcome.usage),
        useful_usage_percent=round(useful_usage_percent(plan, outcome.finished, wall), 1),
        time_to_admission_ms=delays_by_class(plan, outcome),
        first_admission_seconds=first_admission(outcome),
        evictions=outcome.evictions,
        cpu_ms_per_workload=round(1000 * cpu / max(1, finished), 3),
        cpu_seconds=round(cpu, 2),
        peak_memory_bytes=peak_memory_bytes,
        bus_raw_publish_per_second=round(raw_per_second),
        persisted_messages_per_second=round(persisted / wall),
        processes=tuple(processes),
        load_generator=load_generator,
        trouble=outcome.trouble,
    )


def usage_by_class(plan: BenchPlan, samples: Sequence[dict[str, float]]) -> dict[str, float]:
    """For each class of ClusterQueues: the mean used share of the nominal quota in percent."""
    shares: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        for queue in plan.queues:
            shares[queue.class_name].append(sample.get(queue.name, 0.0))
    return {name: round(100 * fmean(each), 1) for name, each in sorted(shares.items())}


def delays_by_class(plan: BenchPlan, outcome: Outcome) -> dict[str, Delay]:
    """For each class of workloads: the time from the creation to the first admission."""
    delays: dict[str, list[float]] = defaultdict(list)
    moments = zip(plan.workloads, outcome.created_at, outcome.admitted_at, strict=True)
    for workload, created, admitted in moments:
        if admitted >= 0:
            delays[workload.class_name].append(1000 * (admitted - created))
    return {name: delay(each) for name, each in sorted(delays.items())}


def first_admission(outcome: Outcome) -> float:
    """Seconds from the first submission to the first admission; 0.0 without any admission."""
    admitted = min((moment for moment in outcome.admitted_at if moment >= 0), default=None)
    return 0.0 if admitted is None else round(admitted - min(outcome.created_at), 3)


def delay(milliseconds: list[float]) -> Delay:
    """Mean and percentiles (nearest rank) of at least one value."""
    ranked = sorted(milliseconds)

    def rank(share: float) -> float:
        return round(ranked[min(len(ranked) - 1, int(share * len(ranked)))], 2)

    return Delay(mean=round(fmean(ranked), 2), p50=rank(0.50), p99=rank(0.99))


def lines_of(report: Report) -> list[str]:
    """The report as text."""
    mib = 1 << 20
    lines = [
        f"{report.finished} of {report.workloads} workloads finished in "
        f"{report.wall_seconds:.1f} s ({report.workloads_per_second:.0f} a second); "
        f"quota and creation alone allow {report.lower_bound_seconds:.1f} s",
        f"useful usage of the quota      {report.useful_usage_percent:.1f} %",
    ]
    lines += [
        f"usage of ClusterQueues         {percent:.1f} %   class {name}"
        for name, percent in report.cluster_queue_usage_percent.items()
    ]
    lines += [
        f"time to admission              mean {d.mean:.0f} ms, p50 {d.p50:.0f}, p99 {d.p99:.0f}"
        f"   class {name}"
        for name, d in report.time_to_admission_ms.items()
    ]
    lines += [
        f"first admission                {report.first_admission_seconds:.1f} s after the first "
        "submission",
        f"evictions                      {report.evictions}",
        f"CPU                            {report.cpu_ms_per_workload:.2f} ms a workload",
        f"peak memory                    {report.peak_memory_bytes / mib:.0f} MiB",
        f"messages stored                {report.persisted_messages_per_second:.0f} a second; "
        f"the server alone takes {report.bus_raw_publish_per_second:.0f}",
    ]
    lines += [
        f"  {use.name:<28} {use.cpu_seconds:7.1f} s CPU {use.peak_memory_bytes / mib:7.0f} MiB"
        for use in (*report.processes, report.load_generator)
    ]
    if report.trouble:
        lines.append(f"INCOMPLETE: {report.trouble}")
    return lines


def lower_bound_seconds(plan: BenchPlan) -> float:
    """Seconds that a scheduler without any delay would need at least.

    The result is the greatest of these sums: for any workload, its creation time plus its runtime;
    for any cohort or ClusterQueue and any moment, that moment plus the time that the full quota
    needs for all work created later. A queue may use its own quota and what it may borrow, at most
    the quota of its cohort.
    """
    bound = max((w.at + w.runtime for w in plan.workloads), default=0.0)
    by_queue: dict[int, list[PlannedWorkload]] = defaultdict(list)
    by_cohort: dict[str, list[PlannedWorkload]] = defaultdict(list)
    quota: dict[str, int] = defaultdict(int)
    for queue in plan.queues:
        quota[queue.cohort] += queue.nominal
    for workload in plan.workloads:
        by_queue[workload.queue].append(workload)
        by_cohort[plan.queues[workload.queue].cohort].append(workload)
    for cohort, workloads in by_cohort.items():
        bound = max(bound, _drained(workloads, quota[cohort]))
    for index, workloads in by_queue.items():
        queue = plan.queues[index]
        most = quota[queue.cohort]
        if queue.borrowing is not None:
            most = min(most, queue.nominal + queue.borrowing)
        bound = max(bound, _drained(workloads, most))
    return bound


def _drained(workloads: Iterable[PlannedWorkload], quota: int) -> float:
    """The earliest moment at which the quota can have done the work of these workloads."""
    if quota <= 0:
        return float("inf")
    bound = 0.0
    left = 0.0
    for workload in sorted(workloads, reverse=True):
        left += workload.runtime * workload.request
        bound = max(bound, workload.at + left / quota)
    return bound


def useful_usage_percent(plan: BenchPlan, finished: Iterable[int], wall_seconds: float) -> float:
    """Share of the quota that finished workloads used: the sum of runtime times request over quota
    times wall time. ``finished``: the indices of the finished workloads in the plan.
    """
    work = sum(plan.workloads[i].runtime * plan.workloads[i].request for i in finished)
    quota = sum(queue.nominal for queue in plan.queues)
    return 100 * work / (quota * wall_seconds) if quota and wall_seconds else 0.0


Find = Callable[[], Iterable[psutil.Process]]


def run(
    generator: Path,
    *,
    json_path: Path | None = None,
    scale: float = 1.0,
    distinct: bool = False,
    nats_url: str | None = None,
    access: ConnectionOptions = NO_OPTIONS,
    as_json: bool = False,
) -> int:
    """Plays a generator file, prints the figures and writes them to json_path; returns 0 if all
    workloads finished.

    Without nats_url an embedded system is started as a child process on a temporary data folder.
    With nats_url, the measured processes are those of this machine that are connected to that
    server. Raises SetupError if the file is wrong or the system or the server does not work.
    """
    what = bench_plan(read(generator), scale=scale, distinct=distinct)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        report, _ = runner.run(outcome_of(what, nats_url, access))
    show(report, lines_of(report), json_path=json_path, as_json=as_json)
    return 0 if report.complete else 1


def show(figures: object, lines: Sequence[str], *, json_path: Path | None, as_json: bool) -> None:
    """Prints figures, as JSON or as ``lines``, and writes their JSON to json_path. Raises
    OSError."""
    text = msgspec.json.format(msgspec.json.encode(figures), indent=2).decode()
    if json_path is not None:
        json_path.write_text(f"{text}\n")
    sys.stdout.write("\n".join([*([text] if as_json else lines), ""]))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Returns the factory of a fast event loop, which leaves the cores to the system."""
    import uvloop

    return uvloop.new_event_loop


async def outcome_of(
    what: BenchPlan, nats_url: str | None, access: ConnectionOptions = NO_OPTIONS
) -> tuple[Report, Outcome]:
    """The figures of one plan, and the outcome that they are computed from."""
    with Steps("bench") as steps:
        steps.begin("starts the system")
        async with measured_system(nats_url, access) as (link, find):
            return await play(link, what, find, steps)


async def play(
    link: Link, what: BenchPlan, find: Find, steps: Steps = NO_STEPS
) -> tuple[Report, Outcome]:
    """Creates the queues, executes the plan, and measures the processes that ``find`` returns."""
    bus = link.bus
    await queues.create(link, what)
    meter = measure.Meter(find)
    own = measure.Meter(lambda: [psutil.Process()])
    before = await messages_stored(bus)
    meter.start()
    own.start()
    outcome = await execute(link, what, steps)
    processes = meter.stop()
    load_generator = own.stop()[0]
    persisted = await messages_stored(bus) - before
    steps.begin("measures the server")
    # The rate of plain publications is measured after the run on the same warm server, so that the
    # measurement does not disturb the run.
    raw_per_second = await publish_per_second(bus)
    made = report(
        what,
        outcome,
        processes=processes,
        peak_memory_bytes=meter.peak_memory_bytes,
        load_generator=msgspec.structs.replace(load_generator, name="(load generator)"),
        raw_per_second=raw_per_second,
        persisted=persisted,
    )
    return made, outcome


@asynccontextmanager
async def measured_system(
    nats_url: str | None, access: ConnectionOptions = NO_OPTIONS
) -> AsyncIterator[tuple[Link, Find]]:
    """A connection to the system under test, and its processes; without ``nats_url`` an embedded
    system is started.
    """
    if nats_url is not None:
        processes = measure.connected(nats_url)
        async with connected(nats_url, access) as link:
            yield link, lambda: processes
        return
    async with (
        embedded("--no-runner", "--no-web") as child,
        connected(child.url, child.access) as link,
    ):
        yield link, lambda: measure.family(child.pid)


STREAM: Final = "ADMITTANCE_BENCH_RAW"
SUBJECT: Final = "admittance_bench.raw"
MESSAGES: Final = 20_000
BYTES: Final = 600
"""Bytes of one message in the measurement of publications, about the size of a fact."""


async def publish_per_second(bus: Bus) -> float:
    """How many publications a second the server stores in a temporary file stream if no publication
    waits for the acknowledgement of another.
    """
    await bus.api(
        f"STREAM.CREATE.{STREAM}",
        {"name": STREAM, "subjects": [SUBJECT], "retention": "limits", "storage": "file"},
    )
    try:
        messages = [Outgoing(SUBJECT, b"x" * BYTES)] * 1000
        started = clock.monotonic()
        for _ in range(0, MESSAGES, len(messages)):
            await bus.publish_all(messages)
        return MESSAGES / (clock.monotonic() - started)
    finally:
        await bus.api(f"STREAM.DELETE.{STREAM}")
