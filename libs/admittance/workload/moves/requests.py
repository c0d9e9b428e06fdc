"""Requests of users, and reports of runners about jobs: T25 to T27, T29, T30."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from admittance.api.meta import ObjectMeta
from admittance.api.workload import GATED_BY
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.names import uid_of
from admittance.workload.change import Change, applied, ignored, refused, with_spec, with_status
from admittance.workload.check_rows import synced
from admittance.workload.conditions import Type, find, is_true, put, without
from admittance.workload.moves.backoff import wait_message
from admittance.workload.moves.eviction import (
    DEACTIVATED,
    closed_gates,
    evict,
    fresh_rows,
    withdrawals,
)
from admittance.workload.pending_reasons import gated_by, is_held, pending_reason
from admittance.workload.phase import holds_quota, is_reserved, is_stopping
from admittance.workload.stored import PARENT, OutboxEntry, StoredWorkload, head
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


def release_hold(workload: StoredWorkload, _: Any, context: TransitionContext) -> Change:
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


class Arrived(Fact, frozen=True, kw_only=True):
    """A validated submission. Not on the wire: the controller makes it from `Submitted`. ``spec``
    is canonical: equal specs are equal bytes. ``remark``: a note for the user. ``message_id``:
    digest of the submission's message id; "": it had none.
    """

    api_version: str
    metadata: ObjectMeta
    spec: msgspec.Raw
    remark: str = ""
    message_id: str = ""


REPEATED: Final = "Repeated"
"""Reason of a repeated submission of the same workload; no message follows."""


def arrive(workload: StoredWorkload | None, fact: Arrived, context: TransitionContext) -> Change:
    """T01, or a refusal: a name is taken until its workload is deleted.

    Identity and creation time come from the log, so that reading the submission again makes the
    same workload.
    """
    if workload is not None:
        if workload.metadata.deletion_timestamp is not None:
            return refused(
                workload,
                "BeingDeleted",
                f"the workload {fact.namespace}/{fact.name} is being deleted: "
                "submit it again when its job has stopped",
            )
        return _taken(workload, fact)
    seed = f"{fact.namespace}/{fact.name}/{context.sequence}/{context.logged_at.isoformat()}"
    metadata = replace(
        fact.metadata,
        name=fact.name,
        namespace=fact.namespace,
        generate_name="",
        uid=fact.uid or uid_of(seed),
        generation=1,
        creation_timestamp=context.logged_at,
        deletion_timestamp=None,
        resource_version="",
        managed_fields=None,
    )
    new = StoredWorkload(
        api_version=fact.api_version, kind="Workload", metadata=metadata, spec=fact.spec
    )
    spec = head(new)
    queue = context.queues.cluster_queue(fact.namespace, spec.queue_name)
    # Only the variants of a parent are queued.
    asked = queue and spec.role != PARENT
    required = context.queues.required_checks(queue, None) if asked else ()
    standing = pending_reason(new, context)
    says: tuple[OutboxEntry, ...] = ()
    if not spec.active:
        reason, message = "Deactivated", "The workload is deactivated"
    elif standing is not None:
        reason, message = standing
        says = (OutboxEntry(what="pending", reason=reason, message=message),)
    else:
        reason, message = "PendingEvaluation", ""
    if fact.remark:
        says = (*says, OutboxEntry(what="noted", reason="RegularWorkload", message=fact.remark))
    return applied(
        with_status(
            new,
            conditions=put((), Type.QUOTA_RESERVED, False, reason, message, now=context.now),
            admission_checks=synced((), {}, required, now=context.now).rows,
            submitted_as=fact.message_id,
        ),
        *says,
    )


def _taken(workload: StoredWorkload, fact: Arrived) -> Change:
    """The name belongs to another workload, or the same workload is submitted again."""
    about = f"a workload {fact.namespace}/{fact.name} exists"
    if bytes(workload.spec) != bytes(fact.spec):
        return refused(workload, "AlreadyExists", f"{about} with another spec")
    if fact.uid and fact.uid != workload.metadata.uid:
        return refused(workload, "AlreadyExists", f"{about} with another uid")
    known = workload.status.submitted_as
    if fact.uid or (known and known == fact.message_id):
        return ignored(workload, REPEATED, "the same submission made the workload")
    return ignored(workload, "Unchanged", "the workload exists and is the same")
