"""A family as whoever acts on it holds it: little of each object, and what policy makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from admittance.family.gates import Opening
from admittance.family.policy import Family, Variant, Wish, next_change, wishes
from admittance.family.rules import FamilyRules


class ParentState(NamedTuple):
    """``active``: it may run: turned on, not finished, not being deleted, neither held nor gated by
    a user. ``waits``: the family's backoff is not over. ``admitted``: the workload's name of the
    variant that is admitted, also while its job still stops; "" is none. ``migrating_to``: who
    takes over then. ``stopping``: its job is being stopped. ``allowed``: flavors that it may have;
    None: any. ``gate``: whose gate on preemption was opened last."""

    namespace: str
    name: str
    uid: str
    queue: str
    active: bool
    waits: bool
    start: datetime
    admitted: str = ""
    migrating_to: str = ""
    first_admitted: datetime | None = None
    stopping: bool = False
    allowed: frozenset[str] | None = None
    gate: Opening | None = None


class VariantState(NamedTuple):
    """``parent``, ``parent_uid``: as its ownerReference says. ``stopped_by``: of
    `admittance.family.policy.STOPPED`, or "". ``active``: as its spec says."""

    name: str
    tag: str
    parent: str
    parent_uid: str
    stopped_by: str = ""
    active: bool = True


def judged(
    parent: ParentState, variants: Iterable[VariantState], rules: FamilyRules | None, now: datetime
) -> dict[str, Wish]:
    """What policy wants of each variant now, by the workload's name, the best first.

    Those whose tag the queue does not have (any more) are left out: nothing is to become of them.
    """
    if rules is None:
        return {}
    return wishes(_family(parent, rules), _rows(variants, rules), now)


def changes_next(
    parent: ParentState, variants: Iterable[VariantState], rules: FamilyRules | None, now: datetime
) -> datetime | None:
    """When time alone next changes what `judged` says; None: never."""
    if rules is None:
        return None
    variants = tuple(variants)
    return next_change(_family(parent, rules), _rows(variants, rules), now)


def begins(parent: ParentState, rules: FamilyRules | None, tag: str) -> datetime | None:
    """When that variant may be tried for the first time; None: the queue has no such variant."""
    known = rules.tag(tag) if rules is not None else None
    return parent.start + timedelta(seconds=known.create_delay) if known is not None else None


def in_order(variants: Iterable[VariantState], rules: FamilyRules) -> list[VariantState]:
    """Those that the queue has a tag for, the best first."""
    places = {one.name: one.place for one in rules.tags}
    return sorted((one for one in variants if one.tag in places), key=lambda one: places[one.tag])


def _rows(variants: Iterable[VariantState], rules: FamilyRules) -> list[Variant]:
    found = []
    for one in variants:
        tag = rules.tag(one.tag)
        if tag is not None:
            found.append(
                Variant(one.name, tag.place, one.stopped_by, tag.create_delay, tag.delete_delay)
            )
    return found


def _family(parent: ParentState, rules: FamilyRules) -> Family:
    # By its place: a parent that may not have the floor's flavors has no such variant.
    floor = rules.tag(rules.floor) if rules.floor else None
    return Family(
        active=parent.active,
        start=parent.start,
        mode=rules.mode,
        floor_place=floor.place if floor is not None else None,
        admitted=parent.admitted,
        first_admitted=parent.first_admitted,
    )
