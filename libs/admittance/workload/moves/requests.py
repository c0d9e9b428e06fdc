"""Requests of users, and reports of runners about jobs: T25 to T27, T29, T30."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from admittance.api.workload import GATED_BY
from admittance.events import facts
from admittance.workload.change import (
    Change,
    applied,
    ignored,
    refused,
    with_spec,
    with_status,
)
from admittance.workload.conditions import Type, find, is_true, put
from admittance.workload.moves.backoff import wait_message
from admittance.workload.moves.eviction import evict, withdrawals
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.reasons import gated_by, is_held, pending_reason
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import TransitionContext

INT32: Final = range(-(2**31), 2**31)


def hold(workload: StoredWorkload, _: Any, context: TransitionContext) -> Change:
    """T30: out of the queue until released. Only what holds no quota can be held."""
    if holds_quota(workload):
        return refused(workload, "HoldsQuota", "it holds quota already: stop it instead")
    if is_held(workload):
        return ignored(workload, "Repeated", "it is on hold")
    message = "The workload is on hold"
    conditions = put(
        workload.status.conditions, Type.QUOTA_RESERVED, False, "OnHold", message, now=context.now
    )
    return applied(
        with_status(workload, conditions=conditions),
        OutboxEntry(what="pending", reason="OnHold", message=message),
    )


def let_go(workload: StoredWorkload, _: Any, context: TransitionContext) -> Change:
    """The hold is lifted, and with it the gates that the workload's annotation names."""
    if not is_held(workload) and not gated_by(workload):
        return ignored(workload, "NotHeld", "it is not on hold")
    notes = {k: v for k, v in workload.metadata.annotations.items() if k != GATED_BY}
    free = replace(workload, metadata=replace(workload.metadata, annotations=notes))
    reason, message = pending_reason(free, context) or ("PendingEvaluation", wait_message(free))
    conditions = put(
        free.status.conditions, Type.QUOTA_RESERVED, False, reason, message, now=context.now
    )
    return applied(
        with_status(free, conditions=conditions), OutboxEntry(what="requeued", reason="Released")
    )


def reprioritize(
    workload: StoredWorkload, fact: facts.Reprioritized, _: TransitionContext
) -> Change:
    """T29: another place in the queue; no eviction by itself."""
    if fact.priority not in INT32:
        return refused(workload, "BadPriority", f"{fact.priority} is no 32-bit number")
    if (head(workload).priority or 0) == fact.priority:
        return ignored(workload, "Repeated", "it has that priority")
    return applied(with_spec(workload, priority=fact.priority))


def remove(workload: StoredWorkload, _: Any, context: TransitionContext) -> Change:
    """T27: the object is kept until the runner has stopped the job."""
    if not holds_quota(workload) or is_true(workload, Type.FINISHED):
        return Change(None)
    if workload.metadata.deletion_timestamp is not None:
        return ignored(workload, "Repeated", "it is being deleted")
    if not is_true(workload, Type.ADMITTED):
        return Change(None, withdrawals(workload, "Deleted"))
    marked = replace(
        workload, metadata=replace(workload.metadata, deletion_timestamp=context.logged_at)
    )
    if is_stopping(marked):
        return applied(marked)
    return evict(marked, "Deleted", "The workload is deleted", context)


def pods_ready(
    workload: StoredWorkload, fact: facts.PodsReady, context: TransitionContext
) -> Change:
    """T25."""
    if fact.revision != workload.status.admitted_revision:
        return ignored(workload, "Stale", f"of the admission {fact.revision}")
    before = find(workload, Type.PODS_READY)
    if before is not None and before.status == "True":
        return ignored(workload, "Repeated")
    reason = "Started" if before is None or before.reason == "WaitForStart" else "Recovered"
    conditions = put(
        workload.status.conditions,
        Type.PODS_READY,
        True,
        reason,
        "All pods are ready",
        now=context.now,
    )
    state = workload.status.requeue_state
    if state is not None and state.requeue_at is None:
        state = None  # Reached: unrelated later failures start over.
    return applied(with_status(workload, conditions=conditions, requeue_state=state))


def pods_not_ready(
    workload: StoredWorkload, fact: facts.PodsNotReady, context: TransitionContext
) -> Change:
    """T25, the other way."""
    if fact.revision != workload.status.admitted_revision:
        return ignored(workload, "Stale", f"of the admission {fact.revision}")
    before = find(workload, Type.PODS_READY)
    if before is None or before.status != "True":
        return ignored(workload, "Repeated")
    conditions = put(
        workload.status.conditions,
        Type.PODS_READY,
        False,
        "WaitForRecovery",
        fact.message,
        now=context.now,
    )
    return applied(with_status(workload, conditions=conditions))


def finish(workload: StoredWorkload, fact: facts.Finished, context: TransitionContext) -> Change:
    """T26: the end; the quota is free at once. By a user (revision 0) also of what never ran; a
    job that runs then is told to stop."""
    if fact.revision and not _is_result(workload, fact.revision):
        return ignored(workload, "Stale", f"of the admission {fact.revision}")
    reason = fact.reason or ("Succeeded" if fact.succeeded else "Failed")
    message = fact.message or ("Job finished" if fact.succeeded else "Job failed")
    conditions = put(
        workload.status.conditions, Type.FINISHED, True, reason, message, now=context.now
    )
    done = with_status(workload, conditions=conditions, exit_code=fact.exit_code)
    says: tuple[OutboxEntry, ...] = ()
    if fact.revision == 0 and is_true(workload, Type.ADMITTED) and not is_stopping(workload):
        says = (OutboxEntry(what="evicted", reason="Finished", message=message),)
    if workload.metadata.deletion_timestamp is not None:
        return Change(None)
    return applied(done, *says, *withdrawals(workload, "Finished"))


def _is_result(workload: StoredWorkload, revision: int) -> bool:
    """What came of the admission at revision counts: it lasts, or it was the last one and was
    released before its result came, and no job of a later one may run."""
    status = workload.status
    if is_true(workload, Type.ADMITTED):
        return revision == status.admitted_revision
    return revision == status.released_revision


def started(workload: StoredWorkload, _: facts.Started, __: TransitionContext) -> Change:
    """The log knows; the object learns when the pods are ready."""
    return ignored(workload, "Noted")
