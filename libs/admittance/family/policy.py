"""Which variants of a family are to be active now, and why: the rules of the queue applied to the
family.

Source: docs/spec/lifecycle.md#4.1, #4.3."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

from admittance.api.queues import ClusterQueueSpec
from admittance.family.gates import Opening

Mode: TypeAlias = Literal["NoMigration", "UpgradeOnly"]


class ActivityReason(StrEnum):
    """Why a variant is active, or not."""

    PARENT = "parent"
    """The parent is deactivated or has finished."""
    REJECTED = "Rejected"
    """One of its checks rejected it."""
    USER = "User"
    """A user stopped it."""
    REQUEUING_LIMIT = "RequeuingLimit"
    """Its pods were not ready in time too often."""
    CREATE_DELAY = "createDelay"
    """Its createDelaySeconds are not over."""
    RACE = "race"
    """Nothing of the family is admitted: all variants compete."""
    ADMITTED = "admitted"
    """It is the admitted variant."""
    NO_MIGRATION = "NoMigration"
    """Another variant is admitted, and the family does not migrate."""
    LOWER_THAN_ADMITTED = "lowerThanAdmitted"
    """A better variant is admitted."""
    BELOW_MIN = "belowMin"
    """It is below minFlavor or minVariant, the least place to migrate to."""
    DELETE_DELAY = "deleteDelay"
    """Its deleteDelaySeconds are over."""
    UPGRADE = "upgrade"
    """It is better than the admitted variant."""


STOPPED = frozenset({ActivityReason.REJECTED, ActivityReason.USER, ActivityReason.REQUEUING_LIMIT})
"""Reasons that policy never undoes; a reset of the family or its user ends them."""


class Variant(NamedTuple):
    """``place``: place in the order of preference, 0 is the best. ``stopped_by``: one of `STOPPED`,
    or "". Delays in seconds; ``delete_delay`` None: never."""

    name: str
    place: int
    stopped_by: str = ""
    create_delay: int = 0
    delete_delay: int | None = None


class Family(NamedTuple):
    """``active``: the parent is active and not finished. ``start``: when the family was created or
    reset. ``first_admitted``: first admission since ``start``; None: none yet. ``admitted``: the
    admitted variant, also while its job stops; "": none. ``floor``: least variant to migrate to;
    "": none. ``floor_place``: place of the floor if the family has no such variant."""

    active: bool
    start: datetime
    mode: Mode = "UpgradeOnly"
    floor: str = ""
    admitted: str = ""
    first_admitted: datetime | None = None
    floor_place: int | None = None


class DesiredState(NamedTuple):
    """Whether a variant shall be active, and why."""

    active: bool
    why: ActivityReason


def desired_states(
    family: Family, variants: Iterable[Variant], now: datetime
) -> dict[str, DesiredState]:
    """The desired state of each variant now, by name, best first.

    An admitted variant that is not in ``variants`` counts as none. The same holds for the floor,
    unless its place is known.
    """
    ordered = sorted(variants, key=lambda one: one.place)
    by_name = {one.name: one for one in ordered}
    admitted = by_name.get(family.admitted)
    floor = by_name.get(family.floor)
    return {one.name: _wish(family, one, admitted, floor, now) for one in ordered}


def _wish(
    family: Family, one: Variant, admitted: Variant | None, floor: Variant | None, now: datetime
) -> DesiredState:
    if not family.active:
        return DesiredState(False, ActivityReason.PARENT)
    if one.stopped_by in STOPPED:
        return DesiredState(False, ActivityReason(one.stopped_by))
    # Check the delay first: the local clock can be behind the clock that stamped the parent.
    if one is not admitted and one.create_delay and now < _begins(family, one):
        return DesiredState(False, ActivityReason.CREATE_DELAY)
    if admitted is None:
        return DesiredState(True, ActivityReason.RACE)
    if one is admitted:
        return DesiredState(True, ActivityReason.ADMITTED)
    if family.mode == "NoMigration":
        return DesiredState(False, ActivityReason.NO_MIGRATION)
    if one.place > admitted.place:
        return DesiredState(False, ActivityReason.LOWER_THAN_ADMITTED)
    lowest = floor.place if floor is not None else family.floor_place
    if lowest is not None and one.place > lowest:
        return DesiredState(False, ActivityReason.BELOW_MIN)
    ends = _ends(family, one)
    if ends is not None and now >= ends:
        return DesiredState(False, ActivityReason.DELETE_DELAY)
    return DesiredState(True, ActivityReason.UPGRADE)


def _begins(family: Family, one: Variant) -> datetime:
    return family.start + timedelta(seconds=one.create_delay)


def _ends(family: Family, one: Variant) -> datetime | None:
    if one.delete_delay is None or family.first_admitted is None:
        return None
    return family.first_admitted + timedelta(seconds=one.delete_delay)


def next_change(family: Family, variants: Iterable[Variant], now: datetime) -> datetime | None:
    """When time alone next changes the result of `desired_states`; None: never."""
    known = tuple(variants)
    moments = {_begins(family, one) for one in known}
    moments |= {end for one in known if (end := _ends(family, one)) is not None}
    later = sorted(moment for moment in moments if moment > now)
    if not later:
        return None  # The common case; this function runs for every change of a family.
    present = desired_states(family, known, now)
    for moment in later:
        if desired_states(family, known, moment) != present:
            return moment
    return None


class Tag(NamedTuple):
    """A variant that every family of the queue has: a flavor, or an explicit variant.

    ``place``: place in the order of preference, 0 is the best. Delays in seconds; ``delete_delay``
    None: never."""

    name: str
    place: int
    flavors: tuple[str, ...]
    create_delay: int = 0
    delete_delay: int | None = None

    def within(self, allowed: frozenset[str] | None) -> tuple[str, ...]:
        """Its flavors that are in ``allowed``; None: all."""
        if allowed is None:
            return self.flavors
        return tuple(one for one in self.flavors if one in allowed)


class FamilyRules(NamedTuple):
    """``floor``: the least tag to migrate to; "": none. ``tags``: best first."""

    mode: Mode
    floor: str
    tags: tuple[Tag, ...]

    def tag(self, name: str) -> Tag | None:
        """The tag with that name; None: the queue has no such tag."""
        return next((one for one in self.tags if one.name == name), None)

    def tags_within(self, allowed: frozenset[str] | None) -> tuple[Tag, ...]:
        """The tags with at least one of these flavors."""
        return tuple(one for one in self.tags if one.within(allowed))


def rules_of(spec: ClusterQueueSpec) -> FamilyRules | None:
    """The family rules of the queue; None: its workloads are regular."""
    given = spec.concurrent_admission
    if given is None:
        return None
    constraints = given.migration_constraints
    mode: Mode = "NoMigration" if constraints.mode == "NoMigration" else "UpgradeOnly"
    if given.explicit_variants:
        tags = tuple(
            Tag(
                one.name,
                place,
                one.allowed_resource_flavors,
                one.create_delay_seconds or 0,
                one.delete_delay_seconds,
            )
            for place, one in enumerate(given.explicit_variants)
        )
        return FamilyRules(mode, constraints.min_variant or "", tags)
    offered = [flavor.name for group in spec.resource_groups[:1] for flavor in group.flavors]
    tags = tuple(Tag(name, place, (name,)) for place, name in enumerate(offered))
    return FamilyRules(mode, constraints.min_flavor or "", tags)


class ParentState(NamedTuple):
    """``active``: turned on, not finished, not being deleted, neither held nor gated by a user.
    ``waits``: the family's backoff is not over. ``admitted``: workload name of the admitted
    variant, also while its job stops; "": none. ``migrating_to``: the variant that is admitted
    next. ``stopping``: its job is being stopped. ``allowed``: allowed flavors; None: all. ``gate``:
    the last opened preemption gate."""

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
    """``parent``, ``parent_uid``: from its ownerReference. ``stopped_by``: one of `STOPPED`, or "".
    ``active``: from its spec."""

    name: str
    tag: str
    parent: str
    parent_uid: str
    stopped_by: str = ""
    active: bool = True


def desired_variants(
    parent: ParentState, variants: Iterable[VariantState], rules: FamilyRules | None, now: datetime
) -> dict[str, DesiredState]:
    """The desired state of each variant now, by workload name, best first. Variants with a tag that
    the queue does not have are left out.
    """
    if rules is None:
        return {}
    return desired_states(_family(parent, rules), _rows(variants, rules), now)


def changes_next(
    parent: ParentState, variants: Iterable[VariantState], rules: FamilyRules | None, now: datetime
) -> datetime | None:
    """When time alone next changes the result of `desired_variants`; None: never."""
    if rules is None:
        return None
    variants = tuple(variants)
    return next_change(_family(parent, rules), _rows(variants, rules), now)


def begins(parent: ParentState, rules: FamilyRules | None, tag: str) -> datetime | None:
    """When the createDelay of that variant is over; None: the queue has no such variant."""
    known = rules.tag(tag) if rules is not None else None
    return parent.start + timedelta(seconds=known.create_delay) if known is not None else None


def in_order(variants: Iterable[VariantState], rules: FamilyRules) -> list[VariantState]:
    """The variants with a tag of the queue, best first."""
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
    # Use the floor's place: a parent that may not use the floor's flavors has no such variant.
    floor = rules.tag(rules.floor) if rules.floor else None
    return Family(
        active=parent.active,
        start=parent.start,
        mode=rules.mode,
        floor_place=floor.place if floor is not None else None,
        admitted=parent.admitted,
        first_admitted=parent.first_admitted,
    )
