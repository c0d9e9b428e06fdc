"""Which variants of a family may try to be admitted now, and why. LIFECYCLE 4.3."""

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
    """Its time has not come yet."""
    RACE = "race"
    """Nothing of the family is admitted: everybody tries."""
    ADMITTED = "admitted"
    """It is the one."""
    NO_MIGRATION = "NoMigration"
    """Another one is admitted, and the family stays where it is."""
    LOWER_THAN_ADMITTED = "lowerThanAdmitted"
    """A better one is admitted."""
    BELOW_MIN = "belowMin"
    """Nobody moves up to so little: minFlavor, minVariant."""
    DELETE_DELAY = "deleteDelay"
    """It had its time to become the better place."""
    UPGRADE = "upgrade"
    """It would be better than the admitted one."""


STOPPED = frozenset({ActivityReason.REJECTED, ActivityReason.USER, ActivityReason.REQUEUING_LIMIT})
"""Reasons that policy never undoes; what ends them is a reset of the family, or its user."""


class Variant(NamedTuple):
    """``place``: its place in the order of preference, 0 the best. ``stopped_by``: of `STOPPED`, or
    "". Delays in seconds; ``delete_delay`` None: never."""

    name: str
    place: int
    stopped_by: str = ""
    create_delay: int = 0
    delete_delay: int | None = None


class Family(NamedTuple):
    """``active``: the parent is, and has not finished. ``start``: when the family began, or was
    reset. ``first_admitted``: since then; None: not yet. ``admitted``: the variant that holds the
    admission, also while its job still stops; "" is none. ``floor``: "" is none; ``floor_place``:
    its place, where it is known although the family has no such variant."""

    active: bool
    start: datetime
    mode: Mode = "UpgradeOnly"
    floor: str = ""
    admitted: str = ""
    first_admitted: datetime | None = None
    floor_place: int | None = None


class DesiredState(NamedTuple):
    """Whether a variant is to be active, and why."""

    active: bool
    why: ActivityReason


def desired_states(
    family: Family, variants: Iterable[Variant], now: datetime
) -> dict[str, DesiredState]:
    """What policy wants of each variant now, by name, the best first.

    An admitted variant that is no longer among them counts as none, and so does such a floor,
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
    # Without a delay there is nothing to wait for, also where our clock is behind the one that
    # stamped the parent.
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
    """When time alone next changes what `wishes` says; None: never."""
    known = tuple(variants)
    moments = {_begins(family, one) for one in known}
    moments |= {end for one in known if (end := _ends(family, one)) is not None}
    later = sorted(moment for moment in moments if moment > now)
    if not later:
        return None  # As in most families, and this is asked of each whenever it moves.
    present = desired_states(family, known, now)
    for moment in later:
        if desired_states(family, known, moment) != present:
            return moment
    return None


class Tag(NamedTuple):
    """One variant that every family of the queue has: a flavor, or an explicit variant.

    ``place``: in the order of preference, 0 the best. Delays in seconds; ``delete_delay`` None:
    never."""

    name: str
    place: int
    flavors: tuple[str, ...]
    create_delay: int = 0
    delete_delay: int | None = None

    def within(self, allowed: frozenset[str] | None) -> tuple[str, ...]:
        """Its flavors that a workload may have at all; ``allowed`` None: any."""
        if allowed is None:
            return self.flavors
        return tuple(one for one in self.flavors if one in allowed)


class FamilyRules(NamedTuple):
    """``floor``: the tag below which nobody moves up to; "": none. ``tags``: the best first."""

    mode: Mode
    floor: str
    tags: tuple[Tag, ...]

    def tag(self, name: str) -> Tag | None:
        """The tag of that name; None: the queue has none."""
        return next((one for one in self.tags if one.name == name), None)

    def tags_within(self, allowed: frozenset[str] | None) -> tuple[Tag, ...]:
        """Those of which something is left to a workload that may have these flavors."""
        return tuple(one for one in self.tags if one.within(allowed))


def rules_of(spec: ClusterQueueSpec) -> FamilyRules | None:
    """What the queue says; None: workloads are regular there."""
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


def desired_variants(
    parent: ParentState, variants: Iterable[VariantState], rules: FamilyRules | None, now: datetime
) -> dict[str, DesiredState]:
    """What policy wants of each variant now, by the workload's name, the best first.

    Those whose tag the queue does not have (any more) are left out: nothing is to become of them.
    """
    if rules is None:
        return {}
    return desired_states(_family(parent, rules), _rows(variants, rules), now)


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
