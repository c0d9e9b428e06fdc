"""The order of all workloads that wait in a ClusterQueue, parked or not.

Source: `docs/spec/scheduling.md#3.2`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import TYPE_CHECKING

from admittance.scheduling.state.equivalence import Lanes
from admittance.scheduling.state.workload_info import BEFORE_ALL, AgeKey, WorkloadInfo, age_key

if TYPE_CHECKING:
    from admittance.scheduling.state.equivalence import EquivalenceClass
    from admittance.scheduling.state.queue import Queue


def stands(queue: Queue, workload: WorkloadInfo) -> tuple[float, float, AgeKey]:
    """Returns the sort key of a workload in its queue: usage where that counts, priority, age. A
    preemptor that waits for its victims comes first."""
    usage = _usage(queue.lanes, workload)
    if not is_ahead(queue, workload):
        return usage, -workload.priority, age_key(workload)
    if queue.lanes is None or queue.lanes.preemptor_first:
        usage = BEFORE_ALL
    return usage, BEFORE_ALL, age_key(workload)


def is_ahead(queue: Queue, workload: WorkloadInfo) -> bool:
    """Returns whether the workload, or one of its variants, keeps its place before all others."""
    first = queue.preemptor
    if first is None or not queue.is_first(first):
        return False
    return first is workload or (first.family is not None and first.family.parent is workload)


def in_order(queue: Queue) -> Iterator[WorkloadInfo]:
    """Yields the workloads that are tried in the queue, in order; of a family, its variants. Costs
    a
    look at each class and at each workload that is taken."""
    first = queue.preemptor
    sticky = first if first is not None and queue.is_first(first) else None
    return _in_order(queue, queue.classes.values(), queue.parked_workloads, (), sticky)


def listed(queue: Queue) -> Iterator[WorkloadInfo]:
    """Yields the workloads that wait in the queue, in order; a family once, as its parent."""
    if not queue.variants and not queue.parents:
        return in_order(queue)
    first = queue.preemptor
    sticky = first if first is not None and queue.is_first(first) else None
    if sticky is not None and sticky.family is not None:
        parent = sticky.family.parent
        sticky = parent if parent is not None and parent.queue is queue else None
    return _in_order(
        queue,
        [cls for cls in queue.classes.values() if not cls.is_of_variants],
        [one for one in queue.parked_workloads if one.family is None],
        [entry[4] for entry in queue.parents],
        sticky,
    )


def _in_order(
    queue: Queue,
    classes: Iterable[EquivalenceClass],
    asides: Iterable[WorkloadInfo],
    parents: Iterable[WorkloadInfo],
    sticky: WorkloadInfo | None,
) -> Iterator[WorkloadInfo]:
    """All of these. ``parents``: in order; ``sticky``: who keeps its place before all others."""
    lanes = queue.lanes
    rows: dict[tuple[float, float], list[Iterator[WorkloadInfo]]] = {}
    for cls in classes:
        usage = lanes.usage_of(cls.key[2]) if lanes is not None else 0.0
        rows.setdefault((usage, -cls.key[0]), []).append(cls.waiting())
    for workload in sorted(asides, key=age_key):
        rows.setdefault((_usage(lanes, workload), -workload.priority), []).append(iter((workload,)))
    alike: dict[tuple[float, float], list[WorkloadInfo]] = {}
    for workload in parents:
        alike.setdefault((_usage(lanes, workload), -workload.priority), []).append(workload)
    for row, workloads in alike.items():
        rows.setdefault(row, []).append(iter(workloads))
    if sticky is not None:
        rows[stands(queue, sticky)[:2]] = [iter((sticky,))]
    for row in sorted(rows):
        found = merge(*rows[row], key=age_key)
        yield from (one for one in found if one is not sticky or row[1] == BEFORE_ALL)


def position_in(queue: Queue, workload: WorkloadInfo) -> int:
    """Returns the workload's place among all that wait in the queue, from 1; 0: it does not wait.

    A family counts once, and a variant has the place of its family. Costs a bisection for each
    class that it is not apart from by usage or priority, and a look at those set aside."""
    if workload.queue is not queue or workload.queued_at is None:
        return 0
    lanes = queue.lanes
    parent = workload.family.parent if workload.family is not None else None
    if parent is not None and parent.queue is queue:
        workload = parent
    mine = stands(queue, workload)
    ahead = 1
    first = queue.preemptor
    if first is not None and queue.is_first(first) and not is_ahead(queue, workload):
        if first.family is not None:
            first = first.family.parent
        if first is not None and first.queue is queue:
            by_itself = (_usage(lanes, first), -first.priority, age_key(first))
            # Where it would be ahead without its kept place it is counted below.
            ahead += stands(queue, first) < mine < by_itself
    _, rank, at = mine
    for key, cls in queue.classes.items():
        if queue.variants and cls.is_of_variants:
            continue
        if lanes is None:
            # As below, at less cost: a queue may have very many classes.
            if -key[0] < rank:
                ahead += len(cls.entries) - cls.start
            elif key[0] == -rank:
                ahead += bisect_left(cls.entries, at, cls.start) - cls.start
            continue
        other = lanes.usage_of(key[2]), -key[0]
        if other < mine[:2]:
            ahead += cls.live
        elif other == mine[:2]:
            ahead += cls.before(at)
    for one in queue.parked_workloads:
        if one.family is None:
            ahead += (_usage(lanes, one), -one.priority, age_key(one)) < mine
    if lanes is None:
        ahead += bisect_left(queue.parents, (rank, *at))
    else:
        for entry in queue.parents:
            ahead += (_usage(lanes, entry[4]), entry[0], entry[1:4]) < mine
    return ahead


def _usage(lanes: Lanes | None, workload: WorkloadInfo) -> float:
    return lanes.usage_of(workload.local_queue) if lanes is not None else 0.0
