"""Reads values of the bucket that any hand may have written: the object, or `Unreadable`. Pure.

A workload that passes here does not stop any service: the names are those of its key, the spec has
the shape of a spec, and no number or time is beyond what there can be.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admittance.api.foreign import Foreign
from admittance.api.kinds import KINDS, Manifest
from admittance.api.manifest import decode_object
from admittance.api.meta import Condition
from admittance.api.needs import needs
from admittance.api.quantity import parse
from admittance.api.queues import ClusterQueue, Cohort
from admittance.events.codec import UID_MAX
from admittance.events.names import plain
from admittance.events.reading import (
    BROKEN,
    SEQUENCE_MAX,
    Unreadable,
    check_times,
    guarded,
    reason_of,
)
from admittance.events.shapes import Admission
from admittance.events.subjects import object_key, workload_key
from admittance.workload import stored
from admittance.workload.stored import StoredWorkload, WorkloadStatus

SECONDS_MAX: Final = 2**33
"""Of the longest time that a job may run: 270 years."""


def names_of(key: str) -> tuple[str, str]:
    """Namespace ("": none) and name of the object at a bucket key, readable or deleted. Raises
    Unreadable where no object has such a key."""
    kind, *rest = key.split(".")
    if len(rest) != 2 and (len(rest) != 1 or kind == "workload"):
        raise Unreadable("no object has such a key")
    try:
        namespace, name = ("", *map(plain, rest))[-2:]
    except BROKEN as error:
        raise Unreadable(reason_of(error)) from None
    return namespace, name


def read(key: str, value: bytes) -> StoredWorkload:
    """The workload at a bucket key. Raises Unreadable."""
    workload = guarded(stored.decode, value)
    try:
        _check(key, workload)
    except BROKEN as error:
        raise Unreadable(reason_of(error)) from error
    return workload


def read_whole(key: str, value: bytes) -> StoredWorkload:
    """As `read`, with the pod sets looked into: for where nothing else looks into them at once.
    Raises Unreadable."""
    workload = read(key, value)
    try:
        found = needs(workload.spec)
        stored.priority_class(workload)
    except BROKEN as error:
        raise Unreadable(f"spec: {reason_of(error)}") from error
    if any(one.count < 0 or one.count > SEQUENCE_MAX for one in found.pod_sets):
        raise Unreadable("spec: the count of a pod set is out of range")
    return workload


def read_manifest(key: str, value: bytes) -> Manifest:
    """The manifest other than a workload at a bucket key. Raises Unreadable."""
    found = guarded(lambda data: decode_object(data).manifest, value)
    meta = found.metadata
    try:
        prefix = found.token if isinstance(found, Foreign) else KINDS[found.kind].token
        expected = object_key(prefix, meta.namespace, meta.name)
    except BROKEN as error:
        raise Unreadable(reason_of(error)) from error
    if key != expected:
        raise Unreadable(
            f"it is the {found.kind} {meta.namespace + '/' * bool(meta.namespace)}{meta.name}"
        )
    check_times("metadata", (meta.creation_timestamp, meta.deletion_timestamp))
    if isinstance(found, ClusterQueue | Cohort):
        _quotas(found)
    return found


def _quotas(queue: ClusterQueue | Cohort) -> None:
    """Raises Unreadable for what is no quantity."""
    spec = queue.spec
    weight = spec.fair_sharing.weight if spec.fair_sharing is not None else None
    written = [weight]
    for group in spec.resource_groups:
        for flavor in group.flavors:
            for one in flavor.resources:
                written += [one.nominal_quota, one.borrowing_limit, one.lending_limit]
    try:
        for text in written:
            if text is not None:
                parse(text)
    except BROKEN as error:
        raise Unreadable(f"spec: {reason_of(error)}") from None


def _check(key: str, workload: StoredWorkload) -> None:
    meta, status = workload.metadata, workload.status
    if key != workload_key(meta.namespace, meta.name):
        raise Unreadable(f"it is named {meta.namespace}/{meta.name}")
    if len(meta.uid) > UID_MAX:
        raise Unreadable(f"the uid has {len(meta.uid)} characters, {UID_MAX} are allowed")
    spec = stored.head(workload)
    if spec.role not in ("regular", "parent", "variant"):
        raise Unreadable("spec.role: there is no such role")
    if not 0 <= (spec.maximum_execution_time_seconds or 0) <= SECONDS_MAX:
        raise Unreadable("spec.maximumExecutionTimeSeconds is out of range")
    check_times("metadata", (meta.creation_timestamp, meta.deletion_timestamp))
    _conditions(status.conditions)
    _numbers(status)
    for admission in (status.admission, status.promised):
        if admission is not None:
            _admission(admission)
    if status.requeue_state is not None or status.admission_checks or status.variants:
        _waits(status)


def _conditions(conditions: Iterable[Condition]) -> None:
    for one in conditions:
        check_times(f"condition {one.type}", (one.last_transition_time,))


def _numbers(status: WorkloadStatus) -> None:
    for name, number in (
        ("log.fact", status.log.fact),
        ("admissionCycle", status.admission_cycle),
        ("roundsSince", status.rounds_since),
        ("admittedRevision", status.admitted_revision),
        ("evictedRevision", status.evicted_revision),
        ("accumulatedPastExecutionTimeSeconds", status.accumulated_past_execution_time_seconds),
        *((f"checkRetryCounts.{check}", count) for check, count in _counts(status)),
        *((f"reclaimablePods.{one.name}", one.count) for one in status.reclaimable_pods),
    ):
        if number is not None and not 0 <= number <= SEQUENCE_MAX:
            raise Unreadable(f"status.{name}: {number} is out of range")
    check_times("status", (status.family_start, status.first_admitted_at, status.next_change_at))
    if status.preemption_gate is not None:
        check_times("status.preemptionGate", (status.preemption_gate.since,))
    for gate in status.preemption_gates:
        check_times("status.preemptionGates", (gate.last_transition_time, gate.used_at))
    for preemption in status.preemptions:
        check_times("status.preemptions", (preemption.last,))
    if status.pending_preemption is not None:
        check_times(
            "status.pendingPreemption", (one.since for one in status.pending_preemption.victims)
        )


def _counts(status: WorkloadStatus) -> Iterable[tuple[str, int]]:
    return status.check_retry_counts.items() if status.check_retry_counts else ()


def _admission(admission: Admission) -> None:
    for pods in admission.pod_set_assignments:
        if not 0 <= pods.count <= SEQUENCE_MAX:
            raise Unreadable(f"status.admission: count {pods.count} is out of range")
        for text in pods.resource_usage.values():
            parse(text)


def _waits(status: WorkloadStatus) -> None:
    state = status.requeue_state
    if state is not None:
        check_times("status.requeueState", (state.requeue_at, state.pods_ready_until))
        if state.count is not None and not 0 <= state.count <= SEQUENCE_MAX:
            raise Unreadable("status.requeueState.count is out of range")
    for row in status.admission_checks:
        check_times(f"status.admissionChecks.{row.name}", (row.last_transition_time,))
        for number in (row.retry_count, row.requeue_after_seconds, row.verdict_cycle):
            if number is not None and not 0 <= number <= SEQUENCE_MAX:
                raise Unreadable(f"status.admissionChecks.{row.name}: {number} is out of range")
    for variant in status.variants:
        _conditions(variant.conditions)
