"""Lists pending workloads queue by queue, in order, with their positions and waiting reasons.

The cost of a list grows with the number of listed workloads and of classes in the queue, not with
the number of workloads behind the last listed one. For a query about one namespace or LocalQueue
the cost grows with the workloads of that namespace or LocalQueue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import islice
from typing import Final

from admittance.api.fields.units import INT64_MAX
from admittance.events import reasons
from admittance.events.codec import encode
from admittance.events.requests.queues import HoldingRow, PendingQuery, PendingReply, PendingRow
from admittance.events.shapes import Refusal
from admittance.scheduling.cycle.cycle import refusal_for
from admittance.scheduling.cycle.refusals import blocked_head_of, workload_reason
from admittance.scheduling.explain import family_summary
from admittance.scheduling.explain.queue_status import RUNS, is_parked, stands_for_itself
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.queue import age_key, in_listed_order, position_in, sort_key
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import BACKOFF

NO_CLUSTER_QUEUE: Final = frozenset(
    {reasons.NOT_FOUND, reasons.STOPPED, reasons.CLUSTER_QUEUE_DOES_NOT_EXIST}
)
LIMIT_MAX: Final = 1_000
"""How many pending workloads one reply lists at most: they fill about half of a message."""
HOLDING_MAX: Final = 200
"""How many workloads with quota one reply lists at most: they fill less than a quarter of a
message."""
RESERVED: Final = "QuotaReserved"
NEVER: Final = datetime.max.replace(tzinfo=UTC)
"""The time at which a workload got its quota that is not stored yet: after all others."""
BYTES_MAX: Final = 700_000
"""How many bytes the rows of pending workloads in one reply have at most, unless there is one row.
"""
FEW: Final = 2_000
"""If a query selects fewer pending workloads of a queue than this number, they are sorted; if it
selects more, they are picked from the ordered queue."""


def pending(state: SchedulerState, query: PendingQuery, namespace: str) -> PendingReply:
    """Returns the pending workloads that the query selects, queue by queue, in order."""
    target = query.cluster_queue
    if query.first_elements and query.skip:
        return PendingReply(error="firstElements goes with skip 0 only")
    if query.local_queue and namespace:
        local = state.catalog.local_queues.get((namespace, query.local_queue))
        if local is None:
            return PendingReply(error=f"no LocalQueue {namespace}/{query.local_queue}")
        target = local.spec.cluster_queue
    if target and (target not in state.queues or state.queues[target].node is None):
        if not query.local_queue:
            return PendingReply(error=f"no ClusterQueue {target}")
        queues: list[Queue] = []
    elif target:
        queues = [state.queues[target]]
    else:
        queues = _queues_by_name(state)
    rows: list[PendingRow] = []
    skip = max(0, query.skip)
    limit = max(0, min(query.limit, LIMIT_MAX))
    total = 0
    used_from = {space for space, _ in state.catalog.locals_of(target)}
    others = query.others and namespace in used_from and not query.user
    for queue in queues:
        selected = None if others else _selected(state, queue, namespace, query)
        count = queue.pending if selected is None else len(selected)
        total += count
        if len(rows) < limit and skip < count:
            if query.first_elements:
                listed = _without_later_elements(
                    _listed(queue, selected, count), namespace if others else ""
                )
                numbered: Iterable[tuple[int, WorkloadInfo]] = islice(listed, limit - len(rows))
            else:
                numbered = _listed(queue, selected, skip + limit - len(rows))
            rows += [
                _row(state, queue, workload, at, _refusal(state, workload))
                if not others or workload.key[0] == namespace
                else _row_of_another_namespace(queue, workload, at)
                for at, workload in islice(numbered, skip, None)
            ]
        skip = max(0, skip - count)
    if not query.cluster_queue:
        for workload in _without_queue(state, namespace, query):
            total += 1
            if skip:
                skip -= 1
            elif len(rows) < limit:
                rows.append(_row_without_queue(state, workload))
    fitting = tuple(_fitting(rows))
    if query.holding <= 0:
        return PendingReply(rows=fitting, total=total)
    holding, count = _holding(queues, namespace, query)
    return PendingReply(rows=fitting, total=total, holding=holding, holding_total=count)


def _holding(
    queues: Iterable[Queue], namespace: str, query: PendingQuery
) -> tuple[tuple[HoldingRow, ...], int]:
    """Returns the rows of the selected workloads that hold quota, and how many hold it. A family
    has one row, for its admitted variant."""
    selected = [
        workload
        for queue in queues
        for workload in queue.holding
        if workload.charge is not None
        and stands_for_itself(workload)
        and (not namespace or workload.key[0] == namespace)
        and query.local_queue in ("", workload.local_queue[1])
        and query.user in ("", workload.user)
    ]
    limit, total = min(query.holding, HOLDING_MAX), len(selected)
    if query.first_elements:
        selected.sort(key=_held_since)
        first = [each for _, each in islice(_without_later_elements(enumerate(selected)), limit)]
    else:
        first = nsmallest(limit, selected, key=_held_since)
    return tuple(map(_holding_row, first)), total


def _held_since(workload: WorkloadInfo) -> tuple[datetime, Key]:
    return workload.reserved_at or NEVER, workload.key


def _holding_row(workload: WorkloadInfo) -> HoldingRow:
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
        requests=_requests(workload),
        user=workload.user,
        array=workload.array,
    )


def _fitting(rows: list[PendingRow]) -> list[PendingRow]:
    """Returns the first rows of a list of pending workloads, as many as fit into one message. A
    client gets the following rows with a further query that skips the returned rows."""
    left = BYTES_MAX
    for at, row in enumerate(rows):
        left -= len(encode(row)) + len(",")
        if left < 0 and at:
            return rows[:at]
    return rows


def all_pending(state: SchedulerState) -> Iterator[tuple[PendingRow, Refusal | None]]:
    """Yields all pending workloads in the order of `pending`, each with its refusal; None: the
    workload was not refused, or its LocalQueue has no ClusterQueue."""
    for queue in _queues_by_name(state):
        for at, workload in enumerate(in_listed_order(queue), start=1):
            refused = _refusal(state, workload)
            yield _row(state, queue, workload, at, refused), refused
    for workload in _without_queue(state, "", PendingQuery()):
        yield _row_without_queue(state, workload), None


def _queues_by_name(state: SchedulerState) -> list[Queue]:
    return sorted(
        (queue for queue in state.queues.values() if queue.node is not None),
        key=lambda queue: queue.name,
    )


def _selected(
    state: SchedulerState, queue: Queue, namespace: str, query: PendingQuery
) -> dict[WorkloadInfo, None] | None:
    """Returns the workloads of the queue that a query selects; None: the query selects all
    workloads."""
    local_queue = query.local_queue
    if not namespace and not local_queue and not query.user:
        return None
    return {
        workload: None
        for key in state.catalog.locals_of(queue.name)
        if (not namespace or key[0] == namespace) and (not local_queue or key[1] == local_queue)
        for workload in state.by_local_queue.get(key, ())
        if workload.queue is queue and not workload.is_variant and query.user in ("", workload.user)
    }


def _listed(
    queue: Queue, selected: dict[WorkloadInfo, None] | None, limit: int
) -> Iterator[tuple[int, WorkloadInfo]]:
    """Yields the first ``limit`` selected workloads of the queue, each with its position in the
    queue."""
    if selected is not None and len(selected) < min(FEW, queue.live // 4):
        for workload in nsmallest(limit, selected, key=lambda workload: sort_key(queue, workload)):
            yield position_in(queue, workload), workload
        return
    numbered = enumerate(in_listed_order(queue), start=1)
    if selected is None:
        yield from islice(numbered, limit)
        return
    yield from islice((place for place in numbered if place[1] in selected), limit)


def _without_later_elements(
    numbered: Iterable[tuple[int, WorkloadInfo]], namespace: str = ""
) -> Iterator[tuple[int, WorkloadInfo]]:
    """Yields the numbered workloads without those that follow another element of their array.
    ``namespace``: the rows of other namespaces do not say of which array they are; "": all do.
    """
    seen: set[Key] = set()
    for at, workload in numbered:
        if workload.array and namespace in ("", workload.key[0]):
            array = workload.key[0], workload.array
            if array in seen:
                continue
            seen.add(array)
        yield at, workload


def _refusal(state: SchedulerState, workload: WorkloadInfo) -> Refusal | None:
    if workload.is_parent:
        return family_summary.family_refusal(state, workload)
    return refusal_for(workload)


def _row(
    state: SchedulerState,
    queue: Queue,
    workload: WorkloadInfo,
    position: int,
    refused: Refusal | None,
) -> PendingRow:
    """Returns the row of one pending workload. A family has one row, for its parent."""
    why = refused
    if why is None and (standing := blocked_head_of(workload)) is not None:
        why = standing.refusal
    if why is not None:
        reason, message = why.reason, why.message
    else:
        reason, message = reasons.PENDING_EVALUATION, f"At position {position} of its ClusterQueue"
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
    tried = why.shortfalls if why is not None else ()
    return PendingRow(
        namespace=workload.key[0],
        name=workload.key[1],
        cluster_queue=queue.name,
        local_queue=workload.local_queue[1],
        position=position,
        priority=workload.priority,
        parked=is_parked(workload) if workload.is_parent else refused is not None,
        reason=reason,
        message=message,
        created=workload.created_at,
        waiting_since=workload.queued_at if workload.queued_at != workload.created_at else None,
        flavors=tuple(dict.fromkeys(shortfall.flavor for shortfall in tried if shortfall.flavor)),
        requests=_requests(workload),
        user=workload.user,
        array=workload.array,
    )


def _row_of_another_namespace(queue: Queue, workload: WorkloadInfo, position: int) -> PendingRow:
    """The row for a user that may use the queue, but not read the workload's namespace."""
    namespace, name = workload.key
    return PendingRow(
        namespace=namespace,
        name=name,
        cluster_queue=queue.name,
        local_queue="",
        position=position,
        priority=workload.priority,
        requests=_requests(workload),
    )


def _requests(workload: WorkloadInfo) -> dict[str, int]:
    """What all pods of the workload request, by resource."""
    amounts: dict[str, int] = {}
    for totals in workload.shape.totals if workload.shape is not None else ():
        for resource, much in totals:
            amounts[resource] = min(amounts.get(resource, 0) + much, INT64_MAX)
    return amounts


def _without_queue(
    state: SchedulerState, namespace: str, query: PendingQuery
) -> Iterator[WorkloadInfo]:
    """Yields the workloads that cannot compete because their LocalQueue does not exist, is stopped
    or has no ClusterQueue."""
    for key, workloads in state.by_local_queue.items():
        if namespace not in ("", key[0]) or query.local_queue not in ("", key[1]):
            continue
        if state.catalog.local_queue_activity(*key).reason in NO_CLUSTER_QUEUE:
            yield from sorted(
                (
                    workload
                    for workload in workloads
                    if workload.competes
                    and workload.queue is None
                    and workload.charge is None
                    and not workload.is_variant
                    and query.user in ("", workload.user)
                ),
                key=age_key,
            )


def _row_without_queue(state: SchedulerState, workload: WorkloadInfo) -> PendingRow:
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
        requests=_requests(workload),
        user=workload.user,
        array=workload.array,
    )
