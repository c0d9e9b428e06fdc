"""Single workloads that held quota, from the facts `QuotaReleased` of the log: when each was
submitted, waited and ran, how it ended, and what it used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from admittance.api.fields.usage_units import is_gpu
from admittance.events.reader import BROKEN, Unreadable, reason_of
from admittance.usage.runs import Released, Run, run_from

State: TypeAlias = Literal["succeeded", "failed", "evicted"]
STATES: Final[tuple[State, ...]] = get_args(State)
"""How the last run of a workload ended; ``evicted``: its quota was taken, or given back without an
end of its job."""
Amount: TypeAlias = int | float


class PastRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One admission that has ended, or a reservation that ended before the admission
    (``admitted`` false). ``seconds``: how long it held quota. ``preempted_by``: the workload
    (``namespace/name``) that took the quota, ``preemptor_submitted_by`` the user of that workload;
    "": none, or not known. ``resource_seconds``: held amounts times seconds: cores for cpu, and
    bytes for memory."""

    since: datetime
    until: datetime
    wait_seconds: int
    seconds: int
    state: State
    reason: str
    admitted: bool = True
    exit_code: int | None = None
    flavors: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    preempted_by: str = ""
    preemptor_submitted_by: str = ""
    resource_seconds: dict[str, Amount] = msgspec.field(default_factory=dict)


class PastWorkload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A workload with its runs that ended in a span of time, the oldest first. ``state``,
    ``reason``, ``exit_code``, ``flavors``, ``machines``, ``queue`` and ``ended`` are those of the
    last run; ``wait_seconds``, ``run_seconds`` and used amounts are sums of all these runs.
    ``evictions``: those of the runs that lost their quota."""

    namespace: str
    name: str
    uid: str
    queue: str
    cluster_queue: str
    user: str
    submitted: datetime
    ended: datetime
    wait_seconds: int
    run_seconds: int
    state: State
    reason: str
    exit_code: int | None
    flavors: tuple[str, ...]
    machines: tuple[str, ...]
    cpu_seconds: Amount
    gpu_seconds: Amount
    resource_seconds: dict[str, Amount]
    labels: dict[str, str]
    evictions: tuple[PastRun, ...]
    runs: tuple[PastRun, ...]


class Report(Released, kw_only=True, rename="camel", gc=False):
    """The part of `QuotaReleased` that a history has."""

    name: str = ""
    exit_code: int | None = None
    submitted_at: datetime | None = None
    machines: tuple[str, ...] = ()
    preempted_by: str = ""
    preemptor_submitted_by: str = ""


class Reported(NamedTuple):
    """A fact as it was reported, and as it is summed."""

    report: Report
    run: Run


_decode: Final = msgspec.json.Decoder(Report).decode


def reported(data: bytes, sequence: int) -> Reported:
    """The report in a fact `QuotaReleased` on the log. Raises Unreadable."""
    try:
        report = _decode(data)
        return Reported(report, run_from(report, sequence))
    except BROKEN as error:
        raise Unreadable(f"the payload is not a valid QuotaReleased: {reason_of(error)}") from None


class Chosen(NamedTuple):
    """What a history has. ``user`` "", ``queue`` "", no ``states``: of all. ``queue``: a
    LocalQueue; if no run was in one of that name, a ClusterQueue. ``since``, ``until``: the runs
    that ended from the first time on and before the second; None: until now."""

    since: datetime
    until: datetime | None = None
    user: str = ""
    queue: str = ""
    states: Collection[str] = ()


def past_workloads(facts: Iterable[Reported], chosen: Chosen) -> list[PastWorkload]:
    """The workloads, in the order in which they ended. ``facts``: in the order of the log; of two
    reports about one admission the later one counts."""
    newest: dict[tuple[str, int], Reported] = {}
    for fact in facts:
        newest.pop(fact.run.key, None)
        newest[fact.run.key] = fact
    kept = [fact for fact in newest.values() if _is_chosen(fact.report, chosen)]
    if chosen.queue:
        local = [fact for fact in kept if fact.report.queue == chosen.queue]
        kept = local or [fact for fact in kept if fact.run.cluster_queue == chosen.queue]
    runs: dict[str, list[Reported]] = {}
    for fact in kept:
        runs.setdefault(fact.run.uid, []).append(fact)
    rows = [_workload(sorted(each, key=lambda fact: fact.report.since)) for each in runs.values()]
    if chosen.states:
        rows = [row for row in rows if _has_state(row, chosen.states)]
    return sorted(rows, key=lambda row: row.ended)


def _is_chosen(report: Report, chosen: Chosen) -> bool:
    if chosen.user and report.submitted_by != chosen.user:
        return False
    return chosen.since <= report.until and (chosen.until is None or report.until < chosen.until)


def _has_state(row: PastWorkload, states: Collection[str]) -> bool:
    return row.state in states or ("evicted" in states and bool(row.evictions))


def _workload(facts: Sequence[Reported]) -> PastWorkload:
    report, last = facts[-1]
    runs = tuple(_past_run(fact) for fact in facts)
    used: dict[str, Amount] = {}
    for run in runs:
        for resource, amount in run.resource_seconds.items():
            used[resource] = round(used.get(resource, 0) + amount, 3)
    first = facts[0]
    submitted = first.report.submitted_at
    if submitted is None:
        # A version before this field: of the first run it is exact.
        submitted = datetime.fromtimestamp(first.run.since - first.run.waited_seconds, UTC)
    return PastWorkload(
        namespace=report.namespace,
        name=report.name,
        uid=report.uid,
        queue=report.queue,
        cluster_queue=last.cluster_queue,
        user=report.submitted_by,
        submitted=submitted,
        ended=report.until,
        wait_seconds=sum(run.wait_seconds for run in runs),
        run_seconds=sum(run.seconds for run in runs),
        state=runs[-1].state,
        reason=runs[-1].reason,
        exit_code=runs[-1].exit_code,
        flavors=runs[-1].flavors,
        machines=runs[-1].machines,
        cpu_seconds=used.get("cpu", 0),
        gpu_seconds=sum(amount for name, amount in used.items() if is_gpu(name)),
        resource_seconds=used,
        labels=report.labels,
        evictions=tuple(run for run in runs if run.state == "evicted"),
        runs=runs,
    )


_OUTCOMES: Final[dict[str, State]] = {"finished": "succeeded", "failed": "failed"}


def _past_run(fact: Reported) -> PastRun:
    report, run = fact
    seconds = run.until - run.since
    used: dict[str, Amount] = {}
    for _, resource, booked in run.amounts:
        amount: Amount = booked * seconds
        if resource == "cpu":
            amount = amount // 1000 if amount % 1000 == 0 else amount / 1000
        used[resource] = used.get(resource, 0) + amount
    state = _OUTCOMES.get(run.outcome, "evicted")
    return PastRun(
        since=report.since,
        until=report.until,
        wait_seconds=run.waited_seconds,
        seconds=seconds,
        state=state,
        reason=report.reason,
        admitted=run.admitted,
        exit_code=0 if state == "succeeded" else report.exit_code,
        flavors=tuple(dict.fromkeys(flavor for flavor, _, _ in run.amounts)),
        machines=report.machines,
        preempted_by=report.preempted_by,
        preemptor_submitted_by=report.preemptor_submitted_by,
        resource_seconds=used,
    )


# Order. -----------------------------------------------------------------------------------------

SortKey: TypeAlias = Literal[
    "ended", "submitted", "waited", "ran", "cpu", "gpu", "evictions", "name", "user", "queue"
]
SORT_KEYS: Final[tuple[SortKey, ...]] = get_args(SortKey)
_SORTS: Final[dict[str, tuple[Callable[[PastWorkload], Any], bool]]] = {
    "ended": (attrgetter("ended"), False),
    "submitted": (attrgetter("submitted"), False),
    "waited": (attrgetter("wait_seconds"), True),
    "ran": (attrgetter("run_seconds"), True),
    "cpu": (attrgetter("cpu_seconds"), True),
    "gpu": (attrgetter("gpu_seconds"), True),
    "evictions": (lambda row: len(row.evictions), True),
    "name": (attrgetter("namespace", "name"), False),
    "user": (attrgetter("user"), False),
    "queue": (attrgetter("namespace", "queue"), False),
}
"""For each key what is compared, and whether the largest comes first."""


def sorted_workloads(rows: Iterable[PastWorkload], key: SortKey) -> list[PastWorkload]:
    """Times, oldest first; amounts and durations, largest first; names, in their order. Equal rows
    keep their order."""
    value, largest_first = _SORTS[key]
    return sorted(rows, key=value, reverse=largest_first)
