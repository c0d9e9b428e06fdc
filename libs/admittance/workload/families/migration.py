"""Migration to a better variant, and the reset of a family. docs/spec/lifecycle.md#4.6, #4.7, #T24.

In a migration the better variant is admitted as soon as the job of the worse one has stopped, never
before. If no variant takes over after an eviction, the family is reset.
"""

from __future__ import annotations

from typing import Any, Final

from admittance.events import facts, reasons
from admittance.events.shapes import Admission
from admittance.family import ActivityReason
from admittance.workload.change import Change, applied, ignored, with_condition, with_status
from admittance.workload.checks.rows import all_ready
from admittance.workload.conditions import (
    Type,
    find,
    find_false,
    find_true,
    is_false,
    is_true,
    pending_reason,
    put,
    revoke,
    without_condition,
)
from admittance.workload.families.family_change import FamilyTransition, with_rejection
from admittance.workload.family_info import allowed_flavors
from admittance.workload.moves.backoff import no_wait, wake_if_over
from admittance.workload.moves.check_rejections import contradiction
from admittance.workload.moves.counted_verdicts import waits_for_checks
from admittance.workload.moves.eviction import (
    closed_gates,
    evict,
    fresh_rows,
    release,
    withdrawals,
    without_reservation,
)
from admittance.workload.moves.reservation import admit, assign
from admittance.workload.phase import Phase, holds_quota, is_reserved, phase
from admittance.workload.stored import OutboxEntry, StoredWorkload, head


def begin_migration(family: FamilyTransition, better: StoredWorkload) -> Change:
    """Starts the migration to ``better``: evicts the admitted variant and the parent."""
    name = better.metadata.name
    parent = family.existing_parent()
    worse = family.variants.get(parent.status.admitted_variant)
    if worse is None or worse not in family.running():
        return ignored(better, reasons.FAMILY_STOPS, "its family's job is being stopped")
    message = f"Migrating to variant {name}"
    family.put(worse.metadata.name, evict(worse, reasons.FLAVOR_MIGRATION, message, family.context))
    change = evict(
        parent,
        reasons.VARIANT_EVICTED,
        message,
        family.parent_context,
        cause=reasons.FLAVOR_MIGRATION,
    )
    assert change.workload is not None, "an eviction deletes nothing"
    migrating = with_status(change.workload, migrating_to=name)
    family.put(parent.metadata.name, change._replace(workload=migrating))
    return applied(better)


def promise_quota(family: FamilyTransition, better: StoredWorkload, fact: facts.Assigned) -> Change:
    """Starts the migration to a variant without checks. A variant without checks would be admitted
    together with its reservation, so the formerly admitted variant is evicted first; until its job
    has stopped, the quota is promised to the better variant."""
    source = fact.migrates_from
    parent = family.existing_parent()
    where = phase(better, family.now)
    if where is not Phase.PENDING:
        return ignored(better, reasons.NO_MOVE, f"it is {where}: it does not compete")
    if source is None or source.name != parent.status.admitted_variant:
        return ignored(better, reasons.STALE_FAMILY, "another sibling is admitted now, or none")
    required = family.context.queues.required_checks(fact.admission.cluster_queue, fact.admission)
    if required or fact.pending_preemption is not None:
        return ignored(
            better, reasons.STALE_FAMILY, "it must wait for checks or for preempted workloads"
        )
    begun = begin_migration(family, better)
    if begun.workload is None or begun.reason:
        return begun
    message = "Pending the migration of 1 workload(s)"
    reason = reasons.WAITING_FOR_PREEMPTED_WORKLOADS
    waiting = with_condition(better, Type.QUOTA_RESERVED, False, reason, message, now=family.now)
    return applied(
        with_status(waiting, promised=fact.admission),
        OutboxEntry(what="pending", reason=reason, message=message),
    )


def admitted_after_stop(family: FamilyTransition, name: str) -> Change | None:
    """Admits the variant ``name`` after its family's job has stopped, or rejects it if the
    additions of its checks conflict. None: the variant can no longer be admitted. While the variant
    is admitted, the parent still names the stopped variant."""
    better = family.variants.get(name)
    wanted = family.desired_state(name)
    if better is None or wanted is None or not wanted.active or not head(better).active:
        return None
    queues = family.context.queues
    queue = head(better).queue_name
    if queues.inactive_reason(better.metadata.namespace, queue) is not None:
        return None
    status = better.status
    admission = status.promised or status.admission
    if admission is None or queues.not_offered(admission) or not _may_use(better, admission):
        return None
    required = queues.required_checks(admission.cluster_queue, admission)
    if status.promised is not None:
        if required or queues.cluster_queue(better.metadata.namespace, queue) != (
            admission.cluster_queue
        ):
            return None
        kept = with_status(better, promised=None)
        meta = better.metadata
        fact = facts.Assigned(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            revision=0,
            seen=0,
            domain="",
            admission=admission,
        )
        return assign(kept, fact, family.context)
    if (
        not is_reserved(better)
        or is_true(better, Type.EVICTED)
        or status.pending_preemption is not None
        or not all_ready(status.admission_checks, required)
    ):
        return None
    # A flavor may have got other labels after the reservation.
    conflict = contradiction(better, family.context)
    if conflict is not None:
        return with_rejection(better, conflict)
    return applied(admit(better, family.context))


def _may_use(variant: StoredWorkload, admission: Admission) -> bool:
    """Whether the queue of the variant still allows the flavors of the admission."""
    allowed = allowed_flavors(variant)
    places = admission.pod_set_assignments
    return allowed is None or all(allowed.issuperset(place.flavors.values()) for place in places)


FROM_OUTSIDE: Final = frozenset(
    {
        reasons.PREEMPTED,
        reasons.NODE_FAILURES,
        reasons.QUOTA_CHANGED,
        reasons.FLAVORS_CHANGED,
        reasons.CLUSTER_QUEUE_STOPPED,
        reasons.LOCAL_QUEUE_STOPPED,
    }
)
"""Reasons of evictions with an outside cause. After an eviction for one of these reasons, rejected
variants are reset too."""
_FORGIVEN: Final = frozenset({ActivityReason.REJECTED, ActivityReason.REQUEUING_LIMIT})


def admit_parent(family: FamilyTransition, variant: StoredWorkload) -> None:
    """Admits the parent with the variant's admission."""
    parent = family.existing_parent()
    name = variant.metadata.name
    admission = variant.status.admission
    assert admission is not None, "an admitted variant has an admission"
    conditions = put(
        parent.status.conditions,
        Type.QUOTA_RESERVED,
        True,
        reasons.QUOTA_RESERVED,
        f"Variant {name} has quota in ClusterQueue {admission.cluster_queue}",
        now=family.now,
    )
    for old in (Type.EVICTED, Type.PREEMPTED):
        conditions = revoke(conditions, old, now=family.now)
    status = parent.status
    reserved = with_status(
        parent,
        conditions=conditions,
        admission=admission,
        requeue_state=no_wait(status.requeue_state),
        evicted_revision=0,
        preempted_by=None,
        admitted_variant=name,
        migrating_to="",
        first_admitted_at=status.first_admitted_at or family.now,
    )
    admitted = with_status(
        admit(reserved, family.parent_context),
        placement=variant.status.placement,
        parts=None,
        started_at=None,
    )
    message = f"Variant {name} is admitted"
    family.drop_notices(parent.metadata.name)
    family.keep(
        with_condition(admitted, Type.ADMITTED, True, reasons.ADMITTED, message, now=family.now),
        OutboxEntry(what="admitted", reason=reasons.ADMITTED, message=message),
    )


def after_stop(family: FamilyTransition) -> None:
    """Releases the admitted variant after its parent was released, and completes the migration or
    resets the family."""
    parent = family.existing_parent()
    name = parent.status.admitted_variant
    if not name or holds_quota(parent):
        return
    worse = family.variants.get(name)
    evicted = find(parent, Type.EVICTED)
    kind = evicted.reason if evicted is not None else reasons.VARIANT_EVICTED
    if worse is not None and holds_quota(worse):
        stopping = find_true(worse, Type.EVICTED)
        if stopping is not None and kind == reasons.VARIANT_EVICTED:
            kind = stopping.reason
        family.put(name, wake_if_over(release(worse, family.context), family.context))
    requeued = find(parent, Type.REQUEUED)
    reactivated = requeued is not None and requeued.reason == reasons.REACTIVATED
    _competes_again(family)
    successor = parent.status.migrating_to
    change = admitted_after_stop(family, successor) if successor else None
    if change is not None and change.workload is not None:
        family.put(successor, change)
        if is_true(change.workload, Type.ADMITTED):
            admit_parent(family, change.workload)
            _end_backoff_of_removed(family, name)
            return
    if (
        kind == reasons.DEACTIVATED_DUE_TO_ADMISSION_CHECK
        and not reactivated
        and head(parent).active
    ):
        family.keep(with_status(family.existing_parent(), admitted_variant="", migrating_to=""))
        drop_promises(family)
        return
    reset(
        family,
        forgive=reactivated or kind in FROM_OUTSIDE,
        as_new=reactivated or kind == reasons.PREEMPTED,
        waits=name,
    )


def _competes_again(family: FamilyTransition) -> None:
    """Sets the parent's condition Requeued to True, unless the parent waits for a backoff after
    pods that were not ready."""
    parent = family.existing_parent()
    requeued = find_false(parent, Type.REQUEUED)
    if requeued is None or requeued.reason == reasons.PODS_READY_TIMEOUT or not head(parent).active:
        return
    reason, message = requeued.reason, requeued.message
    outbox: tuple[OutboxEntry, ...] = ()
    if pending_reason(parent, family.parent_context) is None:
        outbox = (OutboxEntry(what="requeued", reason=reason, message=message),)
    requeued_parent = with_condition(parent, Type.REQUEUED, True, reason, message, now=family.now)
    family.keep(requeued_parent, *outbox)


def _end_backoff_of_removed(family: FamilyTransition, name: str) -> None:
    """Ends the backoff of a replaced variant that its queue no longer has. Policy has no desired
    state for such a variant, so nothing else would end its backoff if the queue lists the variant
    again."""
    variant = family.variants.get(name)
    if variant is None or not head(variant).active or family.desired_state(name) is not None:
        return
    requeued = find_false(variant, Type.REQUEUED)
    if requeued is None:
        return
    reason, message = requeued.reason, requeued.message
    family.keep(with_condition(variant, Type.REQUEUED, True, reason, message, now=family.now))


def drop_promises(family: FamilyTransition, successor: str = "") -> None:
    """Removes the promised quota of all variants except an active ``successor``."""
    for variant in list(family.variants.values()):
        keeps = variant.metadata.name == successor and head(variant).active
        if variant.status.promised is not None and not keeps:
            family.keep(with_status(variant, promised=None))


def reset(family: FamilyTransition, *, forgive: bool, as_new: bool, waits: str = "") -> None:
    """Lets all variants of the family try again. ``forgive``: rejected variants are reset too.
    ``as_new``: as if the parent were new, so that the delays of checks end and their retry counts
    are forgotten: after a preemption (KEP-8691) and an activation. Otherwise a variant that waits
    for the delay of a check still waits, as does the variant ``waits`` in any case."""
    parent = family.existing_parent()
    family.keep(
        with_status(
            parent,
            family_start=family.now,
            first_admitted_at=None,
            admitted_variant="",
            migrating_to="",
            preemption_gate=None,
        )
    )
    for variant in list(family.variants.values()):
        keeps = waits_for_checks(variant) and (not as_new or variant.metadata.name == waits)
        _reset_variant(family, variant, forgive=forgive, as_new=as_new, keeps=keeps)


def _reset_variant(
    family: FamilyTransition, variant: StoredWorkload, *, forgive: bool, as_new: bool, keeps: bool
) -> None:
    context = family.context
    status = variant.status
    fields: dict[str, Any] = {
        "promised": None,
        "preemption_gates": closed_gates(status.preemption_gates, context),
    }
    if forgive and status.stopped_by in _FORGIVEN:
        fields["stopped_by"] = ""
    if keeps or not head(variant).active:
        # A variant that is inactive is reset later, when the variant is activated.
        new = with_status(variant, **fields)
        if new != variant:
            family.keep(new)
        return
    # The rows of an assigned flavor go with the reservation, so their retry counts are read before.
    fields |= fresh_rows(variant, context, forget=as_new)
    outbox: tuple[OutboxEntry, ...] = ()
    if is_reserved(variant):
        outbox = withdrawals(variant, reasons.VARIANT_EVICTED)
        variant = without_reservation(variant, reasons.PENDING_EVALUATION, "", context)
    conditions = without_condition(variant.status.conditions, Type.BLOCKED_ON_PREEMPTION_GATES)
    reason, message = pending_reason(variant, context) or (reasons.PENDING_EVALUATION, "")
    conditions = put(conditions, Type.QUOTA_RESERVED, False, reason, message, now=context.now)
    if is_false(variant, Type.REQUEUED):
        conditions = put(conditions, Type.REQUEUED, True, reasons.REACTIVATED, now=context.now)
    family.put(
        variant.metadata.name,
        applied(with_status(variant, conditions=conditions, requeue_state=None, **fields), *outbox),
    )
