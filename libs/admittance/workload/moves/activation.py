"""Deactivation (T16, and the last step of T11, T14 and T15) and activation (T22)."""

from __future__ import annotations

from typing import Any

from admittance.workload.change import Change, applied, ignored, with_spec, with_status
from admittance.workload.conditions import Type, find, put, without
from admittance.workload.moves.eviction import DEACTIVATED, closed_gates, evict, fresh_rows
from admittance.workload.phase import holds_quota, is_reserved, is_stopping
from admittance.workload.reasons import pending_reason
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import TransitionContext


def deactivate(
    workload: StoredWorkload,
    reason: str,
    message: str,
    context: TransitionContext,
    *,
    cause: str = "",
) -> Change:
    """Deactivates the workload in one write, so that DeactivationTarget, which Kueue writes in
    between, never appears.

    An earlier eviction keeps its reason, unless it is itself one that was reactivated since.
    """
    off = with_spec(workload, active=False)
    off = with_status(off, conditions=without(off.status.conditions, Type.DEACTIVATION_TARGET))
    # A deactivated workload keeps no wait, count or time; what the eviction makes of them is
    # overwritten below.
    evicted = find(workload, Type.EVICTED)
    keeps = (
        reason == DEACTIVATED
        and evicted is not None
        and evicted.status == "True"
        and not evicted.reason.startswith(DEACTIVATED)
    )
    conditions = off.status.conditions
    if is_reserved(workload) and not is_stopping(workload):
        change = evict(off, reason, message, context, cause=cause)
    else:
        if not keeps:
            conditions = put(conditions, Type.EVICTED, True, reason, message, now=context.now)
        if is_stopping(workload):
            conditions = without(conditions, Type.REQUEUED)
            change = applied(with_status(off, conditions=conditions))
        else:
            conditions = put(
                conditions, Type.QUOTA_RESERVED, False, DEACTIVATED, message, now=context.now
            )
            conditions = put(conditions, Type.REQUEUED, False, reason, message, now=context.now)
            change = applied(
                with_status(off, conditions=conditions),
                OutboxEntry(what="pending", reason=DEACTIVATED, message=message),
            )
    assert change.workload is not None, "nothing was deleted"
    fresh = fresh_rows(workload, context, forget=True)
    return change._replace(
        workload=with_status(
            change.workload,
            **fresh,
            requeue_state=None,
            accumulated_past_execution_time_seconds=None,
            preemption_gates=closed_gates(change.workload.status.preemption_gates, context),
        )
    )


def turn_off(workload: StoredWorkload, _: Any, context: TransitionContext) -> Change:
    """T16: a user deactivates the workload."""
    if not head(workload).active:
        return ignored(workload, "Repeated", "it is not active")
    return deactivate(workload, DEACTIVATED, "The workload is deactivated", context)


def turn_on(workload: StoredWorkload, _: Any, context: TransitionContext) -> Change:
    """T22: a user activates the workload, as if it were new. While its job still stops, the release
    completes the activation."""
    if head(workload).active:
        return ignored(workload, "Repeated", "it is active")
    on = with_spec(workload, active=True)
    conditions = put(on.status.conditions, Type.REQUEUED, True, "Reactivated", now=context.now)
    if not holds_quota(on):
        reason, message = pending_reason(on, context) or ("PendingEvaluation", "")
        conditions = put(conditions, Type.QUOTA_RESERVED, False, reason, message, now=context.now)
    # In a new cycle, so that a verdict from before the deactivation is not of the last cycle.
    fresh = fresh_rows(on, context, forget=True)
    on = with_status(on, conditions=conditions, requeue_state=None, **fresh)
    return applied(on, OutboxEntry(what="requeued", reason="Reactivated"))
