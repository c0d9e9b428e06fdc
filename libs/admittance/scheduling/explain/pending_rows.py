"""Rows of workloads that wait, that hold quota without being admitted, and that are held."""

from __future__ import annotations

from typing import Final, NamedTuple

from admittance.api.fields.units import INT64_MAX
from admittance.events import reasons
from admittance.events.requests.queues import HoldingRow, PendingRow, RowShortfall
from admittance.events.shapes import Refusal, Shortfall
from admittance.scheduling.cycle.cycle import refusal_for
from admittance.scheduling.cycle.refusals import blocked_head_of, workload_reason
from admittance.scheduling.explain import family_summary
from admittance.scheduling.explain.queue_status import RUNS, is_parked
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import BACKOFF

PENDING: Final = "Pending"
RESERVED: Final = "QuotaReserved"
HELD: Final = "Held"
STATES: Final = (PENDING, RESERVED, HELD)
"""The states of the rows of a reply."""
SHORTFALLS_MAX: Final = 8
"""How many shortfalls a row has at most: a workload may have tried very many flavors."""


class Why(NamedTuple):
    """Why a workload waits. ``message`` "": it only has not been tried yet."""

    reason: str
    message: str
    shortfalls: tuple[Shortfall, ...] = ()


def refusal(state: SchedulerState, workload: WorkloadInfo) -> Refusal | None:
    """Returns why the workload is parked; None: it is not parked."""
    if workload.is_parent:
        return family_summary.family_refusal(state, workload)
    return refusal_for(workload)


def why(
    state: SchedulerState, queue: Queue, workload: WorkloadInfo, refused: Refusal | None
) -> Why:
    """Returns why the workload waits in the queue. ``refused``: its `refusal`."""
    said = refused
    if said is None and (standing := blocked_head_of(workload)) is not None:
        said = standing.refusal
    reason, message = (
        (said.reason, said.message) if said is not None else (reasons.PENDING_EVALUATION, "")
    )
    if not queue.activity.active:
        # The scheduler considers no workload of an inactive queue, so the inactivity of the queue
        # replaces older waiting reasons.
        reason, message = queue.activity.reason, queue.activity.message
    elif workload.requeue_at is not None and (
        workload.inadmissible is BACKOFF
        or (workload.is_parent and reason != BACKOFF.reason and not workload.is_due(state.now))
    ):
        reason = BACKOFF.reason
        message = f"Waits until {workload.requeue_at:%Y-%m-%dT%H:%M:%SZ} before it competes again"
    return Why(reason, message, said.shortfalls if said is not None else ())


def row(
    state: SchedulerState,
    queue: Queue,
    workload: WorkloadInfo,
    position: int,
    refused: Refusal | None,
) -> PendingRow:
    """Returns the row of one pending workload. A family has one row, for its parent."""
    because = why(state, queue, workload, refused)
    tried = because.shortfalls
    waits = workload.requeue_at is not None and workload.requeue_at > state.now
    return PendingRow(
        namespace=workload.key[0],
        name=workload.key[1],
        cluster_queue=queue.name,
        local_queue=workload.local_queue[1],
        position=position,
        priority=workload.priority,
        parked=is_parked(workload) if workload.is_parent else refused is not None,
        reason=because.reason,
        message=because.message or f"At position {position} of its ClusterQueue",
        created=workload.created_at,
        waiting_since=workload.queued_at,
        flavors=tuple(dict.fromkeys(shortfall.flavor for shortfall in tried if shortfall.flavor)),
        requests=requests_of(workload),
        user=workload.user,
        array=workload.array,
        shortfalls=_shortfalls(tried),
        requeue_at=workload.requeue_at if waits else None,
    )


def _shortfalls(tried: tuple[Shortfall, ...]) -> tuple[RowShortfall, ...]:
    """Returns what was missing, once for all pod sets that lacked the same."""
    missing = dict.fromkeys(
        RowShortfall(
            flavor=each.flavor,
            resource=each.resource,
            requested=each.requested,
            available=each.available,
        )
        for each in tried
        if each.flavor and each.requested > each.available
    )
    return tuple(missing)[:SHORTFALLS_MAX]


def further_why(workload: WorkloadInfo) -> Why:
    """Returns why a workload waits that has quota, or is held."""
    if workload.charge is None:
        return Why(reasons.ON_HOLD, "It has no place in the queue until it is released")
    waits = [name for name, state in workload.checks if state != "Ready"]
    if not waits:
        return Why(reasons.QUOTA_RESERVED, "It is about to be admitted")
    checks = f"the check{'s' if len(waits) > 1 else ''} {', '.join(waits)}"
    return Why(reasons.ADMISSION_CHECK, f"It has quota, and waits for {checks}")


def further_row(queue: Queue, workload: WorkloadInfo) -> PendingRow:
    """Returns the row of a workload that has quota of the queue, or is held."""
    because = further_why(workload)
    reserved = workload.charge is not None
    return PendingRow(
        namespace=workload.key[0],
        name=workload.key[1],
        cluster_queue=queue.name,
        local_queue=workload.local_queue[1],
        position=0,
        priority=workload.priority,
        reason=because.reason,
        message=because.message,
        created=workload.created_at,
        waiting_since=workload.reserved_at if reserved else None,
        requests=requests_of(workload),
        user=workload.user,
        array=workload.array,
        state=RESERVED if reserved else HELD,
    )


def row_of_another_namespace(queue: Queue, workload: WorkloadInfo, position: int) -> PendingRow:
    """The row for a user that may use the queue, but not read the workload's namespace."""
    namespace, name = workload.key
    return PendingRow(
        namespace=namespace,
        name=name,
        cluster_queue=queue.name,
        local_queue="",
        position=position,
        priority=workload.priority,
        requests=requests_of(workload),
    )


def requests_of(workload: WorkloadInfo) -> dict[str, int]:
    """What all pods of the workload request, by resource."""
    amounts: dict[str, int] = {}
    for totals in workload.shape.totals if workload.shape is not None else ():
        for resource, much in totals:
            amounts[resource] = min(amounts.get(resource, 0) + much, INT64_MAX)
    return amounts


def holding_row(workload: WorkloadInfo) -> HoldingRow:
    """Returns the row of a workload that holds quota."""
    charge = workload.charge
    assert charge is not None
    assigned = charge.admission.pod_set_assignments
    return HoldingRow(
        namespace=workload.key[0],
        name=workload.key[1],
        cluster_queue=charge.queue.name,
        local_queue=workload.local_queue[1],
        state=workload.state if workload.state in RUNS else RESERVED,
        priority=workload.priority,
        reserved_at=workload.reserved_at,
        flavors=tuple(
            dict.fromkeys(flavor for pod_set in assigned for flavor in pod_set.flavors.values())
        ),
        requests=requests_of(workload),
        user=workload.user,
        array=workload.array,
    )


def row_without_queue(state: SchedulerState, workload: WorkloadInfo) -> PendingRow:
    """Returns the row of a workload in a LocalQueue without a ClusterQueue."""
    activity = state.catalog.local_queue_activity(*workload.local_queue)
    local = state.catalog.local_queues.get(workload.local_queue)
    return PendingRow(
        namespace=workload.key[0],
        name=workload.key[1],
        cluster_queue=local.spec.cluster_queue if local is not None else "",
        local_queue=workload.local_queue[1],
        position=0,
        priority=workload.priority,
        parked=True,
        reason=workload_reason(activity.reason),
        message=activity.message,
        created=workload.created_at,
        requests=requests_of(workload),
        user=workload.user,
        array=workload.array,
    )
