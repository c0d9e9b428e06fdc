"""The policy of concurrent admission: the variants of a parent, and when each variant may be tried.

The policy is pure. The variant-controller, the scheduler and the workload-controller use the same
functions, so they always agree. Source: docs/spec/lifecycle.md#4, KEP-8691.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha1
from typing import Final, Literal, NamedTuple, TypeAlias

from admittance.api.queues import ClusterQueueSpec

PREEMPTION_TIMEOUT: Final = timedelta(minutes=5)
"""How long a gate stays the only open one of its family, if no workload is preempted for the
variant of that gate."""


class Sibling(NamedTuple):
    """An active variant of a family. ``place``: the variant's place in the order of preference, 0
    is the best. ``evaluated``: in the present attempt the scheduler reserved quota for the variant
    or refused it. ``blocked``: the variant needs preemption and its gate is closed. ``took``:
    workloads were preempted for the variant's reservation."""

    name: str
    place: int
    evaluated: bool
    blocked: bool = False
    open: bool = False
    took: bool = False


class GateOpening(NamedTuple):
    """The variant of a family with an open gate, and when the gate opened.

    All variants are for one job, so only one of them may preempt at a time:
    docs/spec/lifecycle.md#4.8.
    """

    holder: str
    since: datetime


def holder_of(
    siblings: Iterable[Sibling], held: GateOpening | None, now: datetime
) -> tuple[Sibling | None, bool]:
    """The sibling with the open gate, and whether all other gates stay closed. All other gates of
    the family stay closed while PREEMPTION_TIMEOUT is not over, and also later if workloads were
    preempted for the reservation of the sibling with the open gate."""
    if held is None:
        return None, False
    holder = next((one for one in siblings if one.name == held.holder and one.open), None)
    if holder is None:
        return None, False
    return holder, holder.took or now < held.since + PREEMPTION_TIMEOUT


def to_open(siblings: Iterable[Sibling], held: GateOpening | None, now: datetime) -> str:
    """The name of the sibling that gets an open gate now; "": no gate opens.

    ``siblings``: all active variants of the family. A holder of the gate that is not among
    ``siblings`` (deleted, deactivated or rejected) does not count; an eviction closes the gate, so
    ``open`` is False. The search stops at a sibling that is not evaluated yet, because that sibling
    may need no preemption. When PREEMPTION_TIMEOUT is over for the sibling with the open gate, the
    search continues with the siblings after that one, so that every sibling's gate opens in turn.
    """
    ordered = sorted(siblings, key=lambda one: one.place)
    holder, keeps = holder_of(ordered, held, now)
    if keeps:
        return ""
    turned = holder.place if holder is not None else -1
    first = ""
    for one in ordered:
        if one.open:
            continue
        if not one.evaluated:
            break
        if one.blocked and one.place > turned:
            return one.name
        if one.blocked:
            first = first or one.name
    return first


def first_choice(siblings: Iterable[Sibling], waits_for_victims: Iterable[str]) -> int | None:
    """Returns the last place in the order of preference at which a variant may be tried; None: all
    variants may be tried.

    The sibling at the returned place waits for its gate to open, or is in ``waits_for_victims``,
    the names of siblings with victims that are still stopping.
    """
    known = tuple(siblings)
    stopping = set(waits_for_victims)
    any_open = any(one.open for one in known)
    ahead = [
        one.place
        for one in known
        if one.name in stopping or (one.blocked and not one.open and not any_open)
    ]
    return min(ahead, default=None)


NAME_MAX: Final = 253
"""How many characters an object's name may have."""
_MIDDLE: Final = "-variant-"
_HASH: Final = 5
_TAG_LEAST: Final = 8
"""The fewest characters of the tag that are kept when a variant's name is cut."""


def variant_name(parent: str, parent_uid: str, tag: str, *, force_hash: bool = False) -> str:
    """Returns the workload name of a parent's variant with the tag ``tag``, which is a flavor or
    the name of an explicit variant.

    Equal arguments give the same name, so that creating a variant again finds the existing one. A
    name that is too long is cut and gets a hash of the parent's uid and the tag. ``force_hash``:
    add the hash to a name of any length, because another workload has the plain name.
    """
    tail = f"{_MIDDLE}{tag}"
    if not force_hash and len(parent) + len(tail) <= NAME_MAX:
        return parent + tail
    digest = sha1(f"{parent_uid}\n{tag}".encode(), usedforsecurity=False).hexdigest()[:_HASH]
    room = NAME_MAX - len(_MIDDLE) - len(digest) - 1
    kept = tag[: max(_TAG_LEAST, room // 2)]
    head = parent[: room - len(kept)].rstrip("-.")
    return f"{head}{_MIDDLE}{kept.rstrip('-.')}-{digest}"


Mode: TypeAlias = Literal["NoMigration", "UpgradeOnly"]


class ActivityReason(StrEnum):
    """The reason why a variant is active or inactive."""

    PARENT = "parent"
    """The parent is deactivated or has finished."""
    REJECTED = "Rejected"
    """A check rejected the variant."""
    USER = "User"
    """A user stopped the variant."""
    REQUEUING_LIMIT = "RequeuingLimit"
    """The variant's pods failed too often to get ready in time."""
    CREATE_DELAY = "createDelay"
    """The variant's createDelaySeconds have not passed."""
    RACE = "race"
    """No variant of the family is admitted: all variants compete."""
    ADMITTED = "admitted"
    """The variant is the admitted one."""
    NO_MIGRATION = "NoMigration"
    """Another variant is admitted, and the family does not migrate."""
    LOWER_THAN_ADMITTED = "lowerThanAdmitted"
    """The admitted variant is better than the variant."""
    BELOW_MIN = "belowMin"
    """The variant is worse than minFlavor or minVariant, the worst variant to migrate to."""
    DELETE_DELAY = "deleteDelay"
    """The variant's deleteDelaySeconds have passed."""
    UPGRADE = "upgrade"
    """The variant is better than the admitted variant."""


STOPPED = frozenset({ActivityReason.REJECTED, ActivityReason.USER, ActivityReason.REQUEUING_LIMIT})
"""Reasons for an inactive variant that policy never undoes: only a reset of the family or a user
does."""


class Variant(NamedTuple):
    """A variant as policy sees it. ``place``: the variant's place in the order of preference, 0 is
    the best. ``stopped_by``: one of the reasons in `STOPPED`, or "". Delays are in seconds; a
    ``delete_delay`` of None: the variant is never deleted for a delay."""

    name: str
    place: int
    stopped_by: str = ""
    create_delay: int = 0
    delete_delay: int | None = None


class FamilyState(NamedTuple):
    """A family as policy sees it. ``active``: the parent is active and not finished. ``start``:
    when the family was created or reset. ``first_admitted``: the time of the first admission after
    ``start``; None: no admission yet. ``admitted``: the admitted variant, also while its job stops;
    "": no variant. ``floor``: the worst variant to migrate to; "": any variant. ``floor_place``:
    the place of the floor in the order of preference, for a family without a variant at the
    floor."""

    active: bool
    start: datetime
    mode: Mode = "UpgradeOnly"
    floor: str = ""
    admitted: str = ""
    first_admitted: datetime | None = None
    floor_place: int | None = None


class DesiredState(NamedTuple):
    """Whether the policy requires a variant to be active, and why."""

    active: bool
    why: ActivityReason


def desired_states(
    family: FamilyState, variants: Iterable[Variant], now: datetime
) -> dict[str, DesiredState]:
    """Returns the desired state of each variant now, by its name, best first.

    An admitted variant or a floor that is not in ``variants`` is ignored, except for
    ``floor_place``.
    """
    ordered = sorted(variants, key=lambda one: one.place)
    by_name = {one.name: one for one in ordered}
    admitted = by_name.get(family.admitted)
    floor = by_name.get(family.floor)
    return {one.name: _desired_state(family, one, admitted, floor, now) for one in ordered}


def _desired_state(
    family: FamilyState,
    one: Variant,
    admitted: Variant | None,
    floor: Variant | None,
    now: datetime,
) -> DesiredState:
    if not family.active:
        return DesiredState(False, ActivityReason.PARENT)
    if one.stopped_by in STOPPED:
        return DesiredState(False, ActivityReason(one.stopped_by))
    # Check the createDelay first: the local clock can be behind the clock that stamped the parent.
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


def _begins(family: FamilyState, one: Variant) -> datetime:
    return family.start + timedelta(seconds=one.create_delay)


def _ends(family: FamilyState, one: Variant) -> datetime | None:
    if one.delete_delay is None or family.first_admitted is None:
        return None
    return family.first_admitted + timedelta(seconds=one.delete_delay)


def next_change(family: FamilyState, variants: Iterable[Variant], now: datetime) -> datetime | None:
    """Returns when the result of `desired_states` next changes if nothing happens; None: never."""
    known = tuple(variants)
    moments = {_begins(family, one) for one in known}
    moments |= {end for one in known if (end := _ends(family, one)) is not None}
    later = sorted(moment for moment in moments if moment > now)
    if not later:
        # Most calls return early, because the function runs for every change of a family.
        return None
    present = desired_states(family, known, now)
    for moment in later:
        if desired_states(family, known, moment) != present:
            return moment
    return None


class Tag(NamedTuple):
    """A flavor or an explicit variant of the queue. Each family has one variant per tag.

    ``place``: the tag's place in the order of preference, 0 is the best. Delays are in seconds; a
    ``delete_delay`` of None: variants are never deleted for a delay."""

    name: str
    place: int
    flavors: tuple[str, ...]
    create_delay: int = 0
    delete_delay: int | None = None

    def within(self, allowed: frozenset[str] | None) -> tuple[str, ...]:
        """The flavors of the tag that are in ``allowed``; None: all flavors of the tag."""
        if allowed is None:
            return self.flavors
        return tuple(one for one in self.flavors if one in allowed)


class FamilyRules(NamedTuple):
    """The family policy of a ClusterQueue. ``floor``: the worst tag to migrate to; "": any tag.
    ``tags``: the tags, best first."""

    mode: Mode
    floor: str
    tags: tuple[Tag, ...]

    def tag(self, name: str) -> Tag | None:
        """The flavor tag with that name; None: the queue has no such tag."""
        return next((one for one in self.tags if one.name == name), None)

    def tags_within(self, allowed: frozenset[str] | None) -> tuple[Tag, ...]:
        """The tags with at least one of the allowed flavors."""
        return tuple(one for one in self.tags if one.within(allowed))


def rules_of(spec: ClusterQueueSpec) -> FamilyRules | None:
    """The family rules of the queue; None: workloads of the queue are regular."""
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
    """The fields of a parent that policy reads.

    ``active``: the parent is neither deactivated, finished, being deleted, held nor gated by a
    user. ``waits``: the parent's backoff is not over. ``admitted``: the workload name of the
    admitted variant, also while its job stops; "": no variant. ``migrating_to``: the better variant
    that is admitted once the job of the admitted variant has stopped. ``stopping``: the family's
    job is being stopped. ``allowed``: the allowed flavors; None: all flavors. ``gate``: the
    preemption gate that was opened last."""

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
    gate: GateOpening | None = None


class VariantState(NamedTuple):
    """The fields of a variant that policy reads. ``parent``, ``parent_uid``: from the variant's
    ownerReference; ``stopped_by``: one of the reasons in `STOPPED`, or ""; ``active``: the field of
    that name in the variant's spec."""

    name: str
    tag: str
    parent: str
    parent_uid: str
    stopped_by: str = ""
    active: bool = True


def desired_variants(
    parent: ParentState, variants: Iterable[VariantState], rules: FamilyRules | None, now: datetime
) -> dict[str, DesiredState]:
    """Returns the desired state of each variant now, by workload name, best first. The result has
    no entry for a variant with a tag that the queue does not have.
    """
    if rules is None:
        return {}
    return desired_states(_family_state(parent, rules), _rows(variants, rules), now)


def changes_next(
    parent: ParentState, variants: Iterable[VariantState], rules: FamilyRules | None, now: datetime
) -> datetime | None:
    """Returns when the result of `desired_variants` next changes if nothing happens; None:
    never."""
    if rules is None:
        return None
    variants = tuple(variants)
    return next_change(_family_state(parent, rules), _rows(variants, rules), now)


def begins(parent: ParentState, rules: FamilyRules | None, tag: str) -> datetime | None:
    """Returns when the createDelay of the parent's variant with that tag is over; None: the queue
    has no such variant."""
    known = rules.tag(tag) if rules is not None else None
    return parent.start + timedelta(seconds=known.create_delay) if known is not None else None


def in_order(variants: Iterable[VariantState], rules: FamilyRules) -> list[VariantState]:
    """The variants that have a tag of the queue, ordered from best to worst."""
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


def _family_state(parent: ParentState, rules: FamilyRules) -> FamilyState:
    # Use the place of the floor's tag, because a parent that may not use the floor's flavors has no
    # such variant.
    floor = rules.tag(rules.floor) if rules.floor else None
    return FamilyState(
        active=parent.active,
        start=parent.start,
        mode=rules.mode,
        floor_place=floor.place if floor is not None else None,
        admitted=parent.admitted,
        first_admitted=parent.first_admitted,
    )
