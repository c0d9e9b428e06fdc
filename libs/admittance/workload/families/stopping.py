"""After a family's job has stopped: the better variant is admitted, or the family is reset.

Source: docs/spec/lifecycle.md#4.6, #4.7.
"""

from __future__ import annotations

from typing import Any, Final

from admittance.family.policy import ActivityReason
from admittance.workload.change import applied, with_status
from admittance.workload.conditions import Type, find, is_true, put, revoke, without
from admittance.workload.families.family_change import FamilyTransition
from admittance.workload.families.migrating import OF_PARENT, taken_over
from admittance.workload.moves.backoff import no_wait, wake_if_over
from admittance.workload.moves.check_verdicts import waits_for_checks
from admittance.workload.moves.eviction import (
    closed_gates,
    evict,
    freed_of,
    fresh_rows,
    release,
    withdrawals,
)
from admittance.workload.moves.reservation import admit
from admittance.workload.phase import REJECTION, holds_quota, is_reserved
from admittance.workload.reasons import pending_reason
from admittance.workload.stored import OutboxEntry, StoredWorkload, head

FROM_OUTSIDE: Final = frozenset(
    {
        "Preempted",
        "NodeFailures",
        "QuotaChanged",
        "FlavorsChanged",
        "ClusterQueueStopped",
        "LocalQueueStopped",
    }
)
"""Evictions with an outside cause: after them rejected variants are reset too."""
_FORGIVEN: Final = frozenset({ActivityReason.REJECTED, ActivityReason.REQUEUING_LIMIT})


def admit_parent(family: FamilyTransition, variant: StoredWorkload) -> None:
    """Admits the parent with the variant's admission."""
    parent = family.family_head()
    name = variant.metadata.name
    admission = variant.status.admission
    assert admission is not None, "an admitted variant has an admission"
    conditions = put(
        parent.status.conditions,
        Type.QUOTA_RESERVED,
        True,
        "QuotaReserved",
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
    admitted = admit(reserved, family.parent_context)
    message = f"Variant {name} is admitted"
    conditions = put(
        admitted.status.conditions, Type.ADMITTED, True, "Admitted", message, now=family.now
    )
    family.hush(parent.metadata.name)
    family.keep(
        with_status(admitted, conditions=conditions),
        OutboxEntry(what="admitted", reason="Admitted", message=message),
    )


def after_stop(family: FamilyTransition) -> None:
    """If the parent is released, releases the admitted variant, then completes the migration or
    resets the family."""
    parent = family.family_head()
    name = parent.status.admitted_variant
    if not name or holds_quota(parent):
        return
    worse = family.variants.get(name)
    evicted = find(parent, Type.EVICTED)
    kind = evicted.reason if evicted is not None else OF_PARENT
    if worse is not None and holds_quota(worse):
        found = find(worse, Type.EVICTED)
        if found is None or found.status != "True":
            message = evicted.message if evicted is not None else ""
            family.put(name, evict(worse, kind, message, family.context))
            worse = family.variants[name]
        elif kind == OF_PARENT:
            kind = found.reason
        family.put(name, wake_if_over(release(worse, family.context), family.context))
    requeued = find(parent, Type.REQUEUED)
    reactivated = requeued is not None and requeued.reason == "Reactivated"
    _competes_again(family)
    heir = parent.status.migrating_to
    change = taken_over(family, heir) if heir else None
    if change is not None and change.workload is not None:
        family.put(heir, change)
        if is_true(change.workload, Type.ADMITTED):
            admit_parent(family, change.workload)
            _end_backoff_of_removed(family, name)
            return
    if kind == REJECTION and not reactivated and head(parent).active:
        family.keep(with_status(family.family_head(), admitted_variant="", migrating_to=""))
        _without_promises(family)
        return
    reset(family, forgive=reactivated or kind in FROM_OUTSIDE, waits=name)


def _competes_again(family: FamilyTransition) -> None:
    """Sets Requeued of the parent to True, unless it waits for its pods' backoff."""
    parent = family.family_head()
    requeued = find(parent, Type.REQUEUED)
    if (
        requeued is None
        or requeued.status == "True"
        or requeued.reason == "PodsReadyTimeout"
        or not head(parent).active
    ):
        return
    conditions = put(
        parent.status.conditions,
        Type.REQUEUED,
        True,
        requeued.reason,
        requeued.message,
        now=family.now,
    )
    says: tuple[OutboxEntry, ...] = ()
    if pending_reason(parent, family.parent_context) is None:
        says = (OutboxEntry(what="requeued", reason=requeued.reason, message=requeued.message),)
    family.keep(with_status(parent, conditions=conditions), *says)


def _end_backoff_of_removed(family: FamilyTransition, name: str) -> None:
    """Ends the backoff of a replaced variant that its queue no longer has. Policy says nothing
    about it, and if the queue lists it again, nothing else would end its wait.
    """
    variant = family.variants.get(name)
    if variant is None or not head(variant).active or family.wish(name) is not None:
        return
    requeued = find(variant, Type.REQUEUED)
    if requeued is None or requeued.status == "True":
        return
    conditions = put(
        variant.status.conditions,
        Type.REQUEUED,
        True,
        requeued.reason,
        requeued.message,
        now=family.now,
    )
    family.keep(with_status(variant, conditions=conditions))


def _without_promises(family: FamilyTransition) -> None:
    for one in list(family.variants.values()):
        if one.status.promised is not None:
            family.keep(with_status(one, promised=None))


def reset(family: FamilyTransition, *, forgive: bool, waits: str = "") -> None:
    """Resets the family as if the parent were new. ``forgive``: rejected variants are reset too.
    ``waits``: name of a variant that keeps the delay of its check."""
    parent = family.family_head()
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
    for one in list(family.variants.values()):
        _fresh(family, one, forgive, keeps=one.metadata.name == waits and waits_for_checks(one))


def _fresh(
    family: FamilyTransition, variant: StoredWorkload, forgive: bool, *, keeps: bool
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
        # An inactive variant is reset when it is activated.
        new = with_status(variant, **fields)
        if new != variant:
            family.keep(new)
        return
    says: tuple[OutboxEntry, ...] = ()
    if is_reserved(variant):
        says = withdrawals(variant, OF_PARENT)
        variant = freed_of(variant, "PendingEvaluation", "", context)
    conditions = without(variant.status.conditions, Type.BLOCKED_ON_PREEMPTION_GATES)
    reason, message = pending_reason(variant, context) or ("PendingEvaluation", "")
    conditions = put(conditions, Type.QUOTA_RESERVED, False, reason, message, now=context.now)
    requeued = find(variant, Type.REQUEUED)
    if requeued is not None and requeued.status == "False":
        conditions = put(conditions, Type.REQUEUED, True, "Reactivated", now=context.now)
    fields |= fresh_rows(variant, context, forget=True)
    family.put(
        variant.metadata.name,
        applied(with_status(variant, conditions=conditions, requeue_state=None, **fields), *says),
    )
