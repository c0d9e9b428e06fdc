"""Reads values of the bucket, or raises `Unreadable`, because any program may have written these
values.

A workload that this module returns cannot stop a service: its name matches the key, the spec has
the right shape, and all numbers and times are in range.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from admittance.api.arrays import BadIndexes, parse_indexes
from admittance.api.fields.units import parse
from admittance.api.kinds import KINDS
from admittance.api.queues import ClusterQueue, Cohort
from admittance.events.codec import UID_MAX
from admittance.events.names import plain, token
from admittance.events.reader import (
    BROKEN,
    SEQUENCE_MAX,
    Unreadable,
    check_times,
    decode_readable,
    reason_of,
)
from admittance.events.shapes import Admission
from admittance.events.subjects import object_key
from admittance.workload import stored
from admittance.workload.stored import SpecHead, StoredWorkload, WorkloadStatus

if TYPE_CHECKING:
    from admittance.api.manifests import Manifest

_NAMESPACED: Final = {kind.token: kind.namespaced for kind in KINDS.values()}
"""Whether the objects of a kind have a namespace, by the first part of their keys. A foreign kind
is not listed: only the program that owns the kind knows."""
LARGE: Final = 32 * 1024
"""The bytes from which on the value of a workload is cached."""
SECONDS_MAX: Final = 2**33
"""Longest execution time of a job in seconds: 270 years."""


def names_of(key: str) -> tuple[str, str]:
    """Namespace ("": none) and name of the object at a bucket key. Raises Unreadable for a key that
    no object can have."""
    parts = key.split(".")
    namespaced = _NAMESPACED.get(parts[0])
    try:
        if len(parts) == 3 and namespaced is not False:
            return plain(parts[1]), plain(parts[2])
        if len(parts) == 2 and not namespaced:
            return "", plain(parts[1])
    except BROKEN as error:
        raise Unreadable(reason_of(error)) from None
    raise Unreadable("no kind of object has keys of this form")


def read(key: str, value: bytes) -> StoredWorkload:
    """The workload at a bucket key. Raises Unreadable if the value is invalid."""
    return _read(key, value) if len(value) < LARGE else _read_large(key, value)


def _read(key: str, value: bytes) -> StoredWorkload:
    workload = decode_readable(stored.decode, value)
    try:
        _check(key, workload)
    except BROKEN as error:
        raise Unreadable(reason_of(error)) from error
    return workload


# In one process several services read each value: only the first of them decodes a large one. The
# cache keeps a few values, so hostile ones take a limited part of memory.
_read_large = lru_cache(maxsize=8)(_read)


def read_whole(key: str, value: bytes) -> StoredWorkload:
    """Returns the workload as `read` does, and also validates its pod sets. Raises Unreadable if
    the value is invalid."""
    # The module `pod_requests` is imported late, because short commands read workloads without
    # decoding their specs.
    from admittance.api.pod_requests import needs

    workload = read(key, value)
    try:
        read_needs = needs(workload.spec)
        stored.priority_class(workload)
    except BROKEN as error:
        raise Unreadable(f"the spec of the workload is not valid: {reason_of(error)}") from error
    if any(pod_set.count < 0 or pod_set.count > SEQUENCE_MAX for pod_set in read_needs.pod_sets):
        raise Unreadable("in the spec, the count of a pod set is out of range")
    return workload


def read_manifest(key: str, value: bytes) -> Manifest:
    """The manifest other than a workload at a bucket key. Raises Unreadable if the value is
    invalid."""
    from admittance.api.manifests import token_of
    from admittance.api.reading.objects import decode_object

    manifest = decode_readable(lambda data: decode_object(data).manifest, value)
    meta = manifest.metadata
    try:
        names_of(key)
        expected = object_key(token_of(manifest), meta.namespace, meta.name)
    except BROKEN as error:
        raise Unreadable(reason_of(error)) from error
    if key != expected:
        raise Unreadable(
            f"the value at this key belongs to another object: the {manifest.kind} "
            f"{meta.namespace + '/' * bool(meta.namespace)}{meta.name}"
        )
    check_times("metadata", (meta.creation_timestamp, meta.deletion_timestamp))
    if isinstance(manifest, ClusterQueue | Cohort):
        _quotas(manifest)
    return manifest


def _quotas(queue: ClusterQueue | Cohort) -> None:
    """Raises Unreadable for an invalid quantity in the quotas of a queue."""
    spec = queue.spec
    weight = spec.fair_sharing.weight if spec.fair_sharing is not None else None
    written = [weight]
    for group in spec.resource_groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                written += [quota.nominal_quota, quota.borrowing_limit, quota.lending_limit]
    try:
        for text in written:
            if text is not None:
                parse(text)
    except BROKEN as error:
        raise Unreadable(f"the quotas in the spec are not valid: {reason_of(error)}") from None


def _check(key: str, workload: StoredWorkload) -> None:
    """Raises Unreadable if a field of the workload is invalid. Every value that a service reads is
    validated, so validating a valid value must be cheap. The name of a bad field is found only
    after a failure."""
    meta, status = workload.metadata, workload.status
    if key != f"workload.{token(meta.namespace)}.{token(meta.name)}":
        raise Unreadable(
            f"the value at this key belongs to another workload: {meta.namespace}/{meta.name}"
        )
    if len(meta.uid) > UID_MAX:
        raise Unreadable(
            f"the workload's uid has {len(meta.uid)} characters, {UID_MAX} are allowed"
        )
    spec = stored.decode_head(workload.spec)
    if spec.role != "regular" and spec.role not in ("parent", "variant", "array"):
        raise Unreadable("spec.role is not the name of a role")
    if not 0 <= (spec.maximum_execution_time_seconds or 0) <= SECONDS_MAX:
        raise Unreadable("spec.maximumExecutionTimeSeconds is out of range")
    _time(meta.creation_timestamp, "metadata.creationTimestamp")
    if meta.deletion_timestamp is not None:
        _time(meta.deletion_timestamp, "metadata.deletionTimestamp")
    for condition in status.conditions:
        time = condition.last_transition_time
        if time is not None and (time.tzinfo is None or not 1900 <= time.year < 9000):
            check_times("status.conditions", (time,))
    if not (
        0 <= status.log.fact <= SEQUENCE_MAX
        and 0 <= status.admission_cycle <= SEQUENCE_MAX
        and 0 <= status.rounds_since <= SEQUENCE_MAX
        and 0 <= status.restarts <= SEQUENCE_MAX
        and 0 <= status.admitted_revision <= SEQUENCE_MAX
        and 0 <= status.evicted_revision <= SEQUENCE_MAX
        and 0 <= status.released_revision <= SEQUENCE_MAX
        and 0 <= (status.accumulated_past_execution_time_seconds or 0) <= SEQUENCE_MAX
    ):
        raise Unreadable(
            "in the status, the number of a fact, cycle or revision, or a time, is out of range"
        )
    if status.started_at is not None:
        _time(status.started_at, "status.startedAt")
    if status.admission is not None:
        _admission(status.admission)
    if status.admission_checks:
        _rows(status)
    if status.requeue_state is not None:
        state = status.requeue_state
        _time(state.requeue_at, "status.requeueState")
        _time(state.pods_ready_until, "status.requeueState")
        _count(state.count, "status.requeueState.count")
    if spec.role == "array":
        _array(spec, status)
    elif spec.role != "regular":
        _family(status)
    if status.preemptions or status.pending_preemption or status.reclaimable_pods:
        _preempting(status)


def _time(time: datetime | None, where: str) -> None:
    if time is not None and (time.tzinfo is None or not 1900 <= time.year < 9000):
        check_times(where, (time,))


def _count(number: int | None, where: str) -> None:
    if number is not None and not 0 <= number <= SEQUENCE_MAX:
        raise Unreadable(f"{where}: the number {number} is out of range")


def _admission(admission: Admission) -> None:
    for pods in admission.pod_set_assignments:
        _count(pods.count, "status.admission")
        for text in pods.resource_usage.values():
            parse(text)


def _rows(status: WorkloadStatus) -> None:
    for row in status.admission_checks:
        _time(row.last_transition_time, "status.admissionChecks")
        _count(row.retry_count, "status.admissionChecks")
        _count(row.requeue_after_seconds, "status.admissionChecks")
        _count(row.verdict_cycle, "status.admissionChecks")
    for number in status.check_retry_counts.values():
        _count(number, "status.checkRetryCounts")


def _family(status: WorkloadStatus) -> None:
    _time(status.family_start, "status.familyStart")
    _time(status.first_admitted_at, "status.firstAdmittedAt")
    _time(status.next_change_at, "status.nextChangeAt")
    if status.preemption_gate is not None:
        _time(status.preemption_gate.since, "status.preemptionGate")
    for variant in status.variants:
        for condition in variant.conditions:
            _time(condition.last_transition_time, "status.variants")
    if status.promised is not None:
        _admission(status.promised)


def _array(spec: SpecHead, status: WorkloadStatus) -> None:
    if spec.array is None or status.array is None:
        raise Unreadable("spec.array or status.array is missing, but spec.role is array")
    try:
        total = len(parse_indexes(spec.array.indexes))
    except BadIndexes as error:
        raise Unreadable(f"spec.array: {error}") from None
    counts = status.array
    if len(counts.results) != total or not 0 <= counts.created <= total:
        raise Unreadable("status.array does not fit to the indexes in spec.array")
    for number in counts.states.values():
        _count(number, "status.array")


def _preempting(status: WorkloadStatus) -> None:
    for preemption in status.preemptions:
        _time(preemption.last, "status.preemptions")
    if status.pending_preemption is not None:
        for victim in status.pending_preemption.victims:
            _time(victim.since, "status.pendingPreemption")
    for pod in status.reclaimable_pods:
        _count(pod.count, "status.reclaimablePods")
