"""The acts that one family requires to match the policy: a pure function of stored objects and
time.

Order: delete surplus variants, deactivate, set priorities, submit missing variants (the best
first), activate, open one preemption gate, update the parent's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec

from admittance.events import facts
from admittance.events.base import Fact
from admittance.family.gates import PREEMPTION_TIMEOUT, to_open
from admittance.family.policy import (
    DesiredState,
    FamilyRules,
    VariantState,
    changes_next,
    desired_variants,
)
from admittance.variants.indexes import QueueContext
from admittance.variants.members import Family, Parent, Row, Variant
from admittance.workload.families.shaping import manifest_of, name_of, planned_variants

NO_FLAVOR = "NoMatchingFlavor"
"""Why a parent waits that may use none of the offered flavors."""


class Act(NamedTuple):
    """A fact to publish, and why. ``mark``: its goal; acts with equal marks are the same act.
    ``revision``: of the workload that it is about; 0: it does not exist yet. ``tries``: how often
    it was published before without effect."""

    fact: Fact
    why: str
    mark: object = None
    revision: int = 0
    tries: int = 0


class FamilyActs(NamedTuple):
    """``look``: when time alone may change the acts; None: never. ``gate_open``: a variant of the
    family may preempt. ``names``: names that missing variants would get; a change of workloads with
    these names affects the acts."""

    acts: list[Act]
    look: datetime | None = None
    gate_open: bool = False
    names: tuple[str, ...] = ()


def required_acts(
    family: Family, around: QueueContext, taken: Callable[[str], bool], now: datetime
) -> FamilyActs:
    """The acts required now. ``taken``: whether a workload of that name exists in the namespace.

    If the queue is missing, only acts that depend on the parent alone are returned. If the queue
    has no policy any more, an admitted variant stays while it is admitted."""
    parent = family.parent
    own, strangers = _own_and_strangers(family)
    acts = [_deleted(family, one, "namesake" if parent else "orphan") for one in strangers]
    if parent is None or parent.over:
        return FamilyActs(acts)
    rules = around.rules
    # Like the workload-controller: all unfinished variants, also those being deleted.
    states = [one.state for one in own if not one.finished]
    wants = desired_variants(parent.state, states, rules, now)
    extra = _too_many(parent, own, around)
    there = [one for one in own if not one.going]
    acts += [_deleted(family, one, extra[n]) for one in there if (n := one.state.name) in extra]
    alive = [one for one in there if one.state.name not in extra and not one.finished]
    switched = list(_switched(family, alive, wants))
    acts += [act for act in switched if isinstance(act.fact, facts.Deactivated)]
    acts += _reprioritized(family, parent, alive)
    tags = rules.tags_within(parent.state.allowed) if rules is not None else ()
    names: list[str] = []
    if rules is not None:
        present = {one.state.tag for one in own}
        free = {}
        for tag in tags:
            if tag.name not in present:
                plain, hashed = (name_of(parent.stored, tag.name, taken=t) for t in (False, True))
                names += [plain, hashed]
                free[tag.name] = next((one for one in (plain, hashed) if not taken(one)), "")
        born = {tag: name for tag, name in free.items() if name}
        acts += _submitted(family, parent, rules, born, now)
    acts += [act for act in switched if isinstance(act.fact, facts.Activated)]
    look = changes_next(parent.state, states, rules, now)
    if rules is not None:
        opened, again = _ungated(family, parent, alive, wants, rules, now)
        acts += opened
        look = min((at for at in (look, again) if at is not None), default=None)
    hopeless = rules is not None and not tags and parent.state.active and not parent.state.admitted
    acts += _aggregated(parent, own, wants, hopeless=hopeless)
    return FamilyActs(acts, look, any(one.sibling.open for one in alive), tuple(names))


def _own_and_strangers(family: Family) -> tuple[list[Variant], list[Variant]]:
    """The parent's own variants, and variants without a parent or of a deleted parent of the same
    name."""
    parent = family.parent
    own, strangers = [], []
    for one in sorted(family.kin.values(), key=lambda one: (one.place, one.state.name)):
        if parent is not None and one.state.parent_uid == parent.state.uid:
            own.append(one)
        elif not one.going or one.finished:
            # A finished variant is not waiting for a stop that would delete it.
            strangers.append(one)
    return own, strangers


def _too_many(parent: Parent, own: Iterable[Variant], around: QueueContext) -> dict[str, str]:
    """The surplus variants by name, and why."""
    admitted = parent.state.admitted
    rules = around.rules
    if not around.queue or (rules is None and not admitted):
        # Without a policy the parent becomes a regular workload; that deletes its variants.
        return {}
    if rules is None:
        return {one.state.name: "noPolicy" for one in own if one.state.name != admitted}
    offered = {tag.name for tag in rules.tags_within(parent.state.allowed)}
    found: dict[str, str] = {}
    best: dict[str, Variant] = {}
    for one in sorted(own, key=partial(_worth, parent), reverse=True):
        name, tag = one.state.name, one.state.tag
        if tag not in offered:
            # A variant that runs in the family's former queue is not judged by the new queue's
            # flavors.
            elsewhere = name == admitted and one.booked_in not in ("", around.queue)
            if not elsewhere:
                found[name] = "notOffered"
        elif best.setdefault(tag, one) is not one:
            found[name] = "double"
    return found


def _worth(parent: Parent, one: Variant) -> tuple[bool, bool, bool, int]:
    """Sort key of duplicate variants: the last one stays."""
    name, state = one.state.name, parent.state
    used = name in (state.admitted, state.migrating_to)
    return not one.going, used, bool(one.booked_in), -len(name)


def _deleted(family: Family, one: Variant, why: str) -> Act:
    return Act(
        facts.Deleted(namespace=family.name.namespace, name=one.state.name, uid=one.uid),
        why,
        revision=one.revision,
    )


def _switched(
    family: Family, alive: list[Variant], wants: Mapping[str, DesiredState]
) -> Iterator[Act]:
    by_name = {one.state.name: one for one in alive}
    namespace = family.name.namespace
    for name, wish in wants.items():
        one = by_name.get(name)
        if one is None or one.state.active == wish.active:
            continue
        why = str(wish.why)
        kind = facts.Activated if wish.active else facts.Deactivated
        fact = kind(namespace=namespace, name=name, uid=one.uid, reason=why)
        yield Act(fact, why, why, one.revision)


def _reprioritized(family: Family, parent: Parent, alive: Iterable[Variant]) -> Iterator[Act]:
    for one in alive:
        if one.priority != parent.priority:
            fact = facts.Reprioritized(
                namespace=family.name.namespace,
                name=one.state.name,
                uid=one.uid,
                priority=parent.priority,
            )
            yield Act(fact, "parent", parent.priority, one.revision)


def _submitted(
    family: Family,
    parent: Parent,
    rules: FamilyRules,
    born: Mapping[str, str],
    now: datetime,
) -> Iterator[Act]:
    """``born``: the name of each missing variant by tag, the best first."""
    if not born:
        return
    stored, state = parent.stored, parent.state
    others = [one.state for one in family.kin.values() if one.state.parent_uid == state.uid]
    more = [VariantState(name, tag, state.name, state.uid) for tag, name in born.items()]
    wants = desired_variants(state, [*others, *more], rules, now)
    specs = {
        active: {one.tag.name: one.spec for one in planned_variants(stored, rules, active=active)}
        for active in {wants[name].active for name in born.values()}
    }
    for tag, name in born.items():
        wish = wants[name]
        manifest = manifest_of(stored, name, specs[wish.active][tag])
        fact = facts.Submitted(namespace=state.namespace, name=name, workload=msgspec.Raw(manifest))
        yield Act(fact, str(wish.why), (state.uid, wish.active))


def _ungated(
    family: Family,
    parent: Parent,
    alive: Iterable[Variant],
    wants: Mapping[str, DesiredState],
    rules: FamilyRules,
    now: datetime,
) -> tuple[list[Act], datetime | None]:
    """The act that opens a preemption gate, and when to look again."""
    state = parent.state
    if not state.active or state.waits or state.stopping:
        # No variant is tried now; preempting for a family that restarts would be in vain.
        return [], None
    places = {tag.name: tag.place for tag in rules.tags}
    running = {
        one.state.name: one
        for one in alive
        if one.competes and (wish := wants.get(one.state.name)) is not None and wish.active
    }
    siblings = [one.sibling._replace(place=places[one.state.tag]) for one in running.values()]
    name = to_open(siblings, state.gate, now)
    if name:
        one = running[name]
        fact = facts.Ungated(namespace=family.name.namespace, name=name, uid=one.uid)
        return [Act(fact, "blocked", state.gate, one.revision)], None
    waiting = any(one.blocked and not one.open for one in siblings)
    if state.gate is None or not waiting:
        return [], None
    ends = state.gate.since + PREEMPTION_TIMEOUT
    return [], ends if ends > now else None


def _aggregated(
    parent: Parent, own: Iterable[Variant], wants: Mapping[str, DesiredState], *, hopeless: bool
) -> Iterator[Act]:
    # In the order of `admittance.workload.families.parent_status.rows_of`.
    rows = tuple(
        Row(name, one.mark, str(wants[name].why) if name in wants else "")
        for one in sorted(own, key=lambda one: (one.place, one.state.name))
        if not one.finished
        for name in (one.state.name,)
    )
    if rows == parent.rows and not (hopeless and parent.reason != NO_FLAVOR):
        return
    state = parent.state
    fact = facts.Aggregated(namespace=state.namespace, name=state.name, uid=state.uid)
    # Not the parent's revision: it changes for many reasons, and if the workload-controller
    # computed other rows than these, the act would be repeated without end.
    yield Act(fact, "variants", (rows, parent.rows))
