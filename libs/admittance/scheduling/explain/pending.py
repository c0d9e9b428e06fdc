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
from admittance.scheduling.state.state import SchedulerState
from admittance.scheduling.state.workload_info import BACKOFF, WorkloadInfo, place

LEADS_NOWHERE: Final = frozenset({"NotFound", "Stopped", "ClusterQueueDoesNotExist"})
LIMIT_MAX: Final = 1_000
"""Rows of one answer: about half of what a message may carry."""
BYTES_MAX: Final = 700_000
ROW_BYTES: Final = 400
"""What a row has beside its message, at most, but for very long names."""
FEW: Final = 2_000
"""So many are put in order by themselves; of more, the order of the whole queue is walked."""


def pending(world: SchedulerState, query: PendingQuery, namespace: str) -> PendingReply:
    """Who waits, queue by queue, in order."""
    target = query.cluster_queue
    if query.local_queue and namespace:
        local = world.catalog.local_queues.get((namespace, query.local_queue))
        if local is None:
            return PendingReply(error=f"no LocalQueue {namespace}/{query.local_queue}")
        target = local.spec.cluster_queue
    if target and (target not in world.queues or world.queues[target].node is None):
        if not query.local_queue:
            return PendingReply(error=f"no ClusterQueue {target}")
        queues: list[Queue] = []
    elif target:
        queues = [world.queues[target]]
    else:
        queues = _in_sequence(world)
    rows: list[PendingRow] = []
    skip = max(0, query.skip)
    limit = max(0, min(query.limit, LIMIT_MAX))
    total = 0
    for queue in queues:
        chosen = _chosen(world, queue, namespace, query.local_queue)
        count = queue.pending if chosen is None else len(chosen)
        total += count
        if len(rows) < limit and skip < count:
            found = _listed(queue, chosen, skip + limit - len(rows))
            rows += [_row(world, queue, one, at) for at, one in islice(found, skip, None)]
        skip = max(0, skip - count)
    if not query.cluster_queue:
        for member in _nowhere(world, namespace, query.local_queue):
            total += 1
            if skip:
                skip -= 1
            elif len(rows) < limit:
                rows.append(_row_of_nowhere(world, member))
    return PendingReply(rows=tuple(_fitting(rows)), total=total)


def _fitting(rows: list[PendingRow]) -> list[PendingRow]:
    """As many of the first rows as go into one message; whoever wants more asks on from there."""
    left = BYTES_MAX
    for at, row in enumerate(rows):
        left -= ROW_BYTES + len(row.message.encode()) + 4 * (len(row.name) + len(row.namespace))
        if left < 0 and at:
            return rows[:at]
    return rows


def everybody(world: SchedulerState) -> Iterator[tuple[PendingRow, Refusal | None]]:
    """All that `pending` lists over several answers, each with what it was refused with; None:
    it was not, or waits for something of its own."""
    for queue in _in_sequence(world):
        for at, member in enumerate(listed(queue), start=1):
            refused = (
                family_summary.told(world, member) if member.is_parent else refusal_for(member)
            )
            yield _row(world, queue, member, at), refused
    for member in _nowhere(world, "", ""):
        yield _row_of_nowhere(world, member), None


def _in_sequence(world: SchedulerState) -> list[Queue]:
    return sorted(
        (one for one in world.queues.values() if one.node is not None), key=lambda one: one.name
    )


def _chosen(
    world: SchedulerState, queue: Queue, namespace: str, local_queue: str
) -> dict[WorkloadInfo, None] | None:
    """Those of the queue that are asked for; None: all."""
    if not namespace and not local_queue:
        return None
    return {
        member: None
        for key in world.catalog.locals_of(queue.name)
        if (not namespace or key[0] == namespace) and (not local_queue or key[1] == local_queue)
        for member in world.locals.get(key, ())
        if member.queue is queue and not member.is_variant
    }


def _listed(
    queue: Queue, chosen: dict[WorkloadInfo, None] | None, limit: int
) -> Iterator[tuple[int, WorkloadInfo]]:
    """The first so many of those that are chosen, with their positions."""
    if chosen is not None and len(chosen) < min(FEW, queue.live // 4):
        for member in nsmallest(limit, chosen, key=lambda one: stands(queue, one)):
            yield position_in(queue, member), member
        return
    numbered = enumerate(listed(queue), start=1)
    if chosen is None:
        yield from islice(numbered, limit)
        return
    yield from islice((one for one in numbered if one[1] in chosen), limit)


def _row(world: SchedulerState, queue: Queue, member: WorkloadInfo, position: int) -> PendingRow:
    """One that waits; a family is one row, its parent's."""
    why = refused = family_summary.told(world, member) if member.is_parent else refusal_for(member)
    if why is None and (standing := standing_of(member)) is not None:
        why = standing.refusal
    if why is not None:
        reason, message = why.reason, why.message
    else:
        reason, message = "PendingEvaluation", f"Number {position} in its ClusterQueue"
    if not queue.activity.active:
        # Nobody of the queue is considered, whatever was found out before.
        reason, message = queue.activity.reason, queue.activity.message
    elif member.requeue_at is not None and (
        member.aside is BACKOFF
        or (member.is_parent and reason != BACKOFF.reason and not member.is_due(world.now))
    ):
        reason = BACKOFF.reason
        message = f"Waits until {member.requeue_at:%Y-%m-%dT%H:%M:%SZ} before it competes again"
    tried = why.shortfalls if why is not None else ()
    return PendingRow(
        namespace=member.key[0],
        name=member.key[1],
        cluster_queue=queue.name,
        local_queue=member.local[1],
        position=position,
        priority=member.priority,
        parked=is_parked(member) if member.is_parent else refused is not None,
        reason=reason,
        message=message,
        created=member.created,
        waiting_since=member.stamp if member.stamp != member.created else None,
        flavors=tuple(dict.fromkeys(one.flavor for one in tried if one.flavor)),
    )


def _nowhere(world: SchedulerState, namespace: str, local_queue: str) -> Iterator[WorkloadInfo]:
    """Who would compete, if only its LocalQueue led to a ClusterQueue and ran. Costs a look at each
    LocalQueue that is named."""
    for key, members in world.locals.items():
        if (namespace and key[0] != namespace) or (local_queue and key[1] != local_queue):
            continue
        if world.catalog.local_queue_activity(*key).reason in LEADS_NOWHERE:
            yield from sorted(
                (
                    one
                    for one in members
                    if one.competes
                    and one.queue is None
                    and one.charge is None
                    and not one.is_variant
                ),
                key=place,
            )


def _row_of_nowhere(world: SchedulerState, member: WorkloadInfo) -> PendingRow:
    activity = world.catalog.local_queue_activity(*member.local)
    local = world.catalog.local_queues.get(member.local)
    return PendingRow(
        namespace=member.key[0],
        name=member.key[1],
        cluster_queue=local.spec.cluster_queue if local is not None else "",
        local_queue=member.local[1],
        position=0,
        priority=member.priority,
        parked=True,
        reason=of_workloads(activity.reason),
        message=activity.message,
        created=member.created,
    )
