"""The loss of a reservation: evictions, and the release that ends them. docs/spec/lifecycle.md#T09
to #T19.

The eviction of a workload has two steps. First Evicted=True is written, and the quota stays booked
while the runner stops the job. The runner's report that the job has stopped releases the quota. A
workload without a job is evicted and released in one write.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from admittance.api.workload import EvictionCount, GatePosition, PreemptionCount, SchedulingStats
from admittance.events import facts, reasons
from admittance.workload.change import Change, applied, with_condition, with_status
from admittance.workload.checks.rows import (
    cleared_rows,
    frozen_rows,
    required_now,
    synced_rows,
    with_rejected,
    without_counts,
    without_updates,
)
from admittance.workload.conditions import Type, find, find_true, is_true, put, without_condition
from admittance.workload.moves.backoff import requeue_state_of
from admittance.workload.phase import is_reserved
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import TransitionContext

COMPETES_AT_ONCE: Final = frozenset(
    {
        reasons.PREEMPTED,
        reasons.NODE_FAILURES,
        reasons.PART_FAILED,
        reasons.QUOTA_CHANGED,
        reasons.FLAVORS_CHANGED,
    }
)
"""Eviction reasons after which the workload competes again as soon as it is released."""

RESTARTED: Final = {
    reasons.CLUSTER_QUEUE_STOPPED: reasons.CLUSTER_QUEUE_RESTARTED,
    reasons.LOCAL_QUEUE_STOPPED: reasons.LOCAL_QUEUE_RESTARTED,
    reasons.SUSPENDED: reasons.CLUSTER_QUEUE_RESTARTED,
}
"""Eviction reasons that end when the queue runs again, each with the reason of Requeued after
that."""


def withdrawals(workload: StoredWorkload, reason: str) -> tuple[OutboxEntry, ...]:
    """The outbox entries that withdraw the requests to check controllers, if any requests were
    sent."""
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
    """Returns the status fields of a workload without a reservation in a new admission cycle: all
    check rows are Pending. ``forget``: the checks' retry counts are reset."""
    status = workload.status
    cycle = status.admission_cycle + 1
    required = required_now(workload, context)
    fresh = cleared_rows(
        status.admission_checks, status.check_retry_counts, required, now=context.now
    )
    forgotten: dict[str, Any] = {"immediate_retries": {}} if forget else {}
    return forgotten | {
        "admission_checks": without_counts(fresh.rows) if forget else fresh.rows,
        "check_retry_counts": {} if forget else fresh.counts,
        "admission_cycle": cycle,
        "rounds_since": cycle,
    }


def _counted(workload: StoredWorkload, reason: str, cause: str) -> SchedulingStats:
    stats = workload.status.scheduling_stats or SchedulingStats()
    if reason.startswith(reasons.DEACTIVATED):
        reason = reasons.DEACTIVATED
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
    """Starts the eviction of the workload; a workload without a job is released in the same write.

    ``keep_rows``: the check rows stay until the wait for a check's Retry is over. ``cause``: the
    cause behind the eviction's reason, for the counters of evictions in the status.
    """
    outbox = withdrawals(workload, reason)
    conditions = workload.status.conditions
    conditions = put(conditions, Type.EVICTED, True, reason, message, now=context.now)
    if preempted_as:
        conditions = put(conditions, Type.PREEMPTED, True, preempted_as, message, now=context.now)
    conditions = without_condition(conditions, Type.REQUEUED)
    fields: dict[str, Any] = {
        "conditions": conditions,
        "scheduling_stats": _counted(workload, reason, cause),
        "preemption_gates": closed_gates(workload.status.preemption_gates, context),
        "evicted_revision": 0,
    }
    if not keep_rows:
        fields |= fresh_rows(workload, context)
    evicted = with_status(workload, **fields)
    evicted_entry = OutboxEntry(what="evicted", reason=reason, message=message, detail=cause)
    if is_true(workload, Type.ADMITTED):
        return applied(evicted, evicted_entry, *outbox)
    return release(evicted, context).after(evicted_entry, *outbox)


def release(workload: StoredWorkload, context: TransitionContext) -> Change:
    """T19: frees the quota of an evicted workload after its job has stopped, or at once if it has
    no job."""
    if workload.metadata.deletion_timestamp is not None:
        return Change(None)
    evicted = find(workload, Type.EVICTED)
    reason = evicted.reason if evicted is not None and evicted.status == "True" else reasons.PENDING
    message = evicted.message if evicted is not None else ""
    spec = head(workload)
    pending_as = reasons.DEACTIVATED if not spec.active else reasons.PENDING_EVALUATION
    inactive = context.queues.inactive_reason(workload.metadata.namespace, spec.queue_name)
    if spec.active and inactive is not None:
        pending_as, message = inactive.reason, inactive.message
    freed = without_reservation(workload, pending_as, message, context)
    back, why = _may_come_back(freed, reason, context)
    freed = with_condition(freed, Type.REQUEUED, back, why, message, now=context.now)
    what = "requeued" if back and spec.active else "pending"
    return applied(freed, OutboxEntry(what=what, reason=why, message=message))


def without_reservation(
    workload: StoredWorkload, reason: str, message: str, context: TransitionContext
) -> StoredWorkload:
    """Returns the workload without its reservation. The check rows stay frozen if the workload
    waits for the delay of a check; else the workload gets the rows of a workload without a flavor.
    All podSetUpdates and assigned runners are removed from the check rows."""
    status = workload.status
    conditions = put(
        status.conditions, Type.QUOTA_RESERVED, False, reason, message, now=context.now
    )
    conditions = put(
        conditions,
        Type.ADMITTED,
        False,
        reasons.NO_RESERVATION,
        "The workload has no reservation",
        now=context.now,
    )
    rows, counts = status.admission_checks, status.check_retry_counts
    required = required_now(workload, context)
    if is_in_retry(workload):
        queue = context.queues.cluster_queue(workload.metadata.namespace, head(workload).queue_name)
        named = context.queues.named_checks(queue) if queue else frozenset(row.name for row in rows)
        kept = frozen_rows(rows, counts, named, required, now=context.now)
    else:
        kept = with_rejected(rows, synced_rows(rows, counts, required, now=context.now))
    state = status.requeue_state
    if kept.rows != rows:
        state = requeue_state_of(workload, kept.rows)
    return with_status(
        workload,
        conditions=without_condition(conditions, Type.PODS_READY),
        admission=None,
        placement=(),
        parts=None,
        started_at=None,
        pending_preemption=None,
        admission_checks=without_updates(kept.rows),
        check_retry_counts=kept.counts,
        requeue_state=state,
        restarts=status.restarts + is_true(workload, Type.ADMITTED),
        admitted_revision=0,
        released_revision=status.admitted_revision or status.released_revision,
        accumulated_past_execution_time_seconds=accumulated_seconds(workload, context.now),
    )


def is_in_retry(workload: StoredWorkload) -> bool:
    """Whether a check row is in Retry, so that all rows stay until its wait ends (T20)."""
    return any(row.state == "Retry" for row in workload.status.admission_checks)


def _may_come_back(
    workload: StoredWorkload, reason: str, context: TransitionContext
) -> tuple[bool, str]:
    spec = head(workload)
    requeued = find_true(workload, Type.REQUEUED)
    if not spec.active:
        return False, reason
    if is_in_retry(workload):
        return False, reasons.ADMISSION_CHECK
    if requeued is not None and requeued.reason == reasons.REACTIVATED:
        return True, reasons.REACTIVATED
    if reason in COMPETES_AT_ONCE:
        return True, reason
    runs = context.queues.inactive_reason(workload.metadata.namespace, spec.queue_name) is None
    if reason in RESTARTED and runs:
        return True, RESTARTED[reason]
    if reason == reasons.PENDING:
        return True, reasons.QUOTA_CHANGED
    return False, reason


def withdraw(
    workload: StoredWorkload, reason: str, message: str, context: TransitionContext
) -> Change:
    """T09, T18: ends the reservation of a workload without a job. Ending a reservation without a
    job does not count as an eviction."""
    outbox = withdrawals(workload, reason)
    dropped = without_reservation(
        with_status(workload, **fresh_rows(workload, context)), reason, message, context
    )
    if reason in COMPETES_AT_ONCE:
        dropped = with_condition(dropped, Type.REQUEUED, True, reason, message, now=context.now)
    return applied(dropped, *outbox, OutboxEntry(what="pending", reason=reason, message=message))


def closed_gates(
    gates: tuple[GatePosition, ...], context: TransitionContext
) -> tuple[GatePosition, ...]:
    """Returns the gates, all of them closed: an evicted workload must not preempt before a gate is
    opened again."""
    return tuple(
        gate
        if gate.position == "Closed"
        else GatePosition(name=gate.name, position="Closed", last_transition_time=context.now)
        for gate in gates
    )


KEPT_MAX: Final = 8
"""How many preempting workloads are counted at most. Above this number the oldest counts are
dropped."""

KEPT_FOR: Final = timedelta(days=2)
"""The count of a preempting workload is dropped if it has not preempted for this time."""


def with_preemption(
    before: tuple[PreemptionCount, ...], fact: facts.Preempted, now: datetime
) -> tuple[PreemptionCount, ...]:
    """Returns the counts of preemptions per preempting workload with one more preemption added; the
    newest count is last."""
    if not fact.by_uid:
        return before
    kept = [
        earlier for earlier in before if earlier.last is not None and now - earlier.last < KEPT_FOR
    ]
    times = sum(earlier.count for earlier in kept if earlier.by_uid == fact.by_uid)
    others = [earlier for earlier in kept if earlier.by_uid != fact.by_uid]
    new = PreemptionCount(by=fact.by, by_uid=fact.by_uid, count=times + 1, last=now, seen=fact.seen)
    return (*others[1 - KEPT_MAX :], new)


def admitted_seconds(workload: StoredWorkload, now: datetime) -> int:
    """The whole seconds since the present admission, or from the present admission to the end of
    the job."""
    admitted = find_true(workload, Type.ADMITTED)
    if admitted is None or admitted.last_transition_time is None:
        return 0
    finished = find_true(workload, Type.FINISHED)
    end = (finished and finished.last_transition_time) or now
    return max(0, int((end - admitted.last_transition_time).total_seconds()))


def total_seconds(workload: StoredWorkload, now: datetime) -> int:
    """The whole seconds of the present admission and of earlier ones."""
    past = workload.status.accumulated_past_execution_time_seconds or 0
    return past + admitted_seconds(workload, now)


def accumulated_seconds(workload: StoredWorkload, now: datetime) -> int | None:
    """The accumulated seconds to store when the admission ends now; None: no seconds.

    A deactivation clears the accumulated seconds. The seconds until the job has stopped are cleared
    too, even if the workload is activated again before the job has stopped.
    """
    requeued = find(workload, Type.REQUEUED)
    reactivated = requeued is not None and requeued.reason == reasons.REACTIVATED
    if not head(workload).active or (reactivated and is_true(workload, Type.EVICTED)):
        return None
    return total_seconds(workload, now) or None
