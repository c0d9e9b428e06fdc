"""Refusals: why a workload waits, as a reason, a sentence and numbers, and when the refusal is
published.

A workload is refused after it has been parked, or has blocked its queue as the head, for
`Config.refusal_delay` without interruption. In a busy queue parked workloads are woken often, and a
refusal without `Config.refusal_delay` would be outdated before it is stored. If the workload's
status already has the reason of a refusal, the refusal is not published."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from msgspec.structs import replace

from admittance.api.fields.units import render
from admittance.events import reasons
from admittance.events.facts import Refused
from admittance.events.shapes import Refusal, Scan, Shortfall
from admittance.quota.cell import plus
from admittance.scheduling.cycle.flavor_assigner import examine
from admittance.scheduling.state.assignment import NO_FIT, Assignment, Cursor, Obstacle
from admittance.scheduling.state.equivalence import (
    BlockedHead,
    EquivalenceClass,
    ScanRecord,
    forget_reason,
)
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.held.shared_quota import FamilyQuota
from admittance.scheduling.state.queue import schedule_class_refusal
from admittance.scheduling.state.requests import RequestShape
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo, family_quota_of

SEVERITY: Final = {
    reasons.TOPOLOGY_PLACEMENT_FAILED: 0,
    reasons.WAITING_FOR_QUOTA: 1,
    reasons.EXCEEDS_MAX_QUOTA: 2,
    reasons.CONFLICTING_ADMISSION_CHECKS: 3,
    reasons.NO_MATCHING_FLAVOR: 4,
}
"""Reasons why a flavor does not fit; a more severe reason has a higher number. Source:
`docs/spec/scheduling.md#5.5`."""

NO_CLUSTER_QUEUE: Final = frozenset({reasons.NOT_FOUND, reasons.CLUSTER_QUEUE_DOES_NOT_EXIST})
"""Reasons why a LocalQueue without a ClusterQueue is inactive. The workload-controller stores
workloads of such a LocalQueue as Misconfigured."""

WITH_FEWEST: Final = ", with its fewest pods"
"""The end of a refusal's message if the refusal is about the fewest pods of a workload."""

CLAUSES_MAX: Final = 8
"""How many obstacles of one pod set the message of a refusal names."""

IN_FLIGHT_MAX: Final = 256
"""How many refusals may be in flight. Refusals are not urgent, and more of them would delay urgent
decisions."""


# The words. ---------------------------------------------------------------------------------


def workload_reason(activity_reason: str) -> str:
    """Returns the reason why workloads wait in a LocalQueue that is inactive for
    ``activity_reason``."""
    return reasons.MISCONFIGURED if activity_reason in NO_CLUSTER_QUEUE else activity_reason


def refusal_of(assignment: Assignment, among: frozenset[str] | None = None) -> Refusal:
    """Returns the refusal that says why no flavors were assigned. ``among``: the flavors to
    mention; None: all flavors.

    Of several reasons against one flavor the most severe counts. Among the flavors of the failed
    scan the flavor with the least severe reason counts, since that flavor is the closest to
    fitting. For a workload that may start with fewer pods the fewest pods count."""
    if assignment.fewest is not None:
        refusal = refusal_of(assignment.fewest, among)
        return replace(refusal, message=f"{refusal.message}{WITH_FEWEST}")
    obstacles = _among(assignment.obstacles, among) or assignment.obstacles
    if assignment.mode != NO_FIT:
        return Refusal(
            reason=reasons.WAITING_FOR_QUOTA,
            message=obstacles_message(obstacles),
            shortfalls=tuple(shortfall(obstacle) for obstacle in obstacles),
        )
    every = assignment.obstacles[assignment.failed_from :]
    failed = _among(every, among) or every
    by_flavor: dict[str, str] = {}
    for obstacle in failed:
        other = by_flavor.get(obstacle.flavor)
        if other is None or SEVERITY[obstacle.reason] > SEVERITY[other]:
            by_flavor[obstacle.flavor] = obstacle.reason
    reason = min(by_flavor.values(), key=SEVERITY.__getitem__, default=reasons.NO_MATCHING_FLAVOR)
    return Refusal(
        reason=reason,
        message=obstacles_message(failed),
        shortfalls=tuple(shortfall(obstacle) for obstacle in failed),
    )


def _among(obstacles: Sequence[Obstacle], flavors: frozenset[str] | None) -> Sequence[Obstacle]:
    """Returns the obstacles that concern the given flavors."""
    if flavors is None:
        return obstacles
    return [obstacle for obstacle in obstacles if not obstacle.flavor or obstacle.flavor in flavors]


def complete(
    refusal: Refusal,
    plan: FlavorPlan,
    shape: RequestShape,
    *,
    own: bool = False,
    held: FamilyQuota[WorkloadInfo] | None = None,
) -> Refusal:
    """Returns the refusal with the shortfalls of all flavors, the flavors of the scan first.

    ``own``: include only flavors that the shape allows. ``held``: quota that the family of a
    variant holds."""
    known = {
        (shortfall.pod_set, shortfall.flavor, shortfall.resource)
        for shortfall in refusal.shortfalls
    }
    more = [
        shortfall(obstacle)
        for one in examine(plan, shape, overlap=held)
        for obstacle in _among(one.obstacles, shape.allowed if own else None)
        if (obstacle.pod_set, obstacle.flavor, obstacle.resource) not in known
    ]
    if not more:
        return refusal
    return replace(refusal, shortfalls=(*refusal.shortfalls, *more))


def with_all_flavors(workload: WorkloadInfo, refusal: Refusal) -> Refusal:
    """Returns the refusal with the present shortfalls of the flavors that the scan did not try."""
    plan = workload.queue.plan if workload.queue is not None else None
    if plan is None or workload.shape is None:
        return refusal
    if refusal.reason in (reasons.WAITING_FOR_PROMISED_START, reasons.WAITING_FOR_USER_LIMIT):
        return refusal  # A flavor may have room.
    held = family_quota_of(workload)
    shape = workload.shape
    if refusal.message.endswith(WITH_FEWEST):
        shape = shape.fewest()
    return complete(refusal, plan, shape, own=workload.is_variant, held=held)


def obstacles_message(obstacles: Sequence[Obstacle]) -> str:
    """Returns the obstacles as a sentence: ``couldn't assign flavors to pod set main: cpu: 500m
    short in flavor spot (1 asked, 500m free)``."""
    by_pod_set: dict[str, list[str]] = {}
    for obstacle in obstacles:
        by_pod_set.setdefault(obstacle.pod_set, []).append(obstacle_message(obstacle))
    return "; ".join(
        f"couldn't assign flavors to pod set {name}: {_listed(list(dict.fromkeys(clauses)))}"
        for name, clauses in by_pod_set.items()
    )


def _listed(clauses: Sequence[str]) -> str:
    """Joins the first clauses of a refusal's message, and says how many further clauses there are.
    The shortfalls of a refusal contain all obstacles."""
    if len(clauses) <= CLAUSES_MAX:
        return ", ".join(clauses)
    return f"{', '.join(clauses[:CLAUSES_MAX])}, and {len(clauses) - CLAUSES_MAX} more"


def obstacle_message(obstacle: Obstacle) -> str:
    """Returns one obstacle of a scan of flavors in words, with its numbers."""
    if not obstacle.resource or obstacle.message:
        return obstacle.message
    resource, flavor = obstacle.resource, obstacle.flavor
    wanted = plus(obstacle.taken, obstacle.requested)
    if obstacle.reason == reasons.EXCEEDS_MAX_QUOTA:
        asked = render(resource, obstacle.requested)
        if obstacle.taken:
            asked = f"previously considered {render(resource, obstacle.taken)} + {asked}"
        most = render(resource, obstacle.available)
        return f"{resource}: {asked} > {most}, the most that flavor {flavor} can give"
    lacking, asked, there = (
        render(resource, much) for much in (wanted - obstacle.available, wanted, obstacle.available)
    )
    return f"{resource}: {lacking} short in flavor {flavor} ({asked} asked, {there} free)"


def shortfall(obstacle: Obstacle) -> Shortfall:
    """Returns one obstacle of a scan of flavors as a `Shortfall`, in numbers."""
    return Shortfall(
        pod_set=obstacle.pod_set,
        flavor=obstacle.flavor,
        resource=obstacle.resource,
        requested=plus(obstacle.taken, obstacle.requested),
        available=obstacle.available,
        reason=obstacle.reason,
        message=obstacle_message(obstacle),
    )


def recorded_cursor(cursor: Cursor | None) -> tuple[dict[int, int], ...]:
    """Returns the cursor of a scan of flavors in the form in which decisions on the log have it."""
    return tuple([dict(flavors) for flavors in cursor]) if cursor is not None else ()


# The time. ----------------------------------------------------------------------------------


def due_refusals(state: SchedulerState, now: datetime) -> list[Refused]:
    """Returns the refusals to publish now, and marks them as in flight. Refusals that would exceed
    `IN_FLIGHT_MAX` refusals in flight stay due and are returned later."""
    refused = _urgent(state, now) if state.urgent_refusals else []
    queued = state.refusal_queue
    latest = now - state.config.refusal_delay
    while queued.items and queued.items[0][0] <= latest:
        room = min(
            state.config.refusals_per_call - len(refused),
            IN_FLIGHT_MAX - len(state.refusals_in_flight),
        )
        if room <= 0:
            break
        item = queued.pop()
        if isinstance(item, EquivalenceClass):
            workloads = list(islice(item.unrefused(latest), room))
            if workloads:
                state.at_work = "refuse", workloads[0]
            refusal = _class_refusal(item) if workloads else None
            for workload in workloads:
                assert refusal is not None
                forget_reason(workload)
                refused += _refused(state, workload, refusal, now, item.scan)
            first = item.first()
            queue = first[3].queue if first is not None else None
            # Only the leader of a domain publishes refusals, so classes in domains of other leaders
            # are not scheduled. A domain that this scheduler starts to lead is flushed.
            if queue is not None and queue.domain is not None and queue.domain.owned:
                schedule_class_refusal(queue, item)
        elif _is_unrefused(item, latest):
            refused += _refused(state, item, _own_refusal(item), now)
        elif (blocked := _due_blocked_head(item, latest)) is not None:
            refused += _refused(state, item, blocked[0], now, blocked[1])
    return refused


def _urgent(state: SchedulerState, now: datetime) -> list[Refused]:
    """Returns the refusals that do not wait for `Config.refusal_delay`, because a variant's
    preemption gate opens only after these refusals."""
    refused: list[Refused] = []
    while state.urgent_refusals:
        workload = next(iter(state.urgent_refusals))
        del state.urgent_refusals[workload]
        if _is_unrefused(workload, now):
            refused += _refused(state, workload, _own_refusal(workload), now)
            continue
        cls = workload.cls
        if cls is None or cls.parked is None or workload.status_reason == cls.parked.reason:
            continue
        if not workload.in_flight:
            forget_reason(workload)
            refused += _refused(state, workload, _class_refusal(cls), now, cls.scan)
    return refused


def _own_refusal(workload: WorkloadInfo) -> Refusal:
    """Returns the refusal that says why a workload is parked alone."""
    assert workload.inadmissible is not None
    return Refusal(reason=workload.inadmissible.reason, message=workload.inadmissible.message)


def _class_refusal(cls: EquivalenceClass[WorkloadInfo]) -> Refusal:
    """Returns the refusal that says why the class is parked, with the numbers of every flavor. The
    numbers are computed once for all workloads of the class, and only when a refusal is published.
    """
    first = cls.first()
    assert cls.parked is not None and first is not None
    return with_all_flavors(first[3], cls.parked)


def _is_unrefused(workload: WorkloadInfo, latest: datetime) -> bool:
    """Returns whether the workload was parked alone before ``latest``, for a reason that its status
    does not have."""
    why = workload.inadmissible
    if why is None or why.is_silent or workload.status_reason == why.reason:
        return False
    return workload.parked_since is not None and workload.parked_since <= latest


def _refused(
    state: SchedulerState,
    workload: WorkloadInfo,
    refusal: Refusal,
    now: datetime,
    scanned: ScanRecord[WorkloadInfo] | None = None,
) -> tuple[Refused, ...]:
    domain = workload.queue.domain if workload.queue is not None else None
    if workload.in_flight or domain is None or not domain.owned:
        return ()
    state.at_work = "refuse", workload
    state.set_in_flight(workload, domain, InFlight.REFUSED)
    state.refusals_in_flight[workload] = None
    fact = Refused(
        **state.decision_fields(workload, domain, now),
        refusal=refusal,
        scan=_scan(workload, scanned),
    )
    return (fact,)


def _scan(workload: WorkloadInfo, scanned: ScanRecord[WorkloadInfo] | None) -> Scan | None:
    """Returns the scan that parked the workload or its class, in the form in which it is published
    on the log; None: its stored state parked it."""
    if scanned is None:
        return workload.inadmissible.scan if workload.inadmissible is not None else None
    seen, at, first, cursor, recorded = scanned
    if recorded is not None:
        return recorded
    name = "" if first is workload else f"{first.key[0]}/{first.key[1]}"
    return Scan(cursor=recorded_cursor(cursor), seen=seen, at=at, head=name)


def next_refusal_at(state: SchedulerState) -> datetime | None:
    """Returns when the next refusal may be due; None: no refusal is scheduled, or too many are in
    flight."""
    items = state.refusal_queue.items
    if state.urgent_refusals:
        return state.now - state.config.refusal_delay
    if len(state.refusals_in_flight) >= IN_FLIGHT_MAX:
        return None
    return items[0][0] + state.config.refusal_delay if items else None


# Heads of StrictFIFO queues. ----------------------------------------------------------------


def block_head(
    queue: Queue,
    workload: WorkloadInfo,
    assignment: Assignment,
    scanned: ScanRecord[WorkloadInfo],
    refusal: Refusal | None = None,
) -> None:
    """Records that the head got no quota and blocks its queue. ``refusal``: why the head got no
    quota, unless the reason follows from its assignment."""
    now = queue.blocked_head
    if now is None or now.workload is not workload or now.assignment is not assignment:
        before = now
        now = BlockedHead(
            workload, assignment, scanned, refusal or refusal_of(assignment), scanned.at
        )
        if before is not None and before.workload is workload:
            now.is_scheduled = before.is_scheduled
            if before.refusal.reason == now.refusal.reason:
                now.since = before.since
        queue.blocked_head = now
    if not now.is_scheduled and workload.status_reason != now.refusal.reason:
        now.is_scheduled = True
        queue.refusal_queue.put(now.since, workload)


def blocked_head_of(workload: WorkloadInfo) -> BlockedHead[WorkloadInfo] | None:
    """Returns the `BlockedHead` that says that the workload blocks its queue; None: the workload is
    not the head, or does not block the queue."""
    queue = workload.queue
    if queue is None or queue.blocked_head is None or queue.blocked_head.workload is not workload:
        return None
    return queue.blocked_head if queue.head() is workload else None


def _due_blocked_head(
    workload: WorkloadInfo, latest: datetime
) -> tuple[Refusal, ScanRecord[WorkloadInfo]] | None:
    """Returns the refusal of a head that blocks its queue since ``latest`` or longer, with the
    numbers of every flavor; None: the status of the head has that reason already, or the head does
    not block the queue any more."""
    blocked = workload.queue.blocked_head if workload.queue is not None else None
    if blocked is not None and blocked.workload is workload:
        blocked.is_scheduled = False
    head = blocked_head_of(workload)
    if head is None or head.since > latest or workload.status_reason == head.refusal.reason:
        return None
    return with_all_flavors(workload, head.refusal), head.scan
