"""The effect of changed queues, flavors and checks on a workload: T02, T17, T18, T23, T28."""

from __future__ import annotations

from typing import Final

from admittance.events import reasons
from admittance.workload.change import Change, applied, ignored, with_status
from admittance.workload.checks.rows import (
    check_requests,
    frozen_rows,
    required_now,
    synced_rows,
    with_request_errors,
)
from admittance.workload.conditions import (
    Conditions,
    Type,
    find,
    find_false,
    is_held,
    is_true,
    pending_reason,
    put,
)
from admittance.workload.moves.backoff import (
    requeue_state_of,
    wait_message,
    wake_if_over,
    with_wait_message,
)
from admittance.workload.moves.check_rejections import contradiction
from admittance.workload.moves.eviction import RESTARTED, evict, withdraw
from admittance.workload.moves.reservation import withdraw_if_not_offered
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import QueueChanged, TransitionContext

INACTIVE_REASONS: Final = frozenset(
    {reasons.SUSPENDED, reasons.MISCONFIGURED, reasons.PENDING, reasons.INADMISSIBLE}
)
"""Reasons of QuotaReserved=False that end when the queue is active again; the last two are older
spellings."""


def queue_changed(
    workload: StoredWorkload, fact: QueueChanged, context: TransitionContext
) -> Change:
    """Adapts the workload to changes of its queues, flavors and checks."""
    if is_stopping(workload):
        # A change of the workload's queue takes effect when the workload's quota is released.
        return ignored(workload, reasons.SETTLED)
    spec = head(workload)
    inactive = context.queues.inactive_reason(workload.metadata.namespace, spec.queue_name)
    if holds_quota(workload):
        if inactive is not None and not is_true(workload, Type.ADMITTED):
            return withdraw(workload, inactive.reason, inactive.message, context)
        if inactive is not None and inactive.drains:
            return evict(workload, inactive.evicted_as, inactive.message, context)
        return _checks_changed(workload, context, fact.asks)
    if not spec.active:
        return ignored(workload, reasons.SETTLED)
    return _waiting(workload, context)


def _checks_changed(
    workload: StoredWorkload, context: TransitionContext, asks: frozenset[str]
) -> Change:
    """T28: adapts the checks of a workload with quota. ``asks``: checks with changed parameters."""
    status = workload.status
    admission = status.admission
    assert admission is not None, "it holds quota"
    admitted = is_true(workload, Type.ADMITTED)
    gone = None if admitted else withdraw_if_not_offered(workload, context)
    if gone is not None:
        return gone
    required = context.queues.required_checks(admission.cluster_queue, admission)
    rows, counts = synced_rows(
        status.admission_checks, status.check_retry_counts, required, now=context.now
    )
    rows, requestable = with_request_errors(rows, context)
    again = {row.name for row in rows if row.name in asks and row.state == "Pending"}
    if rows == status.admission_checks and not again:
        return ignored(workload, reasons.SETTLED)
    have, had = ({row.name for row in each} for each in (rows, status.admission_checks))
    outbox = [
        OutboxEntry(
            what="check_withdrawn",
            detail=name,
            reason=reasons.CHECK_REMOVED,
            cycle=status.admission_cycle,
        )
        for name in sorted(had - have)
    ]
    kept = with_status(workload, admission_checks=rows, check_retry_counts=counts)
    # A check that is added after the admission is requested too. Only a Retry or Rejected of an
    # added check stops the job.
    conflict = None if admitted else contradiction(kept, context)
    if conflict is not None:
        return conflict.after(*outbox)
    # If all checks are Ready now, the scheduler sees the change of the workload and confirms the
    # reservation.
    outbox += check_requests(sorted(requestable | again | (have - had)), context)
    return applied(kept, *outbox)


def _waiting(workload: StoredWorkload, context: TransitionContext) -> Change:
    status = workload.status
    conditions, outbox = _considered(workload, context)
    requeued = find_false(workload, Type.REQUEUED)
    spec = head(workload)
    namespace = workload.metadata.namespace
    inactive = context.queues.inactive_reason(namespace, spec.queue_name)
    retrying = any(row.state == "Retry" for row in status.admission_checks)
    if inactive is None and requeued is not None and requeued.reason in RESTARTED:
        why = reasons.ADMISSION_CHECK if retrying else RESTARTED[requeued.reason]
        message = wait_message(workload) if retrying else ""
        conditions = put(conditions, Type.REQUEUED, not retrying, why, message, now=context.now)
        outbox = (
            *outbox,
            OutboxEntry(what="pending" if retrying else "requeued", reason=why, message=message),
        )
    rows, counts = status.admission_checks, status.check_retry_counts
    queue = context.queues.cluster_queue(namespace, spec.queue_name)
    if queue:
        required, named = required_now(workload, context), context.queues.named_checks(queue)
        # Retry counts of checks that no list names any more are dropped.
        counts = {name: n for name, n in counts.items() if name in named}
        waits = requeued is not None and requeued.reason == reasons.ADMISSION_CHECK
        if retrying or waits:
            rows, counts = frozen_rows(rows, counts, named, required, now=context.now)
        else:
            rows, counts = synced_rows(rows, counts, required, now=context.now)
    if not retrying:
        rows, _ = with_request_errors(rows, context)
    after = with_status(
        workload, conditions=conditions, admission_checks=rows, check_retry_counts=counts
    )
    if after == workload:
        return ignored(workload, reasons.SETTLED)
    if retrying and rows != status.admission_checks:
        after = with_status(after, requeue_state=requeue_state_of(workload, rows))
        return wake_if_over(applied(with_wait_message(after, context), *outbox), context)
    return applied(after, *outbox)


def _considered(
    workload: StoredWorkload, context: TransitionContext
) -> tuple[Conditions, tuple[OutboxEntry, ...]]:
    """Returns the conditions with the reason why the scheduler does not consider the workload, and
    outbox entries."""
    conditions = workload.status.conditions
    reserved = find(workload, Type.QUOTA_RESERVED)
    before = (reserved.reason, reserved.message) if reserved is not None else ("", "")
    if is_held(workload):
        return conditions, ()
    pending = pending_reason(workload, context)
    if pending is not None:
        if before == pending:
            return conditions, ()
        reason, message = pending
        conditions = put(conditions, Type.QUOTA_RESERVED, False, reason, message, now=context.now)
        return conditions, (OutboxEntry(what="pending", reason=reason, message=message),)
    gates_removed = before[0] == reasons.ADMISSION_GATED and not is_true(
        workload, Type.BLOCKED_ON_PREEMPTION_GATES
    )
    if before[0] in INACTIVE_REASONS or gates_removed:
        text = wait_message(workload)
        conditions = put(
            conditions,
            Type.QUOTA_RESERVED,
            False,
            reasons.PENDING_EVALUATION,
            text,
            now=context.now,
        )
    return conditions, ()
