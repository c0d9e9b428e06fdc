"""The waiting workloads of a ClusterQueue: adding, removing, parking, waking, and their order.

A flush makes parked classes compete again, without a step for each workload. Source:
`docs/spec/scheduling.md#3, #8.1` points 5 and 6."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from heapq import merge
from typing import Final, TypeAlias

from admittance.events.shapes import Refusal
from admittance.scheduling.state.equivalence import (
    ClassHeap,
    ClassKey,
    EquivalenceClass,
    Key,
    Kind,
    forget_reason,
)
from admittance.scheduling.state.held.person_limits import PersonLimits
from admittance.scheduling.state.lanes import Lanes
from admittance.scheduling.state.workload_info import ClassEntry, Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import LAST_PLACE, Inadmissible

AgeKey: TypeAlias = tuple[datetime, str, Key]

BEFORE_ALL: Final = float("-inf")
"""A value that sorts before the negated priority of every workload, for the preemptor that stays
the head."""


# Adding and removing. -----------------------------------------------------------------------


def enqueue(queue: Queue, workload: WorkloadInfo, now: datetime) -> None:
    """Lets the workload compete, or parks it with its class if the class is parked."""
    shape = workload.shape
    queued_at = workload.queued_at
    assert shape is not None and queued_at is not None
    kind: Kind = shape if workload.family is None else _kind(queue, workload)
    persons = queue.limits.persons_of(workload) if queue.limits is not None else None
    lane = queue.lanes.key_of(workload) if queue.lanes is not None else None
    key = (workload.priority, kind, lane, persons)
    cls = queue.classes.get(key)
    if cls is None:
        cls = _new_class(queue, key, now)
    workload.queue = queue
    entry: ClassEntry = (queued_at, workload.uid, workload.key, workload)
    if workload.family is not None:
        entry = (*age_key(workload), workload)
        queue.variants += workload not in queue.parked_workloads
    workload.inadmissible = None
    queue.parked_workloads.pop(workload, None)
    workload.cls, workload.entry = cls, entry
    cls.insert(entry)
    queue.live += 1
    cls.note_reason(workload, now)
    if cls.parked is None:
        _place(queue, cls)
    else:
        schedule_refusal(queue, workload, now)


def enqueue_parent(queue: Queue, workload: WorkloadInfo) -> None:
    """Adds a parent to the waiting parents of the queue. A parent is never tried; its variants are
    tried."""
    workload.queue = queue
    insort(queue.parents, (-workload.priority, *age_key(workload), workload))


def remove_from_queue(queue: Queue, workload: WorkloadInfo) -> None:
    """Takes the workload out of the queue."""
    if workload.family is not None and workload.queue is queue:
        if workload.is_parent:
            place = (-workload.priority, *age_key(workload))
            del queue.parents[bisect_left(queue.parents, place)]
        else:
            queue.variants -= 1
    cls = workload.cls
    if workload.entry is not None and cls is not None:
        cls.delete(workload.entry)
        workload.entry = None
        queue.live -= 1
        forget_reason(workload)
        if not cls.live:
            cls.item = None
            queue.parked_classes.pop(cls, None)
            queue.classes.pop(cls.key, None)
            if queue.lanes is not None:
                queue.lanes.leave(cls)
        elif cls.parked is None:
            _place(queue, cls)
    workload.cls = None
    if workload.inadmissible is not None:
        workload.inadmissible = None
        queue.parked_workloads.pop(workload, None)
    workload.queue = None


def set_lanes(queue: Queue, lanes: Lanes[WorkloadInfo] | None, now: datetime) -> None:
    """Sets the lanes of the queue, so that the usage of LocalQueues or users orders its workloads;
    None: the usage does not order them any more. Parked classes of the queue compete again."""
    with _all_requeued(queue, now):
        queue.class_heap = ClassHeap()
        queue.lanes = lanes


def set_limits(queue: Queue, limits: PersonLimits | None, now: datetime) -> None:
    """Sets the limits of the queue on what one person may hold; None: it has none. Parked classes
    of the queue compete again."""
    with _all_requeued(queue, now):
        queue.limits = limits
    if limits is not None:
        for workload in queue.holding:
            limits.update(workload)


@contextmanager
def _all_requeued(queue: Queue, now: datetime) -> Iterator[None]:
    """Takes the workloads of all classes out of the queue, and adds them again at the end of the
    ``with`` block."""
    workloads = [workload for cls in queue.classes.values() for workload in cls.waiting()]
    for workload in workloads:
        remove_from_queue(queue, workload)
    yield
    for workload in workloads:
        enqueue(queue, workload, now)


def is_in_own_class(queue: Queue, workload: WorkloadInfo) -> bool:
    """Returns whether the variant waits in a class of its own family, or should wait in one."""
    cls = workload.cls
    if cls is None:
        return False
    return cls.key[1] != (workload.shape, "") or _kind(queue, workload) != cls.key[1]


def is_in_place(queue: Queue, workload: WorkloadInfo) -> bool:
    """Returns whether the variant already has the place and the class that it would get if it were
    queued now."""
    entry, cls = workload.entry, workload.cls
    if entry is None or cls is None:
        return True
    return entry[:3] == age_key(workload) and cls.key[1] == _kind(queue, workload)


def _kind(queue: Queue, workload: WorkloadInfo) -> Kind:
    """Returns the kind of a workload: what it has in common with the other workloads of its class,
    besides priority. Variants are in other classes than regular workloads. If siblings of a variant
    hold quota that also counts for the variant, it is in a class of its family only, because it
    needs less than equal workloads."""
    assert workload.shape is not None and workload.family is not None
    held = workload.family.quota
    alone = held is not None and (
        held.shares or queue.limits is not None or _shares_flavors(workload)
    )
    return workload.shape, workload.family.uid if alone else ""


def _shares_flavors(workload: WorkloadInfo) -> bool:
    """Returns whether a sibling holds quota of a flavor that the variant may use."""
    family = workload.family
    if family is None or workload.shape is None or family.quota is None:
        return False
    allowed = workload.shape.allowed
    for sibling in family.quota.members:
        if sibling is workload or sibling.charge is None:
            continue
        for pod_set in sibling.charge.admission.pod_set_assignments:
            if allowed is None or any(flavor in allowed for flavor in pod_set.flavors.values()):
                return True
    return False


def _new_class(queue: Queue, key: ClassKey, now: datetime) -> EquivalenceClass[WorkloadInfo]:
    cls: EquivalenceClass[WorkloadInfo] = EquivalenceClass(key)
    queue.classes[key] = cls
    if queue.lanes is not None:
        for other in queue.lanes.join(cls):
            if other.parked is not None:
                # The reason why a class is refused holds for all classes that differ from it only
                # by LocalQueue.
                cls.parked, cls.parked_since = other.parked, now
                queue.parked_classes[cls] = None
            break
    return cls


def _place(queue: Queue, cls: EquivalenceClass[WorkloadInfo]) -> None:
    if queue.lanes is not None:
        queue.lanes.put(cls)
    else:
        queue.class_heap.put(cls)


# Parking and waking. ------------------------------------------------------------------------


def park_class(
    queue: Queue, cls: EquivalenceClass[WorkloadInfo], refusal: Refusal, now: datetime
) -> None:
    """Parks the class until the next flush, together with the classes that differ from it only by
    LocalQueue."""
    for parked in (cls,) if queue.lanes is None else queue.lanes.group(cls):
        parked.parked = refusal
        parked.item = None
        parked.parked_since = now
        queue.parked_classes[parked] = None
        schedule_class_refusal(queue, parked)


def park_workload(
    queue: Queue, workload: WorkloadInfo, inadmissible: Inadmissible, now: datetime
) -> None:
    """Parks the workload alone, without its class, until the next flush or until its problem
    changes."""
    remove_from_queue(queue, workload)
    workload.queue = queue
    workload.inadmissible = inadmissible
    queue.parked_workloads[workload] = None
    queue.variants += workload.family is not None
    schedule_refusal(queue, workload, now)


def schedule_refusal(queue: Queue, workload: WorkloadInfo, now: datetime) -> None:
    """Schedules the refusal of a parked workload, unless its status already has the reason for
    which it is parked."""
    cls, why = workload.cls, workload.inadmissible
    if cls is not None:
        cls.note_reason(workload, now)
        schedule_class_refusal(queue, cls)
    elif why is not None and not why.is_silent and workload.status_reason != why.reason:
        workload.parked_since = now
        queue.refusal_queue.put(now, workload)


def schedule_class_refusal(queue: Queue, cls: EquivalenceClass[WorkloadInfo]) -> None:
    """Schedules the refusals of a parked class, for its workloads with another reason in their
    status."""
    since = None if cls.is_scheduled else cls.refusal_since()
    if since is not None:
        queue.refusal_queue.put(since, cls)


def wake_class(queue: Queue, cls: EquivalenceClass[WorkloadInfo]) -> None:
    """Lets the workloads of a parked class compete again."""
    cls.parked = None
    cls.parked_since = None
    _place(queue, cls)


# Order. -------------------------------------------------------------------------------------
# Source: `docs/spec/scheduling.md#3.2`.


def age_key(workload: WorkloadInfo) -> AgeKey:
    """Returns the part of a workload's sort key that orders workloads of equal priority in
    a queue."""
    assert workload.queued_at is not None
    if workload.family is None:
        return workload.queued_at, workload.uid, workload.key
    return workload.queued_at, *_tie_break_key(workload)


def _tie_break_key(workload: WorkloadInfo) -> tuple[str, Key]:
    """Returns the part of a workload's sort key that orders workloads of equal age in a queue.

    The variants of a family are adjacent, best first, at the place of their parent. The variants of
    a family share all other parts of their sort keys, which saves memory."""
    family, queue = workload.family, workload.queue
    if family is None or family.parent is workload:
        return workload.uid, workload.key
    tag = queue.tags.get(family.variants[workload].tag) if queue is not None else None
    return family.uid, (_padded(tag.place if tag is not None else LAST_PLACE), workload.key[1])


@cache
def _padded(place: int) -> str:
    return f"{place:04d}"


def sort_key(queue: Queue, workload: WorkloadInfo) -> tuple[float, float, AgeKey]:
    """Returns the sort key of a workload in its queue: usage of its LocalQueue (if the queue has
    lanes), priority, age. A preemptor that waits for its victims comes first."""
    usage = _usage(queue.lanes, workload)
    if not keeps_first_place(queue, workload):
        return usage, -workload.priority, age_key(workload)
    if queue.lanes is None or queue.lanes.preemptor_first:
        usage = BEFORE_ALL
    return usage, BEFORE_ALL, age_key(workload)


def keeps_first_place(queue: Queue, workload: WorkloadInfo) -> bool:
    """Returns whether the workload, or one of its variants, is the preemptor that stays at the head
    of its queue."""
    first = queue.preemptor
    if first is None or not queue.is_first(first):
        return False
    return first is workload or (first.family is not None and first.family.parent is workload)


def in_order(queue: Queue) -> Iterator[WorkloadInfo]:
    """Yields the workloads of the queue that the scheduler tries, in order: of a family its
    variants, not the parent. The cost is one step for each class and for each workload that the
    caller consumes."""
    first = queue.preemptor
    preemptor = first if first is not None and queue.is_first(first) else None
    return _in_order(queue, queue.classes.values(), queue.parked_workloads, (), preemptor)


def in_listed_order(
    queue: Queue, keep: Callable[[EquivalenceClass[WorkloadInfo]], bool] | None = None
) -> Iterator[WorkloadInfo]:
    """Yields the workloads that wait in the queue, in order: of a family only the parent. ``keep``:
    whether the workloads of a class are wanted; None: all are."""
    if keep is None and not queue.variants and not queue.parents:
        return in_order(queue)
    first = queue.preemptor
    preemptor = first if first is not None and queue.is_first(first) else None
    if preemptor is not None and preemptor.family is not None:
        parent = preemptor.family.parent
        preemptor = parent if parent is not None and parent.queue is queue else None
    return _in_order(
        queue,
        [
            cls
            for cls in queue.classes.values()
            if not cls.is_of_variants and (keep is None or keep(cls))
        ],
        [workload for workload in queue.parked_workloads if workload.family is None],
        [entry[4] for entry in queue.parents],
        preemptor,
    )


def _in_order(
    queue: Queue,
    classes: Iterable[EquivalenceClass[WorkloadInfo]],
    parked: Iterable[WorkloadInfo],
    parents: Iterable[WorkloadInfo],
    preemptor: WorkloadInfo | None,
) -> Iterator[WorkloadInfo]:
    """Yields the workloads of ``classes``, ``parked`` and ``parents`` in the order of the queue.
    ``parents`` is sorted already. ``preemptor``: the preemptor that stays at the head."""
    lanes = queue.lanes
    rows: dict[tuple[float, float], list[Iterator[WorkloadInfo]]] = {}
    for cls in classes:
        usage = lanes.usage_of(cls.key[2]) if lanes is not None else 0.0
        rows.setdefault((usage, -cls.key[0]), []).append(cls.waiting())
    for workload in sorted(parked, key=age_key):
        rows.setdefault((_usage(lanes, workload), -workload.priority), []).append(iter((workload,)))
    alike: dict[tuple[float, float], list[WorkloadInfo]] = {}
    for workload in parents:
        alike.setdefault((_usage(lanes, workload), -workload.priority), []).append(workload)
    for row, workloads in alike.items():
        rows.setdefault(row, []).append(iter(workloads))
    if preemptor is not None:
        rows[sort_key(queue, preemptor)[:2]] = [iter((preemptor,))]
    for row in sorted(rows):
        merged = merge(*rows[row], key=age_key)
        yield from (
            waiting for waiting in merged if waiting is not preemptor or row[1] == BEFORE_ALL
        )


def position_in(queue: Queue, workload: WorkloadInfo) -> int:
    """Returns the workload's position among all that wait in the queue, counted from 1; 0: the
    workload does not wait.

    A family counts as one waiting workload, and a variant has the position of its family. The cost
    is a bisection for each class of equal usage and priority, and one step for each workload that
    is parked alone."""
    if workload.queue is not queue or workload.queued_at is None:
        return 0
    lanes = queue.lanes
    parent = workload.family.parent if workload.family is not None else None
    if parent is not None and parent.queue is queue:
        workload = parent
    mine = sort_key(queue, workload)
    ahead = 1
    first = queue.preemptor
    if first is not None and queue.is_first(first) and not keeps_first_place(queue, workload):
        if first.family is not None:
            first = first.family.parent
        if first is not None and first.queue is queue:
            by_itself = (_usage(lanes, first), -first.priority, age_key(first))
            # The code below counts the preemptor only if its own sort key places it ahead of the
            # workload. The preemptor is counted here if it is ahead only because it stays the head
            # of the queue.
            ahead += sort_key(queue, first) < mine < by_itself
    _, rank, at = mine
    for key, cls in queue.classes.items():
        if queue.variants and cls.is_of_variants:
            continue
        if lanes is None:
            # For classes of different priority comparing priorities has the same result as
            # comparing sort keys, and is cheaper: a queue may have very many classes.
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
    for parked in queue.parked_workloads:
        if parked.family is None:
            ahead += (_usage(lanes, parked), -parked.priority, age_key(parked)) < mine
    if lanes is None:
        ahead += bisect_left(queue.parents, (rank, *at))
    else:
        for entry in queue.parents:
            ahead += (_usage(lanes, entry[4]), entry[0], entry[1:4]) < mine
    return ahead


def _usage(lanes: Lanes[WorkloadInfo] | None, workload: WorkloadInfo) -> float:
    return lanes.usage_of(lanes.key_of(workload)) if lanes is not None else 0.0
