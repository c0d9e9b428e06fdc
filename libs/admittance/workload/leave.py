"""Losing a reservation: evictions, the release that ends them, deactivation. LIFECYCLE T09-T19.

Eviction has two phases. First Evicted=True is written with the quota still booked, and the runner
stops the job; only what it reports then releases the quota. A workload that never started a job
is evicted and released in one write.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from admittance.api.workload import (
    EvictionCount,
    GatePosition,
    RequeueState,
    SchedulingStats,
)
from admittance.workload.change import Change, applied, with_spec, with_status
from admittance.workload.conditions import Type, find, is_true, put, without
from admittance.workload.occasion import Occasion
from admittance.workload.phase import is_reserved, is_stopping
from admittance.workload.rows import Rows, cleared, without_counts
from admittance.workload.stored import Say, StoredWorkload, head

COMES_BACK_AT_ONCE: Final = frozenset(
    {"Preempted", "NodeFailures", "QuotaChanged", "FlavorsChanged"}
)
"""Eviction reasons after which the workload competes again as soon as it is released."""

RESTARTED: Final = {
    "ClusterQueueStopped": "ClusterQueueRestarted",
    "LocalQueueStopped": "LocalQueueRestarted",
    "Suspended": "ClusterQueueRestarted",
}
"""Eviction reasons that end when the queue runs again, and as what."""


def withdrawals(workload: StoredWorkload, reason: str) -> tuple[Say, ...]:
    """What tells the check controllers to stop; nothing unless they had been asked."""
    if not is_reserved(workload):
        return ()
    return tuple(
        Say(
            what="check_withdrawn",
            detail=row.name,
            reason=reason,
            cycle=workload.status.admission_cycle,
        )
        for row in workload.status.admission_checks
    )


def fresh_rows(workload: StoredWorkload, at: Occasion) -> Rows:
    """The rows of a workload without a reservation, all Pending."""
    queue = at.around.cluster_queue(workload.metadata.namespace, head(workload).queue_name)
    required = at.around.required_checks(queue, None) if queue else ()
    return cleared(workload.status.admission_checks, required, now=at.now)


def _counted(workload: StoredWorkload, reason: str) -> SchedulingStats:
    stats = workload.status.scheduling_stats or SchedulingStats()
    rest = tuple(row for row in stats.evictions if row.reason != reason)
    before = sum(row.count for row in stats.evictions if row.reason == reason)
    return SchedulingStats(evictions=(*rest, EvictionCount(reason=reason, count=before + 1)))


def evict(
    workload: StoredWorkload,
    reason: str,
    message: str,
    at: Occasion,
    *,
    preempted_as: str = "",
    keep_rows: bool = False,
) -> Change:
    """The workload begins to lose its reservation. What is released at once says so, too.

    keep_rows: a check's Retry keeps the rows as they are until the wait is over.
    """
    says = withdrawals(workload, reason)
    conditions = put(workload.status.conditions, Type.EVICTED, True, reason, message, now=at.now)
    if preempted_as:
        conditions = put(conditions, Type.PREEMPTED, True, preempted_as, message, now=at.now)
    conditions = without(conditions, Type.REQUEUED)
    fields = {
        "conditions": conditions,
        "scheduling_stats": _counted(workload, reason),
        "preemption_gates": closed(workload.status.preemption_gates, at),
        "evicted_revision": 0,
    }
    if not keep_rows:
        fields["admission_checks"] = fresh_rows(workload, at)
        fields["admission_cycle"] = workload.status.admission_cycle + 1
        fields["rounds_since"] = workload.status.admission_cycle + 1
    evicted = with_status(workload, **fields)
    evicted_say = Say(what="evicted", reason=reason, message=message)
    if is_true(workload, Type.ADMITTED):
        return applied(evicted, evicted_say, *says)
    released = release(evicted, at)
    return released._replace(says=(evicted_say, *says, *released.says))


def release(workload: StoredWorkload, at: Occasion) -> Change:
    """The job has stopped, or there was none: the quota is free. T19."""
    if workload.metadata.deletion_timestamp is not None:
        return Change(None)
    evicted = find(workload, Type.EVICTED)
    reason = evicted.reason if evicted is not None and evicted.status == "True" else "Pending"
    message = evicted.message if evicted is not None else ""
    spec = head(workload)
    status = workload.status
    conditions = status.conditions
    admitted = find(workload, Type.ADMITTED)
    spent = status.accumulated_past_execution_time_seconds or 0
    if admitted is not None and admitted.status == "True" and admitted.last_transition_time:
        spent += int((at.now - admitted.last_transition_time).total_seconds())
    waits_why = "Deactivated" if not spec.active else "PendingEvaluation"
    hindrance = at.around.hindrance(workload.metadata.namespace, spec.queue_name)
    if spec.active and hindrance is not None:
        waits_why, message = hindrance.reason, hindrance.message
    conditions = put(conditions, Type.QUOTA_RESERVED, False, waits_why, message, now=at.now)
    conditions = put(
        conditions,
        Type.ADMITTED,
        False,
        "NoReservation",
        "The workload has no reservation",
        now=at.now,
    )
    conditions = without(conditions, Type.PODS_READY)
    back, why = _may_come_back(workload, reason, at)
    conditions = put(conditions, Type.REQUEUED, back, why, message, now=at.now)
    # What a runner could apply goes with the reservation, whatever becomes of the rows.
    rows = tuple(
        replace(row, pod_set_updates=()) if row.pod_set_updates else row
        for row in status.admission_checks
    )
    released = with_status(
        workload,
        conditions=conditions,
        admission=None,
        admission_checks=rows,
        admitted_revision=0,
        accumulated_past_execution_time_seconds=spent or None,
    )
    what = "requeued" if back and spec.active else "pending"
    return applied(released, Say(what=what, reason=why, message=message))


def _may_come_back(workload: StoredWorkload, reason: str, at: Occasion) -> tuple[bool, str]:
    spec = head(workload)
    requeued = find(workload, Type.REQUEUED)
    if not spec.active:
        return False, reason
    if any(row.state == "Retry" for row in workload.status.admission_checks):
        return False, "AdmissionCheck"
    if requeued is not None and requeued.status == "True" and requeued.reason == "Reactivated":
        return True, "Reactivated"
    if reason in COMES_BACK_AT_ONCE:
        return True, reason
    runs = at.around.hindrance(workload.metadata.namespace, spec.queue_name) is None
    if reason in RESTARTED and runs:
        return True, RESTARTED[reason]
    if reason == "Pending":
        return True, "QuotaChanged"
    return False, reason


def withdraw(workload: StoredWorkload, reason: str, message: str, at: Occasion) -> Change:
    """A reservation without a job is dropped without an eviction: T09, T18."""
    says = withdrawals(workload, reason)
    cycle = workload.status.admission_cycle + 1
    dropped = with_status(
        workload,
        admission_checks=fresh_rows(workload, at),
        admission_cycle=cycle,
        rounds_since=cycle,
    )
    change = release(
        with_status(dropped, conditions=without(dropped.status.conditions, Type.EVICTED)), at
    )
    assert change.workload is not None, "only an evicted workload disappears"
    conditions = put(
        change.workload.status.conditions, Type.QUOTA_RESERVED, False, reason, message, now=at.now
    )
    requeued = find(change.workload, Type.REQUEUED)
    if reason in COMES_BACK_AT_ONCE and requeued is not None and requeued.status == "True":
        conditions = put(conditions, Type.REQUEUED, True, reason, message, now=at.now)
    return applied(
        with_status(change.workload, conditions=conditions),
        *says,
        Say(what="pending", reason=reason, message=message),
    )


def deactivate(workload: StoredWorkload, reason: str, message: str, at: Occasion) -> Change:
    """The workload is turned off: T16, and what T11, T14 and T15 end in.

    An earlier eviction keeps its reason, unless it is itself one that was reactivated since.
    """
    cycle = workload.status.admission_cycle + 1
    off = with_spec(workload, active=False)
    if is_stopping(workload):
        evicted = find(workload, Type.EVICTED)
        assert evicted is not None, "it is stopping"
        keep = reason == "Deactivated" and not evicted.reason.startswith("Deactivated")
        conditions = off.status.conditions
        if not keep:
            conditions = put(conditions, Type.EVICTED, True, reason, message, now=at.now)
        conditions = without(conditions, Type.REQUEUED)
        change = applied(with_status(off, conditions=conditions))
    elif is_reserved(workload):
        change = evict(off, reason, message, at)
    else:
        evicted = find(workload, Type.EVICTED)
        before = evicted is not None and evicted.status == "True"
        keep = (
            before
            and evicted is not None
            and reason == "Deactivated"
            and not evicted.reason.startswith("Deactivated")
        )
        conditions = off.status.conditions
        if not keep:
            conditions = put(conditions, Type.EVICTED, True, reason, message, now=at.now)
        conditions = put(conditions, Type.QUOTA_RESERVED, False, "Deactivated", message, now=at.now)
        conditions = put(conditions, Type.REQUEUED, False, reason, message, now=at.now)
        change = applied(
            with_status(off, conditions=conditions),
            Say(what="pending", reason="Deactivated", message=message),
        )
    assert change.workload is not None, "nothing was deleted"
    fresh = without_counts(fresh_rows(change.workload, at))
    return change._replace(
        workload=with_status(
            change.workload,
            admission_checks=fresh,
            admission_cycle=cycle,
            rounds_since=cycle,
            requeue_state=None,
            check_retry_counts={},
            preemption_gates=closed(change.workload.status.preemption_gates, at),
        )
    )


def closed(gates: tuple[GatePosition, ...], at: Occasion) -> tuple[GatePosition, ...]:
    """The gates, all of them closed: whoever is evicted has to ask again before it preempts."""
    return tuple(
        gate
        if gate.position == "Closed"
        else GatePosition(name=gate.name, position="Closed", last_transition_time=at.now)
        for gate in gates
    )


def no_wait(state: RequeueState | None) -> RequeueState | None:
    """The requeue state without its time; the count stays."""
    if state is None or state.count is None:
        return None
    return RequeueState(count=state.count)
