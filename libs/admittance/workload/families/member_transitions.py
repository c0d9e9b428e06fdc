"""The transition of a parent or a variant. The table of moves holds for parents and variants too,
with exceptions: a variant has no job, policy can deactivate a variant, and some facts exist only
for families.
"""

from __future__ import annotations

from typing import Final

from admittance.api.workload import FAMILY_GATE, GateHolder, GatePosition
from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.family import STOPPED, ActivityReason, holder_of
from admittance.workload.change import (
    Change,
    FactOutcome,
    applied,
    ignored,
    refused,
    with_condition,
    with_status,
)
from admittance.workload.conditions import Type, is_false, is_true
from admittance.workload.families.family_change import FamilyTransition, with_rejection
from admittance.workload.families.migration import begin_migration, promise_quota
from admittance.workload.family_info import (
    allowed_flavors,
    competes,
    gate_of,
    parent_state,
    sibling,
    with_closed_gate,
)
from admittance.workload.moves.requests import deactivate, turn_on
from admittance.workload.moves.reservation import break_promise
from admittance.workload.stored import StoredWorkload, head
from admittance.workload.transitions import transition

FAMILY_REQUESTS: Final = (facts.Held, facts.Released, facts.Finished, facts.Renewed)
"""Requests of users that a parent accepts for its family and that are refused for a variant."""
VARIANT_FACTS: Final = (facts.Decision, facts.CheckReported, facts.Ungated)


def parent_transition(family: FamilyTransition, parent: StoredWorkload, fact: Fact) -> Change:
    """The change of a parent by a fact about it."""
    if isinstance(fact, VARIANT_FACTS):
        return ignored(parent, reasons.IS_PARENT, "a parent does not compete, its variants do")
    if isinstance(fact, facts.Aggregated):
        # The rows of the parent are updated after every fact about its family.
        return ignored(parent, reasons.UNCHANGED, "its rows are up to date")
    return transition(parent, fact, family.parent_context)


def variant_transition(family: FamilyTransition, variant: StoredWorkload, fact: Fact) -> Change:
    """The change of a variant by a fact about it."""
    if isinstance(fact, facts.JobFact):
        return ignored(variant, reasons.IS_VARIANT, "its parent owns the job")
    if isinstance(fact, FAMILY_REQUESTS):
        return refused(
            variant, reasons.IS_VARIANT, f"send the request to its parent {family.parent_name!r}"
        )
    match fact:
        case facts.Assigned() | facts.Confirmed():
            return _admittable(family, variant, fact)
        case facts.Deactivated():
            return _deactivated(family, variant, fact)
        case facts.Activated():
            return _activated(family, variant, fact)
        case facts.Reprioritized():
            return _reprioritized(family, variant, fact)
        case facts.Ungated():
            return _ungated(family, variant)
        case facts.Revoked() if variant.status.promised is not None:
            return break_promise(variant, fact, family.context)
        case facts.Aggregated():
            return ignored(variant, reasons.IS_VARIANT, "it has no variants")
    change = with_rejection(variant, transition(variant, fact, family.context))
    after = change.workload
    if after is not None and after.status.promised is not None and is_false(after, Type.REQUEUED):
        # A late Retry with a delay: the variant must not be admitted before the delay has passed.
        return change._replace(workload=with_status(after, promised=None))
    return change


# Quota and admission. -------------------------------------------------------------------


def ineligible_reason(family: FamilyTransition, variant: StoredWorkload) -> tuple[str, str] | None:
    """Why the variant may not get quota or be admitted now, as reason and message; None: the
    variant may."""
    parent = family.parent
    if parent is None:
        return reasons.ORPHAN, "its parent is gone"
    if family.is_stopping():
        return reasons.FAMILY_STOPS, "its family's job is being stopped"
    if is_false(parent, Type.REQUEUED):
        return reasons.FAMILY_WAITS, "its family is in backoff"
    wanted = family.desired_state(variant.metadata.name)
    if wanted is None:
        return reasons.NO_SUCH_VARIANT, "its queue no longer has such a variant"
    if not wanted.active:
        return reasons.NOT_WANTED, f"policy does not want it: {wanted.why}"
    return None


def _admittable(
    family: FamilyTransition, variant: StoredWorkload, fact: facts.Assigned | facts.Confirmed
) -> Change:
    ineligible = ineligible_reason(family, variant)
    if ineligible is not None:
        return ignored(variant, *ineligible)
    if isinstance(fact, facts.Assigned):
        allowed = allowed_flavors(variant)
        places = fact.admission.pod_set_assignments
        taken = {flavor for place in places for flavor in place.flavors.values()}
        if allowed is not None and not taken <= allowed:
            return ignored(
                variant, reasons.FLAVOR_NOT_ALLOWED, f"it may have {', '.join(sorted(allowed))}"
            )
        if fact.migrates_from is not None:
            return promise_quota(family, variant, fact)
    change = transition(variant, fact, family.context)
    after = change.workload
    if change.outcome is not FactOutcome.APPLIED or after is None:
        return change
    if not is_true(after, Type.ADMITTED):
        return with_rejection(variant, change)
    if not family.existing_parent().status.admitted_variant:
        return change
    if isinstance(fact, facts.Assigned):
        return ignored(variant, reasons.SIBLING_ADMITTED, "its sibling must stop first")
    # A variant with a confirmed reservation has no planned preemptions.
    return begin_migration(family, with_status(variant, pending_preemption=None))


# Activation, priority and gates. ---------------------------------------------------------


def _deactivated(
    family: FamilyTransition, variant: StoredWorkload, fact: facts.Deactivated
) -> Change:
    if fact.reason:
        wanted = family.desired_state(variant.metadata.name)
        if wanted is None or wanted.active:
            return ignored(variant, reasons.POLICY_MOVED_ON, "policy has changed since")
        return activity_change(family, variant, active=False, why=str(wanted.why))
    stopped = variant.status.stopped_by or str(ActivityReason.USER)
    if not head(variant).active:
        if variant.status.stopped_by:
            return ignored(variant, reasons.REPEATED, "it is not active")
        return applied(with_status(variant, stopped_by=stopped))
    change = activity_change(family, variant, active=False, why=stopped)
    assert change.workload is not None, "nothing is deleted"
    return change._replace(workload=with_status(change.workload, stopped_by=stopped))


def _activated(family: FamilyTransition, variant: StoredWorkload, fact: facts.Activated) -> Change:
    stopped = variant.status.stopped_by
    if stopped in STOPPED:
        if fact.reason:
            return ignored(variant, reasons.POLICY_MOVED_ON, f"it was stopped meanwhile: {stopped}")
        # The next reconciliation activates the variant if the policy requires it to be active.
        return applied(with_status(variant, stopped_by=""))
    wanted = family.desired_state(variant.metadata.name)
    if wanted is None or not wanted.active:
        why = f"policy does not want it: {wanted.why}" if wanted is not None else "it has no parent"
        return (ignored if fact.reason else refused)(variant, reasons.NOT_WANTED, why)
    return transition(variant, fact, family.context)


def activity_change(
    family: FamilyTransition, variant: StoredWorkload, *, active: bool, why: str
) -> Change:
    """Returns the change of a variant that policy activates or deactivates."""
    if active:
        on = turn_on(variant, None, family.context)
        if on.outcome is not FactOutcome.APPLIED or on.workload is None:
            return on
        message = f"Variant activated: {why}"
        variant = with_condition(
            on.workload, Type.REQUEUED, True, reasons.REACTIVATED, message, now=family.now
        )
        return on._replace(workload=variant)
    if not head(variant).active:
        return ignored(variant, reasons.REPEATED, "it is not active")
    return deactivate(variant, reasons.DEACTIVATED, f"Variant deactivated: {why}", family.context)


def _reprioritized(
    family: FamilyTransition, variant: StoredWorkload, fact: facts.Reprioritized
) -> Change:
    parent = family.parent
    if parent is None or (head(parent).priority or 0) != fact.priority:
        return refused(variant, reasons.IS_VARIANT, "its priority is its parent's")
    return transition(variant, fact, family.context)


def _gate_holder(family: FamilyTransition) -> str:
    """The name of the variant with a gate that must stay open; "": none. The transition checks the
    gate once more, because workloads may have been preempted for that variant after the request to
    open another gate was made."""
    gate = parent_state(family.existing_parent()).gate
    variant = family.variants.get(gate.holder) if gate is not None else None
    if variant is None or not competes(variant):
        return ""
    wanted = family.desired_state(variant.metadata.name)
    if wanted is None or not wanted.active:
        return ""
    holder, keeps = holder_of((sibling(variant, 0),), gate, family.now)
    return holder.name if holder is not None and keeps else ""


def _ungated(family: FamilyTransition, variant: StoredWorkload) -> Change:
    """Opens the gate of the variant and closes the gates of its siblings:
    docs/spec/lifecycle.md#4.8."""
    ineligible = ineligible_reason(family, variant)
    if ineligible is not None:
        return ignored(variant, *ineligible)
    gates = variant.status.preemption_gates
    if any(gate.name == FAMILY_GATE and gate.position == "Open" for gate in gates):
        return ignored(variant, reasons.REPEATED, "its gate is open")
    kept_by = _gate_holder(family)
    if kept_by:
        return ignored(variant, reasons.GATE_HELD, f"only {kept_by} may preempt now")
    others = tuple(gate for gate in gates if gate.name != FAMILY_GATE)
    opened = GatePosition(name=FAMILY_GATE, position="Open", last_transition_time=family.now)
    for other in list(family.variants.values()):
        if gate_of(other).position == "Open":
            family.keep(with_status(other, preemption_gates=with_closed_gate(other)))
    holder = GateHolder(holder=variant.metadata.name, since=family.now)
    family.keep(with_status(family.existing_parent(), preemption_gate=holder))
    return applied(with_status(variant, preemption_gates=(*others, opened)))
