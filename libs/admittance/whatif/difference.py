"""Compares two settled copies of the bucket: one with the simulated change and one without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.fields.units import render
from admittance.events import reasons
from admittance.events.requests.queues import PendingRow
from admittance.events.requests.whatif import (
    Counts,
    SimulatedState,
    WouldBeEvicted,
    WouldStart,
    WouldWait,
)
from admittance.events.shapes import Shortfall
from admittance.quota.catalog import Activity
from admittance.quota.tree import Node
from admittance.scheduling.preemption.quota_reduction import overloaded_nodes
from admittance.whatif.bucket_copy import BucketCopy, Eviction, Key
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.phase import Phase, holds_quota, phase
from admittance.workload.stored import StoredWorkload, head

_RUN: Final = (Phase.ADMITTED, Phase.RUNNING, Phase.EVICTING)
_OFF: Final = (Phase.DEACTIVATED, Phase.REJECTED)


class PendingWorkload(NamedTuple):
    """A pending workload: ``of``, its row in the list of the scheduler's pending workloads, and the
    reason why the workload waits."""

    of: PendingRow
    reason: str
    message: str
    shortfalls: tuple[Shortfall, ...]


class Baseline(NamedTuple):
    """What the settled bucket copy without the simulated change contains. ``written``: the
    workloads that the simulation wrote, as last written; ``evicted``: the reason of each evicted
    workload; ``rows``: the pending workloads."""

    written: dict[Key, StoredWorkload | None]
    evicted: dict[Key, str]
    rows: dict[Key, PendingWorkload]

    def workload(self, key: Key, start: StoredWorkload | None) -> StoredWorkload | None:
        """Returns the workload as the simulation without the change leaves it. ``start``: the
        workload in the bucket, to return if the simulation did not write it."""
        return self.written.get(key, start)


def baseline(copy: BucketCopy) -> Baseline:
    """Returns what a settled bucket copy without the simulated change contains, as values that
    later writes to the bucket copy do not affect."""
    return Baseline(
        {key: copy.shown(key) for key in copy.before},
        {key: eviction.reason for key, eviction in copy.evictions.items()},
        rows_of(copy),
    )


def rows_of(copy: BucketCopy) -> dict[Key, PendingWorkload]:
    """Returns all pending workloads of the bucket copy, queue by queue, in order. All workloads of
    a stopped or inactive queue have the queue's reason."""
    closed: dict[Key, Activity] = {}
    rows: dict[Key, PendingWorkload] = {}
    for listed, refusal in copy.scheduler.waiting():
        key = copy.family((listed.namespace, listed.name))
        if key in rows or _has_quota(copy, key):
            continue
        row, local = replace(listed, name=key[1]), (listed.namespace, listed.local_queue)
        activity = closed.get(local)
        if activity is None:
            activity = closed[local] = _activity(copy, *local)
        shortfalls = refusal.shortfalls if refusal is not None else ()
        if activity.active:
            rows[key] = PendingWorkload(row, row.reason, row.message, shortfalls)
        else:
            rows[key] = PendingWorkload(row, activity.reason, activity.message, ())
    return rows


def _has_quota(copy: BucketCopy, key: Key) -> bool:
    """Whether the workload or a variant of its family has quota."""
    shown = copy.shown(key)
    return shown is not None and holds_quota(shown)


def _activity(copy: BucketCopy, namespace: str, name: str) -> Activity:
    """Returns whether the LocalQueue is active, with the reason if not; for an inactive
    ClusterQueue the ClusterQueue's reason."""
    catalog = copy.scheduler.catalog
    activity = catalog.local_queue_activity(namespace, name)
    if activity.reason != reasons.CLUSTER_QUEUE_IS_INACTIVE:
        return activity
    return catalog.activity(catalog.local_queues[namespace, name].spec.cluster_queue)


class Difference:
    """Compares ``copy``, a settled copy of the bucket with the simulated change, to ``without``,
    the result of the simulation without the change. The lists `starts`, `waits` and `evictions`
    contain only workloads of ``namespace`` ("": of all namespaces); `counts` includes all
    workloads."""

    def __init__(self, copy: BucketCopy, without: Baseline, *, namespace: str = "") -> None:
        self._copy = copy
        self._without = without
        self._namespace = namespace
        self._rows = rows_of(copy)
        self._evicted = {
            key: eviction
            for key, eviction in copy.evictions.items()
            if without.evicted.get(key) != eviction.reason
        }
        self._starting = [key for key in self._moved() if self._starts(key)]
        self._waiting = [key for key in self._rows if self._waits(key)]

    # Comparing. ---------------------------------------------------------------------------------

    def _moved(self) -> dict[Key, None]:
        """Returns the keys of all workloads that the simulation wrote in either bucket copy: first
        the workloads in the copy with the change."""
        return dict.fromkeys((*self._copy.reserved, *self._copy.before, *self._without.written))

    def _otherwise(self, key: Key) -> StoredWorkload | None:
        """Returns the workload as the simulation without the change leaves it."""
        before = self._copy.before
        start = before[key] if key in before else self._copy.shown(key)
        return self._without.workload(key, start)

    def _starts(self, key: Key) -> bool:
        here, there = self._copy.shown(key), self._otherwise(key)
        if here is None or not holds_quota(here) or is_true(here, Type.EVICTED):
            return False
        if there is None or not holds_quota(there) or key in self._evicted:
            return True
        if here.status.admission != there.status.admission:
            return True
        return is_true(here, Type.ADMITTED) and not is_true(there, Type.ADMITTED)

    def _waits(self, key: Key) -> bool:
        row, was = self._rows[key], self._without.rows.get(key)
        if was is None or key in self._evicted or row.of.cluster_queue != was.of.cluster_queue:
            return True
        # If the simulated scheduler has not considered the workload in one of the two bucket
        # copies, the reasons in the copies cannot be compared.
        return row.reason != was.reason and reasons.PENDING_EVALUATION not in (
            row.reason,
            was.reason,
        )

    def queues_of_new(self) -> set[str]:
        """Returns the ClusterQueues in which workloads wait that the simulated change submits."""
        rows, without = self._rows, self._without.rows
        return {rows[key].of.cluster_queue for key in self._waiting if key not in without}

    # The lists. ---------------------------------------------------------------------------------

    def starts(self) -> Iterator[WouldStart]:
        """Yields the workloads that start because of the simulated change, in the order in which
        they get their quota."""
        for key in sorted(self._starting, key=lambda key: self._copy.reserved.get(key, 0)):
            if self._namespace in ("", key[0]):
                yield self._start(key)

    def _start(self, key: Key) -> WouldStart:
        copy = self._copy
        workload = copy.shown(key)
        assert workload is not None and workload.status.admission is not None, "it holds quota"
        spec = head(workload)
        admitted = is_true(workload, Type.ADMITTED)
        return WouldStart(
            namespace=key[0],
            name=key[1],
            local_queue=spec.queue_name,
            priority=spec.priority or 0,
            admission=workload.status.admission,
            checks=()
            if admitted
            else tuple(r.name for r in workload.status.admission_checks if r.state != "Ready"),
            after=copy.reserved.get(key, 0),
            preempts=tuple(copy.preempted.get(key, ())),
            again=key in self._evicted,
            otherwise=self._standing_without(key),
        )

    def waits(self) -> Iterator[WouldWait]:
        """Yields the workloads that wait because of the simulated change, queue by queue, each
        queue in its order."""
        for key in self._waiting:
            if self._namespace in ("", key[0]):
                yield self._wait(key)

    def _wait(self, key: Key) -> WouldWait:
        row = self._rows[key]
        return WouldWait(
            namespace=key[0],
            name=key[1],
            cluster_queue=row.of.cluster_queue,
            local_queue=row.of.local_queue,
            priority=row.of.priority,
            position=row.of.position,
            reason=row.reason,
            message=row.message,
            shortfalls=row.shortfalls,
            otherwise=self._standing_without(key),
        )

    def evictions(self) -> Iterator[WouldBeEvicted]:
        """Yields the workloads that are evicted because of the simulated change, in the order in
        which they lose their quota."""
        for key, eviction in self._evicted.items():
            if self._namespace in ("", key[0]):
                yield self._eviction(key, eviction)

    def _eviction(self, key: Key, eviction: Eviction) -> WouldBeEvicted:
        admission = eviction.held.status.admission
        spec = head(eviction.held)
        workload = self._copy.shown(key)
        return WouldBeEvicted(
            namespace=key[0],
            name=key[1],
            cluster_queue=admission.cluster_queue if admission is not None else "",
            local_queue=spec.queue_name,
            priority=spec.priority or 0,
            reason=eviction.reason,
            message=eviction.message,
            rule=eviction.preempted.rule if eviction.preempted is not None else "",
            by=eviction.preempted.by if eviction.preempted is not None else "",
            grounds=eviction.preempted.grounds if eviction.preempted is not None else None,
            ran=is_true(eviction.held, Type.ADMITTED),
            after=eviction.wave,
            then=self._standing(workload, self._rows.get(key)),
        )

    def _standing_without(self, key: Key) -> SimulatedState | None:
        return self._standing(self._otherwise(key), self._without.rows.get(key))

    def _standing(
        self, workload: StoredWorkload | None, row: PendingWorkload | None
    ) -> SimulatedState | None:
        if workload is None:
            return None
        where = phase(workload, self._copy.now)
        if holds_quota(workload):
            return SimulatedState(phase=where, admission=workload.status.admission)
        reserved = find(workload, Type.QUOTA_RESERVED)
        reason, message = (reserved.reason, reserved.message) if reserved is not None else ("", "")
        if row is not None and row.reason != reasons.BACKOFF:
            reason, message = row.reason, row.message
        return SimulatedState(
            phase=where,
            reason=reason,
            message=message,
            position=row.of.position if row is not None else 0,
        )

    # The counts. --------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Returns the number of rows of `starts`, `waits` and `evictions` in all namespaces, and
        the number of all other workloads by state."""
        listed = {*self._starting, *self._waiting, *self._evicted}
        others = Counter(
            phase(workload, self._copy.now)
            for key, workload in self._copy.workloads()
            if key not in listed
        )
        gone = sum(
            self._copy.shown(key) is None and self._otherwise(key) is not None
            for key in self._copy.before
        )
        return Counts(
            starts=len(self._starting),
            waits=len(self._waiting),
            evictions=len(self._evicted),
            gone=gone,
            run=sum(others[where] for where in _RUN),
            reserved=others[Phase.QUOTA_RESERVED],
            pending=others[Phase.PENDING] + others[Phase.BACKOFF],
            off=sum(others[where] for where in _OFF),
        )


class QueueProblems(NamedTuple):
    """Problems of queues in a copy of the bucket, one sentence for each object: inactive
    ClusterQueues (``inactive``), LocalQueues without a ClusterQueue (``orphaned``), and
    ClusterQueues and cohorts that use more than their limit (``over``). ``queues``: the names of
    all ClusterQueues."""

    queues: frozenset[str]
    inactive: dict[str, str]
    orphaned: dict[tuple[str, str], str]
    over: dict[tuple[str, str, str], str]


def queue_problems(copy: BucketCopy) -> QueueProblems:
    """Returns the problems of the queues in the bucket copy, as it is now."""
    catalog = copy.scheduler.catalog
    inactive = {}
    for name in catalog.cluster_queues:
        activity = catalog.activity(name)
        if not activity.active:
            inactive[name] = activity.message
        elif catalog.in_cycle(name):
            inactive[name] = "Can't admit new workloads: its cohorts form a cycle."
    orphaned = {}
    for key in catalog.local_queues:
        activity = catalog.local_queue_activity(*key)
        if activity.reason == reasons.CLUSTER_QUEUE_DOES_NOT_EXIST:
            orphaned[key] = activity.message
    return QueueProblems(frozenset(catalog.cluster_queues), inactive, orphaned, dict(_over(copy)))


def _over(copy: BucketCopy) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yields the ClusterQueues and cohorts in the bucket copy that use more than their limit, found
    as the scheduler finds them."""
    roots: dict[int, Node] = {}
    for node in copy.scheduler.catalog.tree.queues.values():
        root = node.root()
        roots[id(root)] = root
    for root in roots.values():
        for excess in overloaded_nodes(root):
            flavor, resource = excess.fr
            owner = f"{'cohort' if excess.node.is_cohort else 'ClusterQueue'} {excess.node.name}"
            used, limit = render(resource, excess.usage), render(resource, excess.limit)
            yield (
                (owner, flavor, resource),
                f"{owner} would use {used} of {resource} in flavor {flavor}, more than its limit "
                f"of {limit}: running workloads continue, and no workload starts there until the "
                "usage is below the limit",
            )


def new_problems(
    copy: BucketCopy, before: QueueProblems, wanted: Container[str] = ()
) -> Iterator[str]:
    """Yields a sentence for each problem of the queues in ``copy``, the bucket copy with the
    simulated change, that is not in ``before``, the problems without the change, and for each
    inactive ClusterQueue in ``wanted``."""
    now = queue_problems(copy)
    for name, message in now.inactive.items():
        if name in before.inactive:
            if name in wanted:
                yield f"ClusterQueue {name} is inactive: {message}"
        else:
            what = "becomes" if name in before.queues else "would be"
            yield f"ClusterQueue {name} {what} inactive: {message}"
    for key, message in now.orphaned.items():
        if key not in before.orphaned:
            yield f"LocalQueue {'/'.join(key)}: {message}"
    for where, message in now.over.items():
        if where not in before.over:
            yield message
    if copy.cut_off:
        yield "the simulation reached its limit before it settled: the result is incomplete"
    if copy.unreadable:
        some = ", ".join(copy.unreadable[:3])
        yield f"{len(copy.unreadable)} keys of the bucket have unreadable values, such as {some}"
