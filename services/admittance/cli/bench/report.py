"""The figures of one run, and how they are told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from admittance.cli.bench.generator import Plan, PlannedWorkload
from admittance.cli.bench.load import Outcome
from admittance.cli.bench.system import ProcessUse


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds."""

    mean: float
    p50: float
    p99: float


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The JSON of `admit bench`; names and meanings are those of the public face.

    ``finished`` and ``trouble`` tell whether the run was whole. ``cpuMsPerWorkload`` leaves out
    ``loadGenerator``, which is this process.
    """

    wall_seconds: float
    lower_bound_seconds: float
    workloads: int
    finished: int
    workloads_per_second: float
    cluster_queue_usage_percent: dict[str, float]
    useful_usage_percent: float
    time_to_admission_ms: dict[str, Delay]
    evictions: int
    cpu_ms_per_workload: float
    cpu_seconds: float
    peak_memory_bytes: int
    bus_raw_publish_per_second: float
    persisted_messages_per_second: float
    processes: tuple[ProcessUse, ...]
    load_generator: ProcessUse
    trouble: str = ""


def report(
    plan: Plan,
    outcome: Outcome,
    *,
    processes: Sequence[ProcessUse],
    peak_memory_bytes: int,
    load_generator: ProcessUse,
    raw_per_second: float,
    persisted: int,
) -> Report:
    """The figures of a run that took ``outcome`` and stored ``persisted`` messages."""
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


def usage_by_class(plan: Plan, samples: Sequence[dict[str, float]]) -> dict[str, float]:
    """Per class of ClusterQueues: mean over the run of what was used of the nominal quota."""
    shares: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        for queue in plan.queues:
            shares[queue.class_name].append(sample.get(queue.name, 0.0))
    return {name: round(100 * fmean(found), 1) for name, found in sorted(shares.items())}


def delays_by_class(plan: Plan, outcome: Outcome) -> dict[str, Delay]:
    """Per class of workloads: from the creation to the first admission."""
    delays: dict[str, list[float]] = defaultdict(list)
    moments = zip(plan.workloads, outcome.created_at, outcome.admitted_at, strict=True)
    for workload, created, admitted in moments:
        if admitted >= 0:
            delays[workload.class_name].append(1000 * (admitted - created))
    return {name: delay(found) for name, found in sorted(delays.items())}


def delay(milliseconds: list[float]) -> Delay:
    """Mean and percentiles (nearest rank) of at least one value."""
    ranked = sorted(milliseconds)

    def rank(share: float) -> float:
        return round(ranked[min(len(ranked) - 1, int(share * len(ranked)))], 2)

    return Delay(mean=round(fmean(ranked), 2), p50=rank(0.50), p99=rank(0.99))


def write(found: Report, path: Path) -> None:
    """Writes the report as JSON. Raises OSError."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


def told(found: Report) -> list[str]:
    """The report for people, a line each."""
    mib = 1 << 20
    lines = [
        f"{found.finished} of {found.workloads} workloads finished in {found.wall_seconds:.1f} s "
        f"({found.workloads_per_second:.0f} a second); "
        f"quota and creation alone allow {found.lower_bound_seconds:.1f} s",
        f"useful usage of the quota      {found.useful_usage_percent:.1f} %",
    ]
    lines += [
        f"usage of ClusterQueues         {percent:.1f} %   class {name}"
        for name, percent in found.cluster_queue_usage_percent.items()
    ]
    lines += [
        f"time to admission              mean {d.mean:.0f} ms, p50 {d.p50:.0f}, p99 {d.p99:.0f}"
        f"   class {name}"
        for name, d in found.time_to_admission_ms.items()
    ]
    lines += [
        f"evictions                      {found.evictions}",
        f"CPU                            {found.cpu_ms_per_workload:.2f} ms a workload",
        f"memory at the peak             {found.peak_memory_bytes / mib:.0f} MiB",
        f"messages stored                {found.persisted_messages_per_second:.0f} a second; "
        f"the server alone takes {found.bus_raw_publish_per_second:.0f}",
    ]
    lines += [
        f"  {use.name:<28} {use.cpu_seconds:7.1f} s CPU {use.peak_memory_bytes / mib:7.0f} MiB"
        for use in (*found.processes, found.load_generator)
    ]
    if found.trouble:
        lines.append(f"NOT WHOLE: {found.trouble}")
    return lines


def lower_bound_seconds(plan: Plan) -> float:
    """Seconds that a perfect scheduler without any delay would need, at the least.

    The greatest of: a workload's creation and its runtime; and per cohort and per ClusterQueue,
    for any moment, that moment and the time in which the full quota does all work created from
    then on. A queue may use its own quota and what it may borrow, never more than its cohort has.
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
    """When the work is done at the earliest; workloads come in the order of their creation."""
    if quota <= 0:
        return float("inf")
    bound = 0.0
    left = 0.0
    for workload in sorted(workloads, reverse=True):
        left += workload.runtime * workload.request
        bound = max(bound, workload.at + left / quota)
    return bound


def useful_usage_percent(plan: Plan, finished: Iterable[int], wall_seconds: float) -> float:
    """How much of the quota did work that counted: runtime times request of the finished
    workloads (indices into the plan), of quota times wall time."""
    work = sum(plan.workloads[i].runtime * plan.workloads[i].request for i in finished)
    quota = sum(queue.nominal for queue in plan.queues)
    return 100 * work / (quota * wall_seconds) if quota and wall_seconds else 0.0
