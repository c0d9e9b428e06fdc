"""Counts reservations, admissions, starts, evictions and ends of workloads, by ClusterQueue and by
LocalQueue: docs/spec/lifecycle.md#8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from admittance.api.meta import Condition
from admittance.api.workload import CheckState
from admittance.events import reasons
from admittance.runtime.telemetry.metrics import Counter, Histogram, Metric
from admittance.workload.conditions import Type, find
from admittance.workload.moves.eviction import total_seconds
from admittance.workload.stored import StoredWorkload

M = TypeVar("M", Counter, Histogram)


class Place(NamedTuple):
    """The labels under which an event of a workload is counted. ``local_queue``: "" if the
    LocalQueue does not exist; then the event counts only for the ClusterQueue."""

    cluster_queue: str
    local_queue: str
    namespace: str
    priority_class: str


class _QueueMetric(Generic[M]):
    """Two metrics of the same events of workloads: one by ClusterQueue, one by LocalQueue."""

    def __init__(self, kind: type[M], name: str, about: str, labels: Sequence[str]) -> None:
        last: tuple[str, ...] = (*labels, "priority_class")
        self.clusters: M = kind(name, about, ("cluster_queue", *last))
        self.locals: M = kind(f"local_queue_{name}", about, ("name", "namespace", *last))

    def at(self, place: Place, *labels: str) -> Iterator[tuple[M, tuple[str, ...]]]:
        """The metrics that an event at the place counts for, with their labels."""
        last: tuple[str, ...] = (*labels, place.priority_class)
        yield self.clusters, (place.cluster_queue, *last)
        if place.local_queue:
            yield self.locals, (place.local_queue, place.namespace, *last)


class QueueCounter(_QueueMetric[Counter]):
    """Counts events of workloads."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        super().__init__(Counter, name, about, labels)

    def add(self, place: Place, *labels: str, amount: float = 1) -> None:
        """Adds ``amount`` to both counters, under the labels of ``place``."""
        for counter, where in self.at(place, *labels):
            counter.add(where, amount)


class QueueHistogram(_QueueMetric[Histogram]):
    """Measures durations."""

    def __init__(self, name: str, about: str) -> None:
        super().__init__(Histogram, name, about, ())

    def observe(self, place: Place, seconds: float | None) -> None:
        """Adds a duration to both histograms; None: it is unknown, and nothing is added."""
        if seconds is not None:
            for histogram, where in self.at(place):
                histogram.observe(where, seconds)


def metrics_of(group: object) -> Iterator[Metric]:
    """The metrics among the attributes of an object, in their order."""
    for value in vars(group).values():
        if isinstance(value, Metric):
            yield value
        elif isinstance(value, _QueueMetric):
            yield from (value.clusters, value.locals)


class LifecycleMetrics:
    """Metrics of reservations, admissions, starts, evictions and ends of workloads, with the
    times between these steps.

    A step is found by comparing the workload's conditions before and after a write, so each step is
    counted once, by the leader that wrote it. The wait of a workload begins at its creation, or at
    the last change of its condition Requeued.
    """

    def __init__(self) -> None:
        self.reserved = QueueCounter(
            "quota_reserved_workloads", "Workloads for which quota was reserved"
        )
        self.reserved_wait = QueueHistogram(
            "quota_reserved_wait_time_seconds", "From the beginning of the wait to the reservation"
        )
        self.admitted = QueueCounter("admitted_workloads", "Admissions")
        self.admission_wait = QueueHistogram(
            "admission_wait_time_seconds", "From the beginning of the wait to the admission"
        )
        self.checks_wait = QueueHistogram(
            "admission_checks_wait_time_seconds",
            "From the reservation to the admission, of workloads with checks",
        )
        self.ready_wait = QueueHistogram(
            "ready_wait_time_seconds", "From the beginning of the wait until all pods were ready"
        )
        self.admitted_until_ready = QueueHistogram(
            "admitted_until_ready_wait_time_seconds",
            "From the admission until all pods were ready for the first time",
        )
        self.finished = QueueCounter("finished_workloads", "Workloads that finished")
        self.execution = QueueHistogram(
            "execution_time_seconds",
            "How long a finished workload was admitted, all its admissions together",
        )
        self.released = Histogram(
            "workload_eviction_latency_seconds",
            "From the eviction until the quota was free",
            ("cluster_queue", "reason"),
        )
        self.ready_to_evicted = Histogram(
            "pods_ready_to_evicted_time_seconds",
            "From the moment when all pods were ready until the eviction",
            ("cluster_queue", "reason", "underlying_cause"),
        )
        self.preempted = Counter(
            "preempted_workloads",
            "Preemptions, by the ClusterQueue that preempted and the rule that allowed it",
            ("preempting_cluster_queue", "reason"),
        )

    def stepped(self, place: Place, before: StoredWorkload, after: StoredWorkload) -> None:
        """Counts the steps of a regular workload or a parent that a write has stored, and their
        times."""
        since = queued_since(before)
        reserved = became_true(before, after, Type.QUOTA_RESERVED)
        if reserved is not None:
            self.reserved.add(place)
            self.reserved_wait.observe(place, seconds_between(since, reserved))
        admitted = became_true(before, after, Type.ADMITTED)
        if admitted is not None:
            self.admission_wait.observe(place, seconds_between(since, admitted))
        ready = became_true(before, after, Type.PODS_READY)
        if ready is not None and ready.reason == reasons.STARTED:
            self.ready_wait.observe(place, seconds_between(since, ready))
            start = find(after, Type.ADMITTED)
            self.admitted_until_ready.observe(place, seconds_between(start, ready))
        finished = became_true(before, after, Type.FINISHED)
        if finished is not None:
            self.finished.add(place)
            seconds = 0
            if finished.last_transition_time is not None:
                seconds = total_seconds(before, finished.last_transition_time)
            if seconds or is_true(find(before, Type.ADMITTED)):
                self.execution.observe(place, max(0, seconds))
        elif is_true(find(before, Type.QUOTA_RESERVED)):
            self._released(before, after)

    def preempted_by(self, before: StoredWorkload, after: StoredWorkload) -> None:
        """Counts the preemption of a workload if a write has stored one."""
        now, old = after.status.preempted_by, before.status.preempted_by
        if now is None or now == old:
            return
        queue = now.grounds.by_cluster_queue if now.grounds is not None else ""
        self.preempted.add((queue, now.rule))

    def evicted(
        self, place: Place, reason: str, cause: str, before: StoredWorkload, after: StoredWorkload
    ) -> None:
        """Records how long the pods of a workload had been ready, if a write evicted the
        workload."""
        ready = find(before, Type.PODS_READY)
        seconds = seconds_between(ready, find(after, Type.EVICTED))
        if seconds is not None and is_true(ready):
            self.ready_to_evicted.observe((place.cluster_queue, reason, cause), seconds)

    def _released(self, before: StoredWorkload, after: StoredWorkload) -> None:
        """Records how long an evicted workload kept its quota, if a write freed the quota."""
        now = find(after, Type.QUOTA_RESERVED)
        evicted = find(after, Type.EVICTED) or find(before, Type.EVICTED)
        if evicted is None or not is_true(evicted) or is_true(now):
            return
        seconds, admission = seconds_between(evicted, now), before.status.admission
        if seconds is not None and admission is not None:
            self.released.observe((admission.cluster_queue, evicted.reason), seconds)


Moment: TypeAlias = datetime | Condition | CheckState | None
"""A time, or the last change of a condition or a check; None: unknown."""


def seconds_between(begin: Moment, end: Moment) -> float | None:
    """The seconds between two moments; None if one of them is unknown. A negative number, as after
    a clock was set back, counts as 0."""
    begun, ended = _time_of(begin), _time_of(end)
    if begun is None or ended is None:
        return None
    return max(0.0, (ended - begun).total_seconds())


def _time_of(moment: Moment) -> datetime | None:
    return moment.last_transition_time if isinstance(moment, Condition | CheckState) else moment


def queued_since(workload: StoredWorkload) -> datetime | None:
    """When a workload began to wait: at its creation, or at the last change of its condition
    Requeued."""
    requeued = find(workload, Type.REQUEUED)
    if requeued is not None and requeued.last_transition_time is not None:
        return requeued.last_transition_time
    return workload.metadata.creation_timestamp


def became_true(before: StoredWorkload, after: StoredWorkload, kind: str) -> Condition | None:
    """The condition of the type ``kind`` if a write made it true; else None. ``before``, ``after``:
    the workload before and after the write."""
    now = find(after, kind)
    return now if is_true(now) and not is_true(find(before, kind)) else None


def is_true(condition: Condition | None) -> bool:
    """Whether the condition exists and is true."""
    return condition is not None and condition.status == "True"
