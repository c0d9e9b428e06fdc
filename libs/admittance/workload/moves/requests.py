"""Requests of users, from submission to deletion, and reports of runners about jobs: T01, T16, T22,
T25 to T27, T29, T30, T32.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from admittance.api.array_status import new_status
from admittance.api.fields.limits import INT32
from admittance.api.meta import ObjectMeta
from admittance.api.workload import GATED_BY, OWN_GATES, DependencyRow, gate_names
from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.events.names import workload_uid
from admittance.workload.change import (
    Change,
    applied,
    ignored,
    refused,
    with_condition,
    with_spec,
    with_status,
)
from admittance.workload.checks.rows import synced_rows
from admittance.workload.conditions import (
    MESSAGE_MAX,
    Type,
    find,
    find_true,
    gated_by,
    is_held,
    is_true,
    pending_reason,
    put,
    waits_for,
    without_condition,
)
from admittance.workload.moves.backoff import wait_message
from admittance.workload.moves.eviction import closed_gates, evict, fresh_rows, withdrawals
from admittance.workload.outputs import kept_outputs
from admittance.workload.phase import holds_quota, is_reserved, is_stopping
from admittance.workload.stored import (
    ARRAY,
    BY_ARRAY,
    PARENT,
    OutboxEntry,
    StoredWorkload,
    WorkloadStatus,
    head,
)
from admittance.workload.transition_context import TransitionContext

# Submission. -----------------------------------------------------------------------------------


class Arrived(Fact, frozen=True, kw_only=True):
    """A validated submission. An `Arrived` fact is never on the wire: the controller makes it from
    `Submitted`. ``spec`` is canonical: equal specs are equal bytes. ``remark``: a note for the
    user. ``uncharged``: each requested resource for which no quota is charged, with the reason.
    ``message_id``: digest of the submission's message id; "": the submission had no id.
    ``submitted_by``: the user; "": unknown. ``created_at``: the creation time of an element, which
    is that of its array; None: the time of the log. ``dependencies``: what it waits for."""

    api_version: str
    metadata: ObjectMeta
    spec: msgspec.Raw
    remark: str = ""
    uncharged: dict[str, str] = msgspec.field(default_factory=dict)
    message_id: str = ""
    submitted_by: str = ""
    created_at: datetime | None = None
    dependencies: tuple[DependencyRow, ...] = ()


def arrive(workload: StoredWorkload | None, fact: Arrived, context: TransitionContext) -> Change:
    """T01: creates the submitted workload, or refuses it because its name is taken. A name is taken
    until its workload is deleted.

    Uid and creation time are derived from the log, so that a submission that is read twice makes
    the same workload.
    """
    if workload is not None:
        if workload.metadata.deletion_timestamp is not None:
            return refused(
                workload,
                reasons.BEING_DELETED,
                f"the workload {fact.namespace}/{fact.name} is being deleted: "
                "submit it again when its job has stopped",
            )
        return _taken(workload, fact)
    metadata = replace(
        fact.metadata,
        name=fact.name,
        namespace=fact.namespace,
        generate_name="",
        uid=fact.uid
        or workload_uid(fact.namespace, fact.name, context.sequence, context.logged_at),
        generation=1,
        creation_timestamp=fact.created_at or context.logged_at,
        deletion_timestamp=None,
        resource_version="",
        managed_fields=None,
    )
    new = StoredWorkload(
        api_version=fact.api_version,
        kind="Workload",
        metadata=metadata,
        spec=fact.spec,
        status=WorkloadStatus(dependencies=fact.dependencies),
    )
    spec = head(new)
    queue = context.queues.cluster_queue(fact.namespace, spec.queue_name)
    # Of a family only the variants are queued, not the parent.
    queued = queue and spec.role not in (PARENT, ARRAY)
    required = context.queues.required_checks(queue, None) if queued else ()
    pending = pending_reason(new, context)
    outbox: tuple[OutboxEntry, ...] = ()
    if not spec.active:
        reason, message = reasons.DEACTIVATED, "The workload is deactivated"
    elif pending is not None:
        reason, message = pending
        outbox = (OutboxEntry(what="pending", reason=reason, message=message),)
    else:
        reason, message = reasons.PENDING_EVALUATION, ""
    if fact.remark:
        outbox = (
            *outbox,
            OutboxEntry(what="noted", reason=reasons.REGULAR_WORKLOAD, message=fact.remark),
        )
    if fact.uncharged:
        each = "; ".join(f"{name}: {why}" for name, why in fact.uncharged.items())
        said = f"No quota is charged for {each}"[:MESSAGE_MAX]
        outbox = (*outbox, OutboxEntry(what="noted", reason=reasons.NOT_CHARGED, message=said))
    conditions = put((), Type.QUOTA_RESERVED, False, reason, message, now=context.now)
    if any(not row.elementwise for row in fact.dependencies):
        waits = reasons.WAITS_FOR_DEPENDENCIES
        conditions = put(
            conditions, Type.DEPENDENCIES_MET, False, waits, waits_for(new), now=context.now
        )
    return applied(
        with_status(
            new,
            conditions=conditions,
            admission_checks=synced_rows((), {}, required, now=context.now).rows,
            submitted_as=fact.message_id,
            submitted_by=fact.submitted_by,
            array=new_status(spec.array.indexes) if spec.array is not None else None,
        ),
        *outbox,
    )


def _taken(workload: StoredWorkload, fact: Arrived) -> Change:
    """Returns the change for a submission with a taken name: another workload has the name, or the
    submission is a repetition."""
    about = f"a workload {fact.namespace}/{fact.name} exists"
    if bytes(workload.spec) != bytes(fact.spec):
        return refused(workload, reasons.ALREADY_EXISTS, f"{about} with another spec")
    if fact.uid and fact.uid != workload.metadata.uid:
        return refused(workload, reasons.ALREADY_EXISTS, f"{about} with another uid")
    known = workload.status.submitted_as
    if fact.uid or (known and known == fact.message_id):
        return ignored(workload, reasons.REPEATED, "the same submission made the workload")
    return ignored(workload, reasons.UNCHANGED, "the workload exists and is the same")


# Deactivation (T16; also the last step of T11, T14, T15) and activation (T22). ------


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

    An earlier eviction keeps its reason, unless that eviction was a deactivation too.
    """
    off = with_spec(workload, active=False)
    off = with_status(
        off, conditions=without_condition(off.status.conditions, Type.DEACTIVATION_TARGET)
    )
    # A deactivated workload has no wait, no requeue count and no accumulated execution time, so the
    # values that the eviction set are overwritten below.
    evicted = find_true(workload, Type.EVICTED)
    keeps = (
        reason == reasons.DEACTIVATED
        and evicted is not None
        and not evicted.reason.startswith(reasons.DEACTIVATED)
    )
    conditions = off.status.conditions
    if is_reserved(workload) and not is_stopping(workload):
        change = evict(off, reason, message, context, cause=cause)
    else:
        if not keeps:
            conditions = put(conditions, Type.EVICTED, True, reason, message, now=context.now)
        if is_stopping(workload):
            conditions = without_condition(conditions, Type.REQUEUED)
            change = applied(with_status(off, conditions=conditions))
        else:
            conditions = put(
                conditions,
                Type.QUOTA_RESERVED,
                False,
                reasons.DEACTIVATED,
                message,
                now=context.now,
            )
            conditions = put(conditions, Type.REQUEUED, False, reason, message, now=context.now)
            change = applied(
                with_status(off, conditions=conditions),
                OutboxEntry(what="pending", reason=reasons.DEACTIVATED, message=message),
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


def turn_off(
    workload: StoredWorkload, fact: facts.Deactivated, context: TransitionContext
) -> Change:
    """T16: a user, or the array of an element, deactivates the workload."""
    if not head(workload).active:
        return ignored(workload, reasons.REPEATED, "it is not active")
    if fact.reason == BY_ARRAY:
        workload = with_status(workload, stopped_by=BY_ARRAY)
        return deactivate(workload, reasons.DEACTIVATED, "Its array is stopped", context)
    message = f"The workload is deactivated{context.by_user}"
    return deactivate(workload, reasons.DEACTIVATED, message, context)


def turn_on(workload: StoredWorkload, _: Any, context: TransitionContext) -> Change:
    """T22: a user activates the workload, as if it were new. If the workload's job is still
    stopping, the release completes the activation."""
    if head(workload).active:
        return ignored(workload, reasons.REPEATED, "it is active")
    on = with_spec(workload, active=True)
    conditions = put(
        on.status.conditions, Type.REQUEUED, True, reasons.REACTIVATED, now=context.now
    )
    if not holds_quota(on):
        reason, message = pending_reason(on, context) or (reasons.PENDING_EVALUATION, "")
        conditions = put(conditions, Type.QUOTA_RESERVED, False, reason, message, now=context.now)
    # A new admission cycle begins, so that a check's verdict from before the deactivation is stale.
    fresh = fresh_rows(on, context, forget=True)
    on = with_status(on, conditions=conditions, requeue_state=None, **fresh)
    if on.status.stopped_by == BY_ARRAY:
        on = with_status(on, stopped_by="")
    return applied(on, OutboxEntry(what="requeued", reason=reasons.REACTIVATED))


# Other requests of users. ----------------------------------------------------------------------


def hold(workload: StoredWorkload, _: Any, context: TransitionContext) -> Change:
    """T30: puts the workload on hold: it is not queued until a user ends the hold. The request is
    refused if the workload holds quota."""
    if holds_quota(workload):
        return refused(workload, reasons.HOLDS_QUOTA, "it holds quota already: stop it instead")
    if is_held(workload):
        return ignored(workload, reasons.REPEATED, "it is on hold")
    message = f"The workload is on hold{context.by_user}"
    return applied(
        with_condition(
            workload, Type.QUOTA_RESERVED, False, reasons.ON_HOLD, message, now=context.now
        ),
        OutboxEntry(what="pending", reason=reasons.ON_HOLD, message=message),
    )


def release(workload: StoredWorkload, fact: facts.Released, context: TransitionContext) -> Change:
    """T30: ends the hold of the workload, and opens admission gates of its annotation: the named
    one, or all that people open."""
    gates = gate_names(gated_by(workload))
    if fact.gate:
        if fact.gate not in gates:
            return ignored(workload, reasons.NOT_HELD, f"it has no gate {fact.gate}")
        left = tuple(gate for gate in gates if gate != fact.gate)
        held = is_held(workload)
    else:
        left = tuple(gate for gate in gates if gate in OWN_GATES)
        held = False
        if left == gates and not is_held(workload):
            if left:
                return refused(workload, reasons.NOT_HELD, _opened_by_services(left))
            return ignored(workload, reasons.NOT_HELD, "it is not on hold")
    notes = {k: v for k, v in workload.metadata.annotations.items() if k != GATED_BY}
    if left:
        notes[GATED_BY] = ",".join(left)
    free = replace(workload, metadata=replace(workload.metadata, annotations=notes))
    if held:
        return applied(free)
    waits = pending_reason(free, context)
    reason, message = waits or (reasons.PENDING_EVALUATION, wait_message(free))
    free = with_condition(free, Type.QUOTA_RESERVED, False, reason, message, now=context.now)
    if left:
        return applied(free, OutboxEntry(what="pending", reason=reason, message=message))
    return applied(free, OutboxEntry(what="requeued", reason=reasons.RELEASED))


def _opened_by_services(gates: tuple[str, ...]) -> str:
    if len(gates) == 1:
        return f"its gate {gates[0]} opens by itself: name the gate to open it now"
    return f"its gates {', '.join(gates)} open by themselves: name a gate to open it now"


def reprioritize(
    workload: StoredWorkload, fact: facts.Reprioritized, _: TransitionContext
) -> Change:
    """T29: changes the priority of the workload and so its place in the queue. A new priority alone
    evicts no workload."""
    if fact.priority not in INT32:
        return refused(workload, reasons.BAD_PRIORITY, f"{fact.priority} is not a 32-bit number")
    if (head(workload).priority or 0) == fact.priority:
        return ignored(workload, reasons.REPEATED, "it has that priority")
    return applied(with_spec(workload, priority=fact.priority))


def remove(workload: StoredWorkload, _: Any, context: TransitionContext) -> Change:
    """T27: deletes the workload, once its job has stopped."""
    if not holds_quota(workload) or is_true(workload, Type.FINISHED):
        return Change(None)
    if workload.metadata.deletion_timestamp is not None:
        return ignored(workload, reasons.REPEATED, "it is being deleted")
    if not is_true(workload, Type.ADMITTED):
        return Change(None, withdrawals(workload, reasons.DELETED))
    marked = replace(
        workload, metadata=replace(workload.metadata, deletion_timestamp=context.logged_at)
    )
    if is_stopping(marked):
        return applied(marked)
    return evict(marked, reasons.DELETED, f"The workload is deleted{context.by_user}", context)


# Reports of runners. ---------------------------------------------------------------------------


def pods_ready(
    workload: StoredWorkload, fact: facts.PodsReady, context: TransitionContext
) -> Change:
    """T25: all pods of the workload are ready."""
    if fact.revision != workload.status.admitted_revision:
        return ignored(workload, reasons.STALE, f"it is about the admission {fact.revision}")
    before = find(workload, Type.PODS_READY)
    if before is not None and before.status == "True":
        return ignored(workload, reasons.REPEATED)
    reason = (
        reasons.STARTED
        if before is None or before.reason == reasons.WAIT_FOR_START
        else reasons.RECOVERED
    )
    ready = with_condition(
        workload, Type.PODS_READY, True, reason, "All pods are ready", now=context.now
    )
    state = workload.status.requeue_state
    if state is not None and state.requeue_at is None:
        # A later failure of pods to get ready gets a new requeue count, which starts at 0.
        state = None
    started_at = context.now if reason == reasons.STARTED else workload.status.started_at
    return applied(with_status(ready, requeue_state=state, started_at=started_at))


def pods_not_ready(
    workload: StoredWorkload, fact: facts.PodsNotReady, context: TransitionContext
) -> Change:
    """T25: a pod of the workload is not ready any more."""
    if fact.revision != workload.status.admitted_revision:
        return ignored(workload, reasons.STALE, f"it is about the admission {fact.revision}")
    if not is_true(workload, Type.PODS_READY):
        return ignored(workload, reasons.REPEATED)
    reason = reasons.WAIT_FOR_RECOVERY
    return applied(
        with_condition(workload, Type.PODS_READY, False, reason, fact.message, now=context.now)
    )


def finish(workload: StoredWorkload, fact: facts.Finished, context: TransitionContext) -> Change:
    """T26: the workload finishes, and its quota is free at once. A user (revision 0) can also
    finish a workload without a job; a running job is stopped."""
    if fact.revision and not _is_result(workload, fact.revision):
        return ignored(workload, reasons.STALE, f"it is about the admission {fact.revision}")
    reason = fact.reason or (reasons.SUCCEEDED if fact.succeeded else reasons.FAILED)
    message = fact.message or ("Job finished" if fact.succeeded else "Job failed")
    done = with_condition(workload, Type.FINISHED, True, reason, message, now=context.now)
    done = with_status(done, exit_code=fact.exit_code, outputs=kept_outputs(fact.outputs))
    outbox: tuple[OutboxEntry, ...] = ()
    if fact.revision == 0 and is_true(workload, Type.ADMITTED) and not is_stopping(workload):
        outbox = (OutboxEntry(what="evicted", reason=reasons.FINISHED, message=message),)
    if workload.metadata.deletion_timestamp is not None:
        return Change(None)
    return applied(done, *outbox, *withdrawals(workload, reasons.FINISHED))


def renew(workload: StoredWorkload, fact: facts.Renewed, context: TransitionContext) -> Change:
    """T32: the program that holds the quota lives, or it has ended."""
    if head(workload).lease_duration_seconds is None:
        return refused(workload, reasons.NO_LEASE, "it has no lease: no program holds its quota")
    if not fact.ended:
        return applied(with_status(workload, renewed_at=context.now))
    ended = facts.Finished(
        namespace=fact.namespace,
        name=fact.name,
        succeeded=fact.succeeded,
        message=fact.message or ("Its program ended" if fact.succeeded else "Its program failed"),
        exit_code=fact.exit_code,
    )
    return finish(workload, ended, context)


def _is_result(workload: StoredWorkload, revision: int) -> bool:
    """Whether the result of the admission at ``revision`` counts: this is the present admission, or
    the last admission if it was released before its result arrived."""
    status = workload.status
    if is_true(workload, Type.ADMITTED):
        return revision == status.admitted_revision
    return revision == status.released_revision


def started(workload: StoredWorkload, _: facts.Started, __: TransitionContext) -> Change:
    """Changes nothing when a job starts: `Started` stays on the log, and the workload changes when
    its pods are ready.
    """
    return ignored(workload, reasons.NOTED)


def pods_failed(workload: StoredWorkload, _: facts.PodsFailed, __: TransitionContext) -> Change:
    """Changes nothing when pods run again: the runner has the present numbers, and the log those of
    some failures."""
    return ignored(workload, reasons.NOTED)
