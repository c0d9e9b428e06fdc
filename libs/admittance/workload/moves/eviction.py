"""The loss of a reservation: evictions, and the release that ends them. docs/spec/lifecycle.md#T09
to #T19.

Eviction has two phases. First Evicted=True is written with the quota still booked, and the runner
stops the job; only what it reports then releases the quota. A workload that never started a job
is evicted and released in one write.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from admittance.api.workload import EvictionCount, GatePosition, PreemptionCount, SchedulingStats
from admittance.events import facts
from admittance.workload.change import Change, applied, with_status
from admittance.workload.check_rows import (
    cleared,
    frozen,
    synced,
    with_rejected,
    without_counts,
    without_updates,
)
from admittance.workload.conditions import Type, find, is_true, put, without
from admittance.workload.moves.backoff import recomputed
from admittance.workload.pending_reasons import required_now
from admittance.workload.phase import is_reserved, is_stopping
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import TransitionContext

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

DEACTIVATED: Final = "Deactivated"
"""Reason of an eviction that a user asked for; ``DeactivatedDueTo`` and a cause otherwise."""


def withdrawals(workload: StoredWorkload, reason: str) -> tuple[OutboxEntry, ...]:
    """What tells the check controllers to stop; nothing unless they had been asked."""
    if not is_reserved(workload):
        return ()
    return tuple(
        OutboxEntry(
            what="check_withdrawn",
            detail=row.name,
            reason=reason,
            cycle=workload.status.admission_cycle,
        )
        for row in workload.status.admission_checks
    )


def fresh_rows(
    workload: StoredWorkload, context: TransitionContext, *, forget: bool = False
) -> dict[str, Any]:
    """Fields of the status: the rows of a workload without a reservation, all Pending, in a cycle
    that no check was asked about. forget: what was retried counts no more."""
    status = workload.status
    cycle = status.admission_cycle + 1
    required = required_now(workload, context)
    fresh = cleared(status.admission_checks, status.check_retry_counts, required, now=context.now)
    forgotten: dict[str, Any] = {"immediate_retries": {}} if forget else {}
    return forgotten | {
        "admission_checks": without_counts(fresh.rows) if forget else fresh.rows,
        "check_retry_counts": {} if forget else fresh.counts,
        "admission_cycle": cycle,
        "rounds_since": cycle,
    }


def _counted(workload: StoredWorkload, reason: str, cause: str) -> SchedulingStats:
    stats = workload.status.scheduling_stats or SchedulingStats()
    if reason.startswith(DEACTIVATED):
        reason = DEACTIVATED
    which = reason, cause
    rest = tuple(row for row in stats.evictions if (row.reason, row.underlying_cause) != which)
    before = sum(
        row.count for row in stats.evictions if (row.reason, row.underlying_cause) == which
    )
    new = EvictionCount(reason=reason, underlying_cause=cause, count=before + 1)
    return SchedulingStats(evictions=(*rest, new))


def evict(
    workload: StoredWorkload,
    reason: str,
    message: str,
    context: TransitionContext,
    *,
    preempted_as: str = "",
    keep_rows: bool = False,
    cause: str = "",
) -> Change:
    """The workload begins to lose its reservation. What is released at once says so, too.

    keep_rows: a check's Retry keeps the rows as they are until the wait is over. cause: what is
    behind the reason, for the counters.
    """
    says = withdrawals(workload, reason)
    conditions = put(
        workload.status.conditions, Type.EVICTED, True, reason, message, now=context.now
    )
    if preempted_as:
        conditions = put(conditions, Type.PREEMPTED, True, preempted_as, message, now=context.now)
    conditions = without(conditions, Type.REQUEUED)
    fields: dict[str, Any] = {
        "conditions": conditions,
        "scheduling_stats": _counted(workload, reason, cause),
        "preemption_gates": closed_gates(workload.status.preemption_gates, context),
        "evicted_revision": 0,
    }
    if not keep_rows:
        fields |= fresh_rows(workload, context)
    evicted = with_status(workload, **fields)
    evicted_say = OutboxEntry(what="evicted", reason=reason, message=message, detail=cause)
    if is_true(workload, Type.ADMITTED):
        return applied(evicted, evicted_say, *says)
    released = release(evicted, context)
    return released._replace(says=(evicted_say, *says, *released.says))


def release(workload: StoredWorkload, context: TransitionContext) -> Change:
    """The job has stopped, or there was none: the quota is free. T19."""
    if workload.metadata.deletion_timestamp is not None:
        return Change(None)
    evicted = find(workload, Type.EVICTED)
    reason = evicted.reason if evicted is not None and evicted.status == "True" else "Pending"
    message = evicted.message if evicted is not None else ""
    spec = head(workload)
    waits_why = "Deactivated" if not spec.active else "PendingEvaluation"
    inactive = context.queues.inactive_reason(workload.metadata.namespace, spec.queue_name)
    if spec.active and inactive is not None:
        waits_why, message = inactive.reason, inactive.message
    freed = without_reservation(workload, waits_why, message, context)
    back, why = _may_come_back(freed, reason, context)
    conditions = put(freed.status.conditions, Type.REQUEUED, back, why, message, now=context.now)
    what = "requeued" if back and spec.active else "pending"
    return applied(
        with_status(freed, conditions=conditions),
        OutboxEntry(what=what, reason=why, message=message),
    )


def without_reservation(
    workload: StoredWorkload, reason: str, message: str, context: TransitionContext
) -> StoredWorkload:
    """Without its reservation. Rows of a wait that a check has asked for stay frozen; others are
    those of a workload without a flavor. What a runner could apply goes in any case."""
    status = workload.status
    conditions = put(
        status.conditions, Type.QUOTA_RESERVED, False, reason, message, now=context.now
    )
    conditions = put(
        conditions,
        Type.ADMITTED,
        False,
        "NoReservation",
        "The workload has no reservation",
        now=context.now,
    )
    rows, counts = status.admission_checks, status.check_retry_counts
    required = required_now(workload, context)
    if is_frozen(workload):
        queue = context.queues.cluster_queue(workload.metadata.namespace, head(workload).queue_name)
        named = context.queues.named_checks(queue) if queue else frozenset(row.name for row in rows)
        kept = frozen(rows, counts, named, required, now=context.now)
    else:
        kept = with_rejected(rows, synced(rows, counts, required, now=context.now))
    state = status.requeue_state
    if kept.rows != rows:
        state = recomputed(workload, kept.rows)
    return with_status(
        workload,
        conditions=without(conditions, Type.PODS_READY),
        admission=None,
        pending_preemption=None,
        admission_checks=without_updates(kept.rows),
        check_retry_counts=kept.counts,
        requeue_state=state,
        admitted_revision=0,
        released_revision=status.admitted_revision or status.released_revision,
        accumulated_past_execution_time_seconds=accumulated(workload, context.now),
    )


def is_frozen(workload: StoredWorkload) -> bool:
    """A check's Retry took the reservation, or holds the workload: its rows stay until T20."""
    if any(row.state == "Retry" for row in workload.status.admission_checks):
        return True
    evicted = find(workload, Type.EVICTED)
    return is_stopping(workload) and evicted is not None and evicted.reason == "AdmissionCheck"


def _may_come_back(
    workload: StoredWorkload, reason: str, context: TransitionContext
) -> tuple[bool, str]:
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
    runs = context.queues.inactive_reason(workload.metadata.namespace, spec.queue_name) is None
    if reason in RESTARTED and runs:
        return True, RESTARTED[reason]
    if reason == "Pending":
        return True, "QuotaChanged"
    return False, reason


def withdraw(
    workload: StoredWorkload, reason: str, message: str, context: TransitionContext
) -> Change:
    """A reservation without a job is dropped without an eviction: T09, T18."""
    says = withdrawals(workload, reason)
    dropped = without_reservation(
        with_status(workload, **fresh_rows(workload, context)), reason, message, context
    )
    if reason in COMES_BACK_AT_ONCE:
        conditions = put(
            dropped.status.conditions, Type.REQUEUED, True, reason, message, now=context.now
        )
        dropped = with_status(dropped, conditions=conditions)
    return applied(dropped, *says, OutboxEntry(what="pending", reason=reason, message=message))


def closed_gates(
    gates: tuple[GatePosition, ...], context: TransitionContext
) -> tuple[GatePosition, ...]:
    """The gates, all closed: an evicted workload needs an open gate again before it preempts."""
    return tuple(
        gate
        if gate.position == "Closed"
        else GatePosition(name=gate.name, position="Closed", last_transition_time=context.now)
        for gate in gates
    )


KEPT_MAX: Final = 8
"""Number of preempting workloads remembered, the newest ones."""

KEPT_FOR: Final = timedelta(days=2)
"""Time without preemption after which the count of a pair is reset."""


def with_preemption(
    before: tuple[PreemptionCount, ...], fact: facts.Preempted, now: datetime
) -> tuple[PreemptionCount, ...]:
    """The counts with this preemption; the newest last."""
    if not fact.by_uid:
        return before
    kept = [one for one in before if one.last is not None and now - one.last < KEPT_FOR]
    times = sum(one.count for one in kept if one.by_uid == fact.by_uid)
    others = [one for one in kept if one.by_uid != fact.by_uid]
    new = PreemptionCount(by=fact.by, by_uid=fact.by_uid, count=times + 1, last=now, seen=fact.seen)
    return (*others[1 - KEPT_MAX :], new)


def admitted_seconds(workload: StoredWorkload, now: datetime) -> int:
    """Whole seconds of the admission that lasts, or that lasted until the job finished."""
    admitted = find(workload, Type.ADMITTED)
    if admitted is None or admitted.status != "True" or admitted.last_transition_time is None:
        return 0
    finished = find(workload, Type.FINISHED)
    end = now
    if finished is not None and finished.status == "True" and finished.last_transition_time:
        end = finished.last_transition_time
    return max(0, int((end - admitted.last_transition_time).total_seconds()))


def total_seconds(workload: StoredWorkload, now: datetime) -> int:
    """Those of earlier admissions, too."""
    past = workload.status.accumulated_past_execution_time_seconds or 0
    return past + admitted_seconds(workload, now)


def accumulated(workload: StoredWorkload, now: datetime) -> int | None:
    """What is remembered when the admission ends now; None: nothing.

    Being turned off wipes the account, and what the job runs on until it has stopped is of the
    same account: also where it was turned on again meanwhile.
    """
    requeued = find(workload, Type.REQUEUED)
    reactivated = requeued is not None and requeued.reason == "Reactivated"
    if not head(workload).active or (reactivated and is_true(workload, Type.EVICTED)):
        return None
    return total_seconds(workload, now) or None
