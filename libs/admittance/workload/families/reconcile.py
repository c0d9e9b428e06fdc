"""Reconciles a family: restores its invariants after every fact.

Source: docs/spec/lifecycle.md#4.3, #4.7, #4.10.

The invariants depend only on the members of the family. After a fact about one member the other
members are adapted in the same commit, and the next fact repairs a value that another program has
written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.workload.change import (
    Change,
    FactOutcome,
    applied,
    ignored,
    with_condition,
    with_spec,
    with_status,
)
from admittance.workload.conditions import (
    MESSAGE_MAX,
    Type,
    find,
    find_true,
    is_true,
    without_condition,
)
from admittance.workload.families.family_change import FamilyChange, FamilyMembers, FamilyTransition
from admittance.workload.families.member_transitions import (
    activity_change,
    parent_transition,
    variant_transition,
)
from admittance.workload.families.migration import admit_parent, after_stop, drop_promises, reset
from admittance.workload.families.parent_status import (
    EACH_MAX,
    update_finished_parent,
    update_parent_status,
)
from admittance.workload.families.roles import (
    became_parent,
    became_regular,
    queue_changed,
    role_now,
    update_variants,
    variants_changed,
    wanted_tags,
)
from admittance.workload.moves.backoff import REJECTED, rejection_phrase
from admittance.workload.moves.eviction import evict, release, withdrawals
from admittance.workload.moves.requests import Arrived, deactivate
from admittance.workload.phase import holds_quota
from admittance.workload.stored import PARENT, OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import QueueChanged, TransitionContext
from admittance.workload.transitions import transition


def reconcile(family: FamilyTransition, *, requested: bool = False) -> None:
    """Restores the invariants of the family. If the parent does not exist, its variants are
    deleted. ``requested``: update the parent's status in any case."""
    parent = family.parent
    if parent is None or head(parent).role != PARENT:
        _delete_variants(family)
        return
    if is_true(parent, Type.FINISHED):
        _finish(family, parent)
        return
    update_variants(family)
    _evict_with_parent(family)
    _admit_first(family)
    _evict_parent_without_variant(family)
    after_stop(family)
    if family.rules is None and role_now(family.existing_parent(), family.context) != PARENT:
        # The queue of the parent has no families any more. The workload stayed a parent only while
        # its job ran.
        family.put(family.parent_name, became_regular(family.existing_parent(), family.context))
        _delete_variants(family)
        return
    drop_promises(
        family, family.existing_parent().status.migrating_to if family.is_stopping() else ""
    )
    _copy_priority(family)
    _apply_policy(family)
    _reject_parent(family)
    _copy_pods_ready(family)
    update_parent_status(family, requested=requested)


def _delete_variants(family: FamilyTransition) -> None:
    for variant in list(family.variants.values()):
        family.put(variant.metadata.name, Change(None, withdrawals(variant, reasons.DELETED)))


def _finish(family: FamilyTransition, parent: StoredWorkload) -> None:
    finished = find(parent, Type.FINISHED)
    assert finished is not None, "it has finished"
    for variant in list(family.variants.values()):
        if variant.metadata.deletion_timestamp is not None:
            # The deleted variant was kept only until its job had stopped.
            family.put(variant.metadata.name, Change(None, withdrawals(variant, reasons.DELETED)))
            continue
        reason, message = finished.reason, finished.message
        done = with_condition(variant, Type.FINISHED, True, reason, message, now=family.now)
        family.keep(with_status(done, promised=None), *withdrawals(variant, reasons.FINISHED))
    if family.touched(family.parent_name):
        update_finished_parent(family)


def _evict_with_parent(family: FamilyTransition) -> None:
    """Evicts the admitted variant when the parent is evicted, for the same reason."""
    parent = family.existing_parent()
    status = parent.status
    is_released = not holds_quota(parent) and bool(status.admitted_variant)
    if not family.is_stopping() and not is_released:
        return
    evicted = find(parent, Type.EVICTED)
    reason = evicted.reason if evicted is not None else reasons.VARIANT_EVICTED
    message = evicted.message if evicted is not None else ""
    entry = family.outbox_entry(family.parent_name, "evicted")
    for variant in family.running():
        change = evict(
            variant, reason, message, family.context, cause=entry.detail if entry else ""
        )
        family.put(variant.metadata.name, change)


def _best_first(variants: Iterable[StoredWorkload]) -> list[StoredWorkload]:
    return sorted(variants, key=lambda variant: head(variant).sibling_index or 0)


def _admit_first(family: FamilyTransition) -> None:
    """Admits the parent with its first admitted variant. Of two admitted variants, a state that
    only another program can have written, the better one stays."""
    parent = family.existing_parent()
    running = _best_first(family.running())
    if not running or family.is_stopping():
        return
    named = parent.status.admitted_variant
    if not named and not holds_quota(parent):
        admit_parent(family, running[0])
        named = running[0].metadata.name
    for variant in running:
        if variant.metadata.name != named:
            message = (
                f"Variant {named} is admitted" if named else "No variant of its family may run"
            )
            family.put(
                variant.metadata.name,
                evict(variant, reasons.CONCURRENT_ADMISSION, message, family.context),
            )
            kept = family.variants[variant.metadata.name]
            family.put(variant.metadata.name, release(kept, family.context))


def _evict_parent_without_variant(family: FamilyTransition) -> None:
    """Evicts the parent if its admitted variant is evicted or gone, so that the job stops."""
    parent = family.existing_parent()
    if not holds_quota(parent) or family.is_stopping():
        return
    name = parent.status.admitted_variant
    variant = family.variants.get(name)
    if variant is not None and variant in family.running():
        return
    evicted = find_true(variant, Type.EVICTED) if variant is not None else None
    if evicted is not None:
        reason, cause, message = reasons.VARIANT_EVICTED, evicted.reason, evicted.message
    else:
        reason, cause = reasons.CONCURRENT_ADMISSION, ""
        message = f"Its admitted variant {name} does not exist, or is not admitted"
    if variant is not None and cause == reasons.PREEMPTED:
        parent = with_status(parent, preempted_by=variant.status.preempted_by)
    change = evict(parent, reason, message, family.parent_context, cause=cause)
    family.put(family.parent_name, change)


def _copy_priority(family: FamilyTransition) -> None:
    priority = head(family.existing_parent()).priority
    for variant in list(family.variants.values()):
        if (head(variant).priority or 0) != (priority or 0):
            family.keep(with_spec(variant, priority=priority))


def _apply_policy(family: FamilyTransition) -> None:
    """Activates and deactivates variants by policy, for example deactivates all other variants when
    one is admitted. docs/spec/lifecycle.md#4.3."""
    for name, wanted in list(family.desired().items()):
        variant = family.variants[name]
        if head(variant).active != wanted.active:
            family.put(
                name, activity_change(family, variant, active=wanted.active, why=str(wanted.why))
            )


def _reject_parent(family: FamilyTransition) -> None:
    """Rejects the parent if checks have rejected every variant. None of them is active or runs."""
    parent, rules = family.existing_parent(), family.rules
    if not head(parent).active or rules is None or not family.variants:
        return
    if any(variant.status.stopped_by != "Rejected" for variant in family.variants.values()):
        return
    tags = {head(variant).variant for variant in family.variants.values()}
    if not {tag.name for tag in wanted_tags(parent, rules)} <= tags:
        return
    each = "; ".join(
        f"{head(variant).variant}: {rejection_phrase(variant)}"[:EACH_MAX]
        for variant in _best_first(family.variants.values())
    )
    message = f"{REJECTED}every variant was rejected: {each}"[:MESSAGE_MAX]
    change = deactivate(
        parent,
        reasons.DEACTIVATED_DUE_TO_ADMISSION_CHECK,
        message,
        family.parent_context,
        cause=reasons.ADMISSION_CHECK,
    )
    rejected = OutboxEntry(
        what="rejected", reason=reasons.ADMISSION_CHECK_REJECTED, message=message
    )
    family.put(family.parent_name, change.after(rejected))


def _copy_pods_ready(family: FamilyTransition) -> None:
    """Copies the parent's PodsReady condition, and the start of its run, to the admitted
    variant."""
    parent = family.existing_parent()
    if not holds_quota(parent):
        return
    variant = family.variants.get(parent.status.admitted_variant)
    if variant is None or not is_true(variant, Type.ADMITTED):
        return
    theirs, ours = find(parent, Type.PODS_READY), find(variant, Type.PODS_READY)
    if theirs == ours:
        return
    conditions = without_condition(variant.status.conditions, Type.PODS_READY)
    if theirs is not None:
        conditions = (*conditions, theirs)
    started_at = parent.status.started_at
    family.keep(with_status(variant, conditions=conditions, started_at=started_at))


RECONCILED: Final = (QueueChanged, facts.Aggregated, facts.TimerDue)
"""Facts after which the family is reconciled even if the fact does not change the member that it
names."""


def single_transition(
    workload: StoredWorkload | None, fact: Fact, context: TransitionContext
) -> Change:
    """The change that a fact makes to a workload without a family. If the queue of the workload has
    families, the workload becomes a parent on submission, when the queue changes, or when the
    workload loses its quota.
    """
    if isinstance(fact, QueueChanged) and workload is not None:
        is_over = is_true(workload, Type.FINISHED)
        if not is_over and role_now(workload, context) == PARENT:
            return _as_parent(became_parent(workload), fact, context)
        return transition(workload, fact, context)
    change = transition(workload, fact, context)
    after = change.workload
    if change.outcome is not FactOutcome.APPLIED or after is None:
        return change
    if workload is None:
        return _with_family_status(change, context) if head(after).role == PARENT else change
    released = workload.status.admission is not None and after.status.admission is None
    if released and role_now(after, context) == PARENT:
        return _with_family_status(change._replace(workload=became_parent(after)), context)
    return change


def _as_parent(parent: StoredWorkload, fact: QueueChanged, context: TransitionContext) -> Change:
    family = FamilyTransition(FamilyMembers(parent, {}), context)
    change = transition(parent, fact, family.parent_context)
    return _with_family_status(
        change if change.outcome is FactOutcome.APPLIED else applied(parent), context
    )


def _with_family_status(change: Change, context: TransitionContext) -> Change:
    """Returns the change of a new parent, with the status of a family that has no variants yet."""
    parent = change.workload
    assert parent is not None, "it exists"
    family = FamilyTransition(FamilyMembers(parent, {}), context)
    family.put(parent.metadata.name, change)
    reconcile(family)
    return family.result(parent.metadata.name, change).own


def family_transition(
    members: FamilyMembers, name: str, fact: Fact, context: TransitionContext
) -> FamilyChange:
    """Returns the changes that the fact makes to the family. ``name``: the member that the fact
    names."""
    family = FamilyTransition(members, context)
    parent = members.parent
    is_parent = parent is not None and name == family.parent_name
    member = parent if is_parent else members.variants.get(name)
    if member is None:
        return FamilyChange(ignored(None, reasons.NO_SUCH_WORKLOAD, f"there is no {name}"), {})
    if fact.uid and fact.uid != member.metadata.uid and not isinstance(fact, Arrived):
        uid = member.metadata.uid
        return FamilyChange(ignored(member, reasons.OTHER_UID, f"the workload's uid is {uid}"), {})
    if not is_parent:
        own = variant_transition(family, member, fact)
    elif isinstance(fact, QueueChanged):
        own = queue_changed(family, fact)
    else:
        own = parent_transition(family, member, fact)
    if own.outcome is FactOutcome.APPLIED:
        family.put(name, own)
        if is_parent and isinstance(fact, facts.Activated) and not family.is_stopping():
            reset(family, forgive=True, as_new=True)
    if is_parent and isinstance(fact, QueueChanged):
        variants_changed(family, fact)
    if parent is not None and (own.outcome is FactOutcome.APPLIED or isinstance(fact, RECONCILED)):
        reconcile(family, requested=isinstance(fact, facts.Aggregated))
    return family.result(name, own)
