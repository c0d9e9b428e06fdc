"""Who waits, queue by queue, in order, with position and reason.

Costs what is listed and a look at each class of the queue, whatever waits behind the last row; of
one namespace or LocalQueue, a look at each of its workloads.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from typing import Final

from admittance.events.requests import PendingQuery, PendingReply, PendingRow
from admittance.events.shapes import Refusal
from admittance.scheduling.cycle.cycle import refusal_for
from admittance.scheduling.cycle.reasons import of_workloads
from admittance.scheduling.cycle.refusals import standing_of
from admittance.scheduling.explain import family_summary
from admittance.scheduling.explain.queue_status import is_parked
from admittance.scheduling.state.queue import Queue
from admittance.scheduling.state.queue_order import listed, position_in, stands
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import BACKOFF, WorkloadInfo, age_key

LEADS_NOWHERE: Final = frozenset({"NotFound", "Stopped", "ClusterQueueDoesNotExist"})
LIMIT_MAX: Final = 1_000
"""Rows of one answer: about half of what a message may carry."""
BYTES_MAX: Final = 700_000
ROW_BYTES: Final = 400
"""What a row has beside its message, at most, but for very long names."""
FEW: Final = 2_000
"""So many are put in order by themselves; of more, the order of the whole queue is walked."""


def pending(state: SchedulerState, query: PendingQuery, namespace: str) -> PendingReply:
    """Who waits, queue by queue, in order."""
    target = query.cluster_queue
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
        queues = _in_sequence(state)
    rows: list[PendingRow] = []
    skip = max(0, query.skip)
    limit = max(0, min(query.limit, LIMIT_MAX))
    total = 0
    for queue in queues:
        chosen = _chosen(state, queue, namespace, query.local_queue)
        count = queue.pending if chosen is None else len(chosen)
        total += count
        if len(rows) < limit and skip < count:
            found = _listed(queue, chosen, skip + limit - len(rows))
            rows += [_row(state, queue, one, at) for at, one in islice(found, skip, None)]
        skip = max(0, skip - count)
    if not query.cluster_queue:
        for workload in _nowhere(state, namespace, query.local_queue):
            total += 1
            if skip:
                skip -= 1
            elif len(rows) < limit:
                rows.append(_row_of_nowhere(state, workload))
    return PendingReply(rows=tuple(_fitting(rows)), total=total)


def _fitting(rows: list[PendingRow]) -> list[PendingRow]:
    """As many of the first rows as go into one message; whoever wants more asks on from there."""
    left = BYTES_MAX
    for at, row in enumerate(rows):
        left -= ROW_BYTES + len(row.message.encode()) + 4 * (len(row.name) + len(row.namespace))
        if left < 0 and at:
            return rows[:at]
    return rows


def everybody(state: SchedulerState) -> Iterator[tuple[PendingRow, Refusal | None]]:
    """All that `pending` lists over several answers, each with what it was refused with; None:
    it was not, or waits for something of its own."""
    for queue in _in_sequence(state):
        for at, workload in enumerate(listed(queue), start=1):
            refused = (
                family_summary.told(state, workload)
                if workload.is_parent
                else refusal_for(workload)
            )
            yield _row(state, queue, workload, at), refused
    for workload in _nowhere(state, "", ""):
        yield _row_of_nowhere(state, workload), None


def _in_sequence(state: SchedulerState) -> list[Queue]:
    return sorted(
        (one for one in state.queues.values() if one.node is not None), key=lambda one: one.name
    )


def _chosen(
    state: SchedulerState, queue: Queue, namespace: str, local_queue: str
) -> dict[WorkloadInfo, None] | None:
    """Those of the queue that are asked for; None: all."""
    if not namespace and not local_queue:
        return None
    return {
        workload: None
        for key in state.catalog.locals_of(queue.name)
        if (not namespace or key[0] == namespace) and (not local_queue or key[1] == local_queue)
        for workload in state.by_local_queue.get(key, ())
        if workload.queue is queue and not workload.is_variant
    }


def _listed(
    queue: Queue, chosen: dict[WorkloadInfo, None] | None, limit: int
) -> Iterator[tuple[int, WorkloadInfo]]:
    """The first so many of those that are chosen, with their positions."""
    if chosen is not None and len(chosen) < min(FEW, queue.live // 4):
        for workload in nsmallest(limit, chosen, key=lambda one: stands(queue, one)):
            yield position_in(queue, workload), workload
        return
    numbered = enumerate(listed(queue), start=1)
    if chosen is None:
        yield from islice(numbered, limit)
        return
    yield from islice((one for one in numbered if one[1] in chosen), limit)


def _row(state: SchedulerState, queue: Queue, workload: WorkloadInfo, position: int) -> PendingRow:
    """One that waits; a family is one row, its parent's."""
    why = refused = (
        family_summary.told(state, workload) if workload.is_parent else refusal_for(workload)
    )
    if why is None and (standing := standing_of(workload)) is not None:
        why = standing.refusal
    if why is not None:
        reason, message = why.reason, why.message
    else:
        reason, message = "PendingEvaluation", f"Number {position} in its ClusterQueue"
    if not queue.activity.active:
        # Nobody of the queue is considered, whatever was found out before.
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
        flavors=tuple(dict.fromkeys(one.flavor for one in tried if one.flavor)),
    )


def _nowhere(state: SchedulerState, namespace: str, local_queue: str) -> Iterator[WorkloadInfo]:
    """Who would compete, if only its LocalQueue led to a ClusterQueue and ran. Costs a look at each
    LocalQueue that is named."""
    for key, workloads in state.by_local_queue.items():
        if (namespace and key[0] != namespace) or (local_queue and key[1] != local_queue):
            continue
        if state.catalog.local_queue_activity(*key).reason in LEADS_NOWHERE:
            yield from sorted(
                (
                    one
                    for one in workloads
                    if one.competes
                    and one.queue is None
                    and one.charge is None
                    and not one.is_variant
                ),
                key=age_key,
            )


def _row_of_nowhere(state: SchedulerState, workload: WorkloadInfo) -> PendingRow:
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
        reason=of_workloads(activity.reason),
        message=activity.message,
        created=workload.created_at,
    )
