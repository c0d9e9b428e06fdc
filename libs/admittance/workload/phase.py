"""The phase of a workload: derived by one function and never stored. docs/spec/lifecycle.md#1.3."""

from __future__ import annotations

from datetime import datetime

from admittance.api.workload import ArrayStatus
from admittance.events import reasons
from admittance.phases import Phase as Phase
from admittance.workload.conditions import Type, find, is_false, is_true
from admittance.workload.stored import StoredWorkload, head


def is_reserved(workload: StoredWorkload) -> bool:
    """Whether quota is reserved for the workload."""
    return is_true(workload, Type.QUOTA_RESERVED)


def holds_quota(workload: StoredWorkload) -> bool:
    """Whether the admission of the workload counts as usage: the workload is reserved and not
    finished. The quota of a workload counts during its eviction too."""
    return (
        workload.status.admission is not None
        and is_reserved(workload)
        and not is_true(workload, Type.FINISHED)
    )


def is_stopping(workload: StoredWorkload) -> bool:
    """Whether the workload is evicted and keeps its quota until its job has stopped."""
    return holds_quota(workload) and is_true(workload, Type.EVICTED)


def phase(workload: StoredWorkload, now: datetime) -> Phase:
    """The phase of the workload, for the CLI, the metrics and the tests."""
    if is_true(workload, Type.FINISHED):
        return Phase.FINISHED
    evicted = find(workload, Type.EVICTED)
    if not head(workload).active:
        if evicted is not None and evicted.reason == reasons.DEACTIVATED_DUE_TO_ADMISSION_CHECK:
            return Phase.REJECTED
        return Phase.DEACTIVATED
    reserved = is_reserved(workload)
    if reserved and evicted is not None and evicted.status == "True":
        return Phase.EVICTING
    if is_true(workload, Type.ADMITTED):
        return Phase.RUNNING if is_true(workload, Type.PODS_READY) else Phase.ADMITTED
    if reserved:
        return Phase.QUOTA_RESERVED
    if workload.status.array is not None:
        return _furthest(workload.status.array)
    state = workload.status.requeue_state
    waits = state is not None and state.requeue_at is not None and state.requeue_at > now
    if waits or is_false(workload, Type.REQUEUED):
        return Phase.BACKOFF
    return Phase.PENDING


_FURTHEST = (Phase.RUNNING, Phase.ADMITTED, Phase.QUOTA_RESERVED)


def _furthest(array: ArrayStatus) -> Phase:
    """The phase of an array that has not ended: the furthest of its elements."""
    return next((phase for phase in _FURTHEST if array.states.get(phase)), Phase.PENDING)
