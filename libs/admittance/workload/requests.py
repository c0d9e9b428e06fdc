"""What users ask of a workload, and what runners report of its job: T16, T22, T25-T27, T29, T30."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

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
from admittance.workload.leave import (
    RESTARTED,
    deactivate,
    evict,
    fresh_rows,
    withdraw,
    withdrawals,
)
from admittance.workload.occasion import Occasion, QueueChanged
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.reserve import withdraw_if_not_offered
from admittance.workload.rows import synced, without_counts
from admittance.workload.stored import Say, StoredWorkload, head

INT32: Final = range(-(2**31), 2**31)


def turn_off(workload: StoredWorkload, _: Any, at: Occasion) -> Change:
    """T16."""
    if not head(workload).active:
        return ignored(workload, "Repeated", "it is not active")
    return deactivate(workload, "Deactivated", "The workload is deactivated", at)


def turn_on(workload: StoredWorkload, _: Any, at: Occasion) -> Change:
    """T22: like new. While its job still stops, what ends that finishes it."""
    if head(workload).active:
        return ignored(workload, "Repeated", "it is active")
    on = with_spec(workload, active=True)
    conditions = put(on.status.conditions, Type.REQUEUED, True, "Reactivated", "", now=at.now)
    if not holds_quota(on):
        conditions = put(
            conditions, Type.QUOTA_RESERVED, False, "PendingEvaluation", "", now=at.now
        )
    rows = without_counts(fresh_rows(on, at))
    on = with_status(
        on, conditions=conditions, admission_checks=rows, requeue_state=None, check_retry_counts={}
    )
    return applied(on, Say(what="requeued", reason="Reactivated"))


def hold(workload: StoredWorkload, _: Any, at: Occasion) -> Change:
    """T30: out of the queue until released. Only what holds no quota can be held."""
    if holds_quota(workload):
        return refused(workload, "HoldsQuota", "it holds quota already: stop it instead")
    reserved = find(workload, Type.QUOTA_RESERVED)
    if reserved is not None and reserved.reason == "OnHold":
        return ignored(workload, "Repeated", "it is on hold")
    message = "The workload is on hold"
    conditions = put(
        workload.status.conditions, Type.QUOTA_RESERVED, False, "OnHold", message, now=at.now
    )
    return applied(
        with_status(workload, conditions=conditions),
        Say(what="pending", reason="OnHold", message=message),
    )


def let_go(workload: StoredWorkload, _: Any, at: Occasion) -> Change:
    """The hold is lifted."""
    reserved = find(workload, Type.QUOTA_RESERVED)
    if reserved is None or reserved.reason != "OnHold":
        return ignored(workload, "NotHeld", "it is not on hold")
    conditions = put(
        workload.status.conditions, Type.QUOTA_RESERVED, False, "PendingEvaluation", "", now=at.now
    )
    return applied(
        with_status(workload, conditions=conditions), Say(what="requeued", reason="Released")
    )


def reprioritize(workload: StoredWorkload, fact: facts.Reprioritized, _: Occasion) -> Change:
    """T29: another place in the queue; no eviction by itself."""
    if fact.priority not in INT32:
        return refused(workload, "BadPriority", f"{fact.priority} is no 32-bit number")
    if (head(workload).priority or 0) == fact.priority:
        return ignored(workload, "Repeated", "it has that priority")
    return applied(with_spec(workload, priority=fact.priority))


def remove(workload: StoredWorkload, _: Any, at: Occasion) -> Change:
    """T27: the object is kept until the runner has stopped the job."""
    if not holds_quota(workload) or is_true(workload, Type.FINISHED):
        return Change(None)
    if workload.metadata.deletion_timestamp is not None:
        return ignored(workload, "Repeated", "it is being deleted")
    if not is_true(workload, Type.ADMITTED):
        return Change(None, withdrawals(workload, "Deleted"))
    marked = replace(workload, metadata=replace(workload.metadata, deletion_timestamp=at.at))
    if is_stopping(marked):
        return applied(marked)
    return evict(marked, "Deleted", "The workload is deleted", at)


def pods_ready(workload: StoredWorkload, fact: facts.PodsReady, at: Occasion) -> Change:
    """T25."""
    if fact.revision != workload.status.admitted_revision:
        return ignored(workload, "Stale", f"of the admission {fact.revision}")
    before = find(workload, Type.PODS_READY)
    if before is not None and before.status == "True":
        return ignored(workload, "Repeated")
    reason = "Started" if before is None or before.reason == "WaitForStart" else "Recovered"
    conditions = put(
        workload.status.conditions, Type.PODS_READY, True, reason, "All pods are ready", now=at.now
    )
    state = workload.status.requeue_state
    if state is not None and state.requeue_at is None:
        state = None  # Reached: unrelated later failures start over.
    return applied(with_status(workload, conditions=conditions, requeue_state=state))


def pods_not_ready(workload: StoredWorkload, fact: facts.PodsNotReady, at: Occasion) -> Change:
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
        now=at.now,
    )
    return applied(with_status(workload, conditions=conditions))


def finish(workload: StoredWorkload, fact: facts.Finished, at: Occasion) -> Change:
    """T26: the end; the quota is free at once. By a user (revision 0) also of what never ran; a
    job that runs then is told to stop."""
    if fact.revision and fact.revision != workload.status.admitted_revision:
        return ignored(workload, "Stale", f"of the admission {fact.revision}")
    reason = fact.reason or ("Succeeded" if fact.succeeded else "Failed")
    message = fact.message or ("Job finished" if fact.succeeded else "Job failed")
    conditions = put(workload.status.conditions, Type.FINISHED, True, reason, message, now=at.now)
    done = with_status(workload, conditions=conditions)
    says: tuple[Say, ...] = ()
    if fact.revision == 0 and is_true(workload, Type.ADMITTED) and not is_stopping(workload):
        says = (Say(what="evicted", reason="Finished", message=message),)
    if workload.metadata.deletion_timestamp is not None:
        return Change(None)
    return applied(done, *says, *withdrawals(workload, "Finished"))


def started(workload: StoredWorkload, _: facts.Started, __: Occasion) -> Change:
    """The log knows; the object learns when the pods are ready."""
    return ignored(workload, "Noted")


def queue_changed(workload: StoredWorkload, _: QueueChanged, at: Occasion) -> Change:
    """T02, T17, T18, T23, T28: whatever the queues around the workload now ask for."""
    if is_true(workload, Type.FINISHED) or is_stopping(workload):
        return ignored(workload, "Settled")
    spec = head(workload)
    hindrance = at.around.hindrance(workload.metadata.namespace, spec.queue_name)
    if holds_quota(workload):
        if hindrance is None:
            return _checks_changed(workload, at)
        if not is_true(workload, Type.ADMITTED):
            return withdraw(workload, hindrance.reason, hindrance.message, at)
        if hindrance.drains:
            return evict(workload, hindrance.evicted_as, hindrance.message, at)
        return _checks_changed(workload, at)
    if not spec.active:
        return ignored(workload, "Settled")
    return _waiting(workload, at)


def _checks_changed(workload: StoredWorkload, at: Occasion) -> Change:
    admission = workload.status.admission
    assert admission is not None, "it holds quota"
    gone = None if is_true(workload, Type.ADMITTED) else withdraw_if_not_offered(workload, at)
    if gone is not None:
        return gone
    required = at.around.required_checks(admission.cluster_queue, admission)
    rows = synced(workload.status.admission_checks, required, now=at.now)
    new = {row.name for row in rows} - {row.name for row in workload.status.admission_checks}
    asks = tuple(Say(what="check_requested", detail=name) for name in sorted(new))
    if rows == workload.status.admission_checks:
        return ignored(workload, "Settled")
    kept = with_status(workload, admission_checks=rows)
    if is_true(workload, Type.ADMITTED):
        # Shown, never asked: a new check does not un-admit.
        return applied(kept)
    return applied(kept, *asks)


def _waiting(workload: StoredWorkload, at: Occasion) -> Change:
    spec = head(workload)
    status = workload.status
    hindrance = at.around.hindrance(workload.metadata.namespace, spec.queue_name)
    reserved = find(workload, Type.QUOTA_RESERVED)
    requeued = find(workload, Type.REQUEUED)
    conditions = status.conditions
    says: list[Say] = []
    reason_now = reserved.reason if reserved is not None else ""
    if hindrance is not None and reason_now != "OnHold":
        if (reason_now, reserved.message if reserved else "") != hindrance[:2]:
            conditions = put(
                conditions,
                Type.QUOTA_RESERVED,
                False,
                hindrance.reason,
                hindrance.message,
                now=at.now,
            )
            says.append(Say(what="pending", reason=hindrance.reason, message=hindrance.message))
    elif reason_now in ("Suspended", "Misconfigured"):
        conditions = put(
            conditions, Type.QUOTA_RESERVED, False, "PendingEvaluation", "", now=at.now
        )
    if (
        hindrance is None
        and requeued is not None
        and requeued.status == "False"
        and requeued.reason in RESTARTED
    ):
        why = RESTARTED[requeued.reason]
        conditions = put(conditions, Type.REQUEUED, True, why, "", now=at.now)
        says.append(Say(what="requeued", reason=why))
    rows = status.admission_checks
    if not any(row.state == "Retry" for row in rows):
        queue = at.around.cluster_queue(workload.metadata.namespace, spec.queue_name)
        required = at.around.required_checks(queue, None) if queue else ()
        rows = synced(rows, required, now=at.now)
    if conditions == status.conditions and rows == status.admission_checks:
        return ignored(workload, "Settled")
    return applied(with_status(workload, conditions=conditions, admission_checks=rows), *says)
