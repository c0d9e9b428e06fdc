"""The invariants of a family after every commit, and the changes that restore them.

They depend only on the members: whichever fact moved one of them, the others follow in the same
commit, and a value written by another program is repaired with the next fact.
docs/spec/lifecycle.md#4.3, #4.7, #4.10.
"""

from __future__ import annotations

from typing import Final

from admittance.events import facts
from admittance.events.base import Fact
from admittance.workload.change import Change, FactOutcome, applied, ignored, with_spec, with_status
from admittance.workload.conditions import MESSAGE_MAX, Type, find, is_true, put, without
from admittance.workload.families.family_change import FamilyChange, FamilyMembers, FamilyTransition
from admittance.workload.families.member_transitions import (
    parent_transition,
    switched,
    variant_transition,
)
from admittance.workload.families.migration import OF_PARENT, admit_parent, after_stop, reset
from admittance.workload.families.parent_status import EACH_MAX, update_parent_status
from admittance.workload.families.roles import (
    became_parent,
    became_regular,
    queue_changed,
    reshape,
    role_now,
    variants_changed,
    wanted_tags,
)
from admittance.workload.moves.backoff import REJECTED, rejection
from admittance.workload.moves.eviction import evict, release, withdrawals
from admittance.workload.moves.requests import Arrived, deactivate
from admittance.workload.phase import REJECTION, holds_quota
from admittance.workload.stored import PARENT, OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import QueueChanged, TransitionContext
from admittance.workload.transitions import transition

CONTRADICTION = "ConcurrentAdmission"
"""Reason of the eviction of a parent without its admitted variant."""


def reconcile(family: FamilyTransition, *, asked: bool = False) -> None:
    """Restores the invariants of the family. Without a parent its variants are deleted. ``asked``:
    update the parent's status in any case."""
    parent = family.parent
    if parent is None or head(parent).role != PARENT:
        _end(family)
        return
    if is_true(parent, Type.FINISHED):
        _finish(family, parent)
        return
    reshape(family)
    _follow_the_parent(family)
    _first_one_is_admitted(family)
    _no_admission_without_a_variant(family)
    after_stop(family)
    if family.rules is None and role_now(family.family_head(), family.context) != PARENT:
        # Its queue no longer has families; it stayed a parent only while its job ran.
        family.put(family.parent_name, became_regular(family.family_head(), family.context))
        _end(family)
        return
    _no_promise_without_a_migration(family)
    _one_priority(family)
    _as_policy_wants(family)
    if _all_are_rejected(family):
        _follow_the_parent(family)
        _as_policy_wants(family)
    _pods(family)
    update_parent_status(family, asked=asked)


def _end(family: FamilyTransition) -> None:
    for one in list(family.variants.values()):
        family.put(one.metadata.name, Change(None, withdrawals(one, "Deleted")))


def _finish(family: FamilyTransition, parent: StoredWorkload) -> None:
    finished = find(parent, Type.FINISHED)
    assert finished is not None, "it has finished"
    for one in list(family.variants.values()):
        if one.metadata.deletion_timestamp is not None:
            # It was kept only until its job had stopped.
            family.put(one.metadata.name, Change(None, withdrawals(one, "Deleted")))
            continue
        conditions = put(
            one.status.conditions,
            Type.FINISHED,
            True,
            finished.reason,
            finished.message,
            now=family.now,
        )
        family.put(
            one.metadata.name,
            applied(
                with_status(one, conditions=conditions, promised=None),
                *withdrawals(one, "Finished"),
            ),
        )
    if family.touched(family.parent_name):
        update_parent_status(family)


def _follow_the_parent(family: FamilyTransition) -> None:
    """While its job stops, nothing of a family is admitted: the variant is evicted for the parent's
    reason."""
    parent = family.family_head()
    status = parent.status
    going = not holds_quota(parent) and bool(status.admitted_variant)
    if not family.is_stopping() and not going:
        return
    evicted = find(parent, Type.EVICTED)
    reason = evicted.reason if evicted is not None else OF_PARENT
    message = evicted.message if evicted is not None else ""
    said = family.said(family.parent_name, "evicted")
    for one in family.running():
        change = evict(one, reason, message, family.context, cause=said.detail if said else "")
        family.put(one.metadata.name, change)


def _first_one_is_admitted(family: FamilyTransition) -> None:
    """The first admitted variant admits its parent. If another program admitted two, the better one
    stays."""
    parent = family.family_head()
    running = sorted(family.running(), key=lambda one: head(one).sibling_index or 0)
    if not running or family.is_stopping():
        return
    named = parent.status.admitted_variant
    if not named and not holds_quota(parent):
        admit_parent(family, running[0])
        named = running[0].metadata.name
    for one in running:
        if one.metadata.name != named:
            message = f"Variant {named} is admitted" if named else "Nothing of its family may run"
            family.put(one.metadata.name, evict(one, CONTRADICTION, message, family.context))
            kept = family.variants[one.metadata.name]
            family.put(one.metadata.name, release(kept, family.context))


def _no_admission_without_a_variant(family: FamilyTransition) -> None:
    """Evicts the parent with its admitted variant, since the job must stop."""
    parent = family.family_head()
    if not holds_quota(parent) or family.is_stopping():
        return
    name = parent.status.admitted_variant
    variant = family.variants.get(name)
    if variant is not None and variant in family.running():
        return
    evicted = find(variant, Type.EVICTED) if variant is not None else None
    if evicted is not None and evicted.status == "True":
        reason, cause, message = OF_PARENT, evicted.reason, evicted.message
    else:
        reason, cause = CONTRADICTION, ""
        message = f"Its admitted variant {name} is not there, or not admitted"
    if variant is not None and cause == "Preempted":
        parent = with_status(parent, preempted_by=variant.status.preempted_by)
    change = evict(parent, reason, message, family.parent_context, cause=cause)
    family.put(family.parent_name, change)


def _no_promise_without_a_migration(family: FamilyTransition) -> None:
    heir = family.family_head().status.migrating_to if family.is_stopping() else ""
    for one in list(family.variants.values()):
        if one.status.promised is None:
            continue
        if one.metadata.name != heir or not head(one).active:
            family.keep(with_status(one, promised=None))


def _one_priority(family: FamilyTransition) -> None:
    priority = head(family.family_head()).priority
    for one in list(family.variants.values()):
        if (head(one).priority or 0) != (priority or 0):
            family.keep(with_spec(one, priority=priority))


def _as_policy_wants(family: FamilyTransition) -> None:
    """Activates and deactivates variants by policy, for example all others when one is admitted.
    docs/spec/lifecycle.md#4.3."""
    for name, wish in list(family.wishes().items()):
        variant = family.variants[name]
        if head(variant).active != wish.active:
            family.put(name, switched(family, variant, active=wish.active, why=str(wish.why)))


def _all_are_rejected(family: FamilyTransition) -> bool:
    """Rejects the parent if checks have rejected every variant; True if so."""
    parent, rules = family.family_head(), family.rules
    if not head(parent).active or rules is None or not family.variants:
        return False
    if any(one.status.stopped_by != "Rejected" for one in family.variants.values()):
        return False
    tags = {head(one).variant for one in family.variants.values()}
    if not {tag.name for tag in wanted_tags(parent, rules)} <= tags:
        return False
    ordered = sorted(family.variants.values(), key=lambda one: head(one).sibling_index or 0)
    each = "; ".join(f"{head(one).variant}: {rejection(one)}"[:EACH_MAX] for one in ordered)
    message = f"{REJECTED}every variant was rejected: {each}"[:MESSAGE_MAX]
    change = deactivate(parent, REJECTION, message, family.parent_context, cause="AdmissionCheck")
    rejected = OutboxEntry(what="rejected", reason="AdmissionCheckRejected", message=message)
    family.put(family.parent_name, change._replace(says=(rejected, *change.says)))
    return True


def _pods(family: FamilyTransition) -> None:
    """Copies the parent's PodsReady condition to the admitted variant."""
    parent = family.family_head()
    if not holds_quota(parent):
        return
    variant = family.variants.get(parent.status.admitted_variant)
    if variant is None or not is_true(variant, Type.ADMITTED):
        return
    theirs, ours = find(parent, Type.PODS_READY), find(variant, Type.PODS_READY)
    if theirs == ours:
        return
    conditions = without(variant.status.conditions, Type.PODS_READY)
    if theirs is not None:
        conditions = (*conditions, theirs)
    family.keep(with_status(variant, conditions=conditions))


LOOKS: Final = (QueueChanged, facts.Aggregated, facts.TimerDue)
"""Facts after which the family is settled even if they do not change the member."""


def single_transition(
    workload: StoredWorkload | None, fact: Fact, context: TransitionContext
) -> Change:
    """The change of a workload without a family. If its queue has families it becomes a parent when
    it arrives, when the queue changes, or when it loses its quota."""
    if isinstance(fact, QueueChanged) and workload is not None:
        if role_now(workload, context) == PARENT:
            return _as_parent(became_parent(workload), fact, context)
        return transition(workload, fact, context)
    change = transition(workload, fact, context)
    after = change.workload
    if change.outcome is not FactOutcome.APPLIED or after is None:
        return change
    if workload is None:
        return _told(change, context) if head(after).role == PARENT else change
    released = workload.status.admission is not None and after.status.admission is None
    if released and role_now(after, context) == PARENT:
        return _told(change._replace(workload=became_parent(after)), context)
    return change


def _as_parent(parent: StoredWorkload, fact: QueueChanged, context: TransitionContext) -> Change:
    family = FamilyTransition(FamilyMembers(parent, {}), context)
    change = transition(parent, fact, family.parent_context)
    return _told(change if change.outcome is FactOutcome.APPLIED else applied(parent), context)


def _told(change: Change, context: TransitionContext) -> Change:
    """The change of a new parent with the status of a family without variants."""
    parent = change.workload
    assert parent is not None, "it is there"
    family = FamilyTransition(FamilyMembers(parent, {}), context)
    family.put(parent.metadata.name, change)
    reconcile(family)
    return family.joint(parent.metadata.name, change).own


def family_transition(
    members: FamilyMembers, name: str, fact: Fact, context: TransitionContext
) -> FamilyChange:
    """The changes of the family. ``name``: the member that the fact is about."""
    family = FamilyTransition(members, context)
    parent = members.parent
    is_parent = parent is not None and name == family.parent_name
    member = parent if is_parent else members.variants.get(name)
    if member is None:
        return FamilyChange(ignored(None, "NoSuchWorkload", f"there is no {name}"), {})
    if fact.uid and fact.uid != member.metadata.uid and not isinstance(fact, Arrived):
        uid = member.metadata.uid
        return FamilyChange(ignored(member, "OtherUid", f"the workload's uid is {uid}"), {})
    if not is_parent:
        own = variant_transition(family, member, fact)
    elif isinstance(fact, QueueChanged):
        own = queue_changed(family, fact)
    else:
        own = parent_transition(family, member, fact)
    if own.outcome is FactOutcome.APPLIED:
        family.put(name, own)
        if is_parent and isinstance(fact, facts.Activated) and not family.is_stopping():
            reset(family, forgive=True)
    if is_parent and isinstance(fact, QueueChanged):
        variants_changed(family, fact)
    if parent is not None and (own.outcome is FactOutcome.APPLIED or isinstance(fact, LOOKS)):
        reconcile(family, asked=isinstance(fact, facts.Aggregated))
    return family.joint(name, own)
