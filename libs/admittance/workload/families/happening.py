"""What a fact about one member makes of the whole family, as one commit."""

from __future__ import annotations

from typing import Final

from admittance.events import facts
from admittance.events.base import Fact
from admittance.workload.arrive import Arrived
from admittance.workload.change import Change, Outcome, applied, ignored
from admittance.workload.families.members import of_parent, of_variant
from admittance.workload.families.roles import PARENT
from admittance.workload.families.settling import settle
from admittance.workload.families.shaping import (
    became_parent,
    queue_changed,
    role_now,
    variants_changed,
)
from admittance.workload.families.stopping import reset
from admittance.workload.families.together import Joint, Kin, Together
from admittance.workload.moves import transition
from admittance.workload.occasion import Occasion, QueueChanged
from admittance.workload.stored import StoredWorkload, head

LOOKS: Final = (QueueChanged, facts.Aggregated, facts.TimerDue)
"""After these the family is looked at even if they mean nothing to the member itself: something
around it is otherwise, or the time has come."""


def alone(workload: StoredWorkload | None, fact: Fact, at: Occasion) -> Change:
    """What becomes of a workload that is of no family yet. Where its queue has families it is made
    a parent when it arrives, when the queue changes, or as soon as it has lost its quota."""
    if isinstance(fact, QueueChanged) and workload is not None:
        if role_now(workload, at) == PARENT:
            return _as_parent(became_parent(workload), fact, at)
        return transition(workload, fact, at)
    change = transition(workload, fact, at)
    after = change.workload
    if change.outcome is not Outcome.APPLIED or after is None:
        return change
    if workload is None:
        return _told(change, at) if head(after).role == PARENT else change
    released = workload.status.admission is not None and after.status.admission is None
    if released and role_now(after, at) == PARENT:
        return _told(change._replace(workload=became_parent(after)), at)
    return change


def _as_parent(parent: StoredWorkload, fact: QueueChanged, at: Occasion) -> Change:
    family = Together(Kin(parent, {}), at)
    change = transition(parent, fact, family.at_parent)
    return _told(change if change.outcome is Outcome.APPLIED else applied(parent), at)


def _told(change: Change, at: Occasion) -> Change:
    """A new parent, saying what can be said of a family without variants."""
    parent = change.workload
    assert parent is not None, "it is there"
    family = Together(Kin(parent, {}), at)
    family.put(parent.metadata.name, change)
    settle(family)
    return family.joint(parent.metadata.name, change).own


def happened(kin: Kin, name: str, fact: Fact, at: Occasion) -> Joint:
    """What becomes of everybody. ``name``: of the member that the fact is about."""
    family = Together(kin, at)
    parent = kin.parent
    is_parent = parent is not None and name == family.parent_name
    member = parent if is_parent else kin.variants.get(name)
    if member is None:
        return Joint(ignored(None, "NoSuchWorkload", f"there is no {name}"), {})
    if fact.uid and fact.uid != member.metadata.uid and not isinstance(fact, Arrived):
        uid = member.metadata.uid
        return Joint(ignored(member, "OtherUid", f"the workload's uid is {uid}"), {})
    if not is_parent:
        own = of_variant(family, member, fact)
    elif isinstance(fact, QueueChanged):
        own = queue_changed(family, fact)
    else:
        own = of_parent(family, member, fact)
    if own.outcome is Outcome.APPLIED:
        family.put(name, own)
        if is_parent and isinstance(fact, facts.Activated) and not family.is_stopping():
            reset(family, forgive=True)
    if is_parent and isinstance(fact, QueueChanged):
        variants_changed(family, fact)
    if parent is not None and (own.outcome is Outcome.APPLIED or isinstance(fact, LOOKS)):
        settle(family, asked=isinstance(fact, facts.Aggregated))
    return family.joint(name, own)
