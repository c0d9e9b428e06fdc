"""Decisions of the scheduler, and the end of a job without a result: T03 to T09, T12, T17b, T19."""

from __future__ import annotations

from admittance.events import facts, reasons
from admittance.events.shapes import PreemptedBy
from admittance.workload.change import Change, applied, ignored, with_condition, with_status
from admittance.workload.checks.rows import (
    all_ready,
    check_requests,
    placement_of,
    rows_of_reservation,
    with_request_errors,
    without_counts,
)
from admittance.workload.conditions import Type, find, is_true, put, revoke
from admittance.workload.family_info import is_used, preempts_workloads, with_use_noted
from admittance.workload.moves.backoff import no_wait
from admittance.workload.moves.check_rejections import contradiction
from admittance.workload.moves.eviction import evict, release, with_preemption, withdraw
from admittance.workload.quota_release import seconds_waited
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import TransitionContext


def assign(workload: StoredWorkload, fact: facts.Assigned, context: TransitionContext) -> Change:
    """T03 to T05: books quota and creates the rows of the checks in one write. If no check is
    required, the same write admits the workload."""
    now = context.now
    admission = fact.admission
    required = context.queues.required_checks(admission.cluster_queue, admission)
    message = fact.message or f"Quota reserved in ClusterQueue {admission.cluster_queue}"
    waited = seconds_waited(workload, now)
    conditions = put(
        workload.status.conditions,
        Type.QUOTA_RESERVED,
        True,
        reasons.QUOTA_RESERVED,
        message,
        now=now,
    )
    for old in (Type.EVICTED, Type.PREEMPTED, Type.BLOCKED_ON_PREEMPTION_GATES):
        conditions = revoke(conditions, old, now=now)
    status = workload.status
    fresh = rows_of_reservation(
        status.admission_checks, status.check_retry_counts, required, now=now
    )
    rows, _ = with_request_errors(fresh.rows, context)
    reserved = with_status(
        workload,
        admission=admission,
        conditions=conditions,
        admission_checks=rows,
        check_retry_counts=fresh.counts,
        requeue_state=no_wait(workload.status.requeue_state),
        evicted_revision=0,
        preempted_by=None,
        waited_seconds=waited,
        pending_preemption=fact.pending_preemption,
        preemption_gates=with_use_noted(status.preemption_gates, preempts_workloads(fact), now),
    )
    outbox = [OutboxEntry(what="quota_reserved", reason=reasons.QUOTA_RESERVED, message=message)]
    if not required and fact.pending_preemption is None:
        admitted = admit(reserved, context)
        return applied(admitted, *outbox, OutboxEntry(what="admitted", reason=reasons.ADMITTED))
    reason, message = (
        reasons.UNSATISFIED_ADMISSION_CHECKS,
        "The workload waits for its admission checks",
    )
    outbox += check_requests((check.name for check in required), context)
    return applied(
        with_condition(reserved, Type.ADMITTED, False, reason, message, now=now), *outbox
    )


def admit(workload: StoredWorkload, context: TransitionContext) -> StoredWorkload:
    """The workload with Admitted=True and without retry counts. From now on ``status.placement``
    has the assigned runners: an eviction resets the row of their check while the job still runs."""
    admitted = with_condition(
        workload, Type.ADMITTED, True, reasons.ADMITTED, "The workload is admitted", now=context.now
    )
    return with_status(
        admitted,
        admitted_revision=0,
        pending_preemption=None,
        placement=placement_of(workload.status.admission_checks),
        admission_checks=without_counts(workload.status.admission_checks),
        check_retry_counts={},
        immediate_retries={},
    )


def withdraw_if_not_offered(workload: StoredWorkload, context: TransitionContext) -> Change | None:
    """Returns the change that ends the reservation (T09) if the queue no longer lists one of the
    reserved flavors; None: the queue lists all of them. The checks of a flavor that the queue no
    longer lists are gone too, so nothing else would prevent a job from starting on that flavor.
    """
    admission = workload.status.admission
    gone = context.queues.not_offered(admission) if admission is not None else ()
    if admission is None or not gone:
        return None
    message = f"ClusterQueue {admission.cluster_queue} no longer offers {', '.join(gone)}"
    return withdraw(workload, reasons.FLAVORS_CHANGED, message, context)


def replan(workload: StoredWorkload, fact: facts.Planned, context: TransitionContext) -> Change:
    """T07: stores new or changed planned preemptions of the reservation."""
    pending = fact.pending_preemption
    gates = workload.status.preemption_gates
    if pending.victims and pending.issued and not any(map(is_used, gates)):
        gates = with_use_noted(gates, True, context.now)
    kept = pending if pending.victims else None
    return applied(with_status(workload, pending_preemption=kept, preemption_gates=gates))


def confirm(workload: StoredWorkload, _: facts.Confirmed, context: TransitionContext) -> Change:
    """T08: the scheduler confirms the reservation. The checks and queues of the workload are
    verified once more here, because the scheduler may not have seen their last change."""
    admission = workload.status.admission
    assert admission is not None, "a reserved workload has an admission"
    queue = head(workload).queue_name
    inactive = context.queues.inactive_reason(workload.metadata.namespace, queue)
    if inactive is not None:
        return ignored(workload, inactive.reason, inactive.message)
    gone = withdraw_if_not_offered(workload, context)
    if gone is not None:
        return gone
    required = context.queues.required_checks(admission.cluster_queue, admission)
    if not all_ready(workload.status.admission_checks, required):
        return ignored(workload, reasons.NOT_READY, "a required check is not Ready")
    # The labels of a reserved flavor may have changed since the reservation.
    conflict = contradiction(workload, context)
    if conflict is not None:
        return conflict
    message = ""
    reserved = find(workload, Type.QUOTA_RESERVED)
    if reserved is not None and reserved.last_transition_time is not None:
        waited = int((context.now - reserved.last_transition_time).total_seconds())
        message = f"Admitted {max(0, waited)} s after its quota was reserved"
    return applied(
        admit(workload, context),
        OutboxEntry(what="admitted", reason=reasons.ADMITTED, message=message),
    )


def refuse(workload: StoredWorkload, fact: facts.Refused, context: TransitionContext) -> Change:
    """T06: stores why the scheduler refused the workload."""
    refusal = fact.refusal
    before = find(workload, Type.QUOTA_RESERVED)
    if before is not None and (before.reason, before.message) == (refusal.reason, refusal.message):
        # The scheduler considers the workload again once the workload has a new revision.
        return applied(workload)
    reason, message, now = refusal.reason, refusal.message, context.now
    blocked = Type.BLOCKED_ON_PREEMPTION_GATES
    new = with_condition(workload, Type.QUOTA_RESERVED, False, reason, message, now=now)
    if reason == reasons.ADMISSION_GATED:
        new = with_condition(new, blocked, True, reasons.PREEMPTION_GATED, message, now=now)
    elif reason != reasons.WAITING_FOR_PREEMPTED_WORKLOADS and is_true(workload, blocked):
        # Preemption would not help the workload now, so opening the gate would have no effect.
        new = with_condition(new, blocked, False, reason, message, now=now)
    return applied(new, OutboxEntry(what="pending", reason=reason, message=message))


def preempt(workload: StoredWorkload, fact: facts.Preempted, context: TransitionContext) -> Change:
    """T12: the workload loses its quota to a preempting workload."""
    noted = with_status(
        workload,
        preempted_by=PreemptedBy(
            by=fact.by,
            by_uid=fact.by_uid,
            rule=fact.reason,
            at=context.now,
            grounds=fact.grounds,
            submitted_by=context.submitter(fact.by),
        ),
        preemptions=with_preemption(workload.status.preemptions, fact, context.now),
    )
    return evict(noted, reasons.PREEMPTED, fact.message, context, preempted_as=fact.reason)


def revoke_reservation(
    workload: StoredWorkload, fact: facts.Revoked, context: TransitionContext
) -> Change:
    """T09: ends a reservation that no longer fits into quota."""
    return withdraw(workload, fact.reason or reasons.QUOTA_CHANGED, fact.message, context)


def break_promise(
    workload: StoredWorkload, fact: facts.Revoked, context: TransitionContext
) -> Change:
    """T09 of a promise: the quota promised to a variant until its sibling's job has stopped is no
    longer available, so the migration ends."""
    if workload.status.promised is None:
        return ignored(workload, reasons.NOT_RESERVED, "it holds no quota and has no promise")
    reason = fact.reason or reasons.QUOTA_CHANGED
    kept = with_condition(
        workload, Type.QUOTA_RESERVED, False, reason, fact.message, now=context.now
    )
    return applied(
        with_status(kept, promised=None),
        OutboxEntry(what="pending", reason=reason, message=fact.message),
    )


def evict_for_cut(
    workload: StoredWorkload, fact: facts.Revoked, context: TransitionContext
) -> Change:
    """T09: evicts an admitted workload that no longer fits into quota, because its ClusterQueue has
    ``onQuotaCut: evict``."""
    return evict(workload, fact.reason or reasons.QUOTA_CHANGED, fact.message, context)


def stopped(workload: StoredWorkload, fact: facts.Stopped, context: TransitionContext) -> Change:
    """T19: the job of the workload has stopped, so the quota is freed."""
    evicted_at = workload.status.evicted_revision
    if evicted_at and fact.revision not in (evicted_at, workload.status.admitted_revision):
        return ignored(workload, reasons.STALE, f"stopped names revision {fact.revision}")
    return release(workload, context)


def lost(workload: StoredWorkload, fact: facts.Stopped, context: TransitionContext) -> Change:
    """T17b: the job of the workload was lost with its runner or node, without an eviction; or its
    assigned runner gave it back, which is not counted as an eviction. The next start after a failed
    prolog is no restart, since nothing of the job had started."""
    if fact.revision != workload.status.admitted_revision:
        return ignored(workload, reasons.STALE, f"stopped names revision {fact.revision}")
    reason = reasons.NODE_FAILURES
    message = fact.message or "The job was lost with its runner"
    change = evict(workload, reason, message, context)
    evicted = change.workload
    assert evicted is not None, "an eviction deletes nothing"
    if fact.gives_back:
        evicted = with_status(evicted, scheduling_stats=workload.status.scheduling_stats)
    released = release(evicted, context).after(*change.outbox)
    if fact.reason == reasons.PROLOG_FAILED and released.workload is not None:
        unchanged = with_status(released.workload, restarts=workload.status.restarts)
        released = released._replace(workload=unchanged)
    return released
