"""The policy of concurrent admission: the variants of a parent, and when each variant may be tried.

The family policy in this module is pure. The variant-controller, the scheduler and the
workload-controller all use it, so they always agree. Source: docs/spec/lifecycle.md#4, KEP-8691."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha1
from typing import Final, Literal, NamedTuple, TypeAlias

from admittance.api.queues import ClusterQueueSpec

PREEMPTION_TIMEOUT: Final = timedelta(minutes=5)
"""How long an open preemption gate of a variant keeps the other gates of the family closed, if no
workload is preempted for that variant."""


class Sibling(NamedTuple):
    """An active variant of a family. ``place``: the variant's place in the family's order of
    preference, 0 is the best. ``evaluated``: in the present attempt the scheduler has reserved
    quota for the variant or refused it. ``blocked``: the variant needs preemption and its
    preemption gate is closed. ``open``: the variant's preemption gate is open. ``took``: workloads
    were preempted for the variant's reservation."""

    name: str
    place: int
    evaluated: bool
    blocked: bool = False
    open: bool = False
    took: bool = False


class GateOpening(NamedTuple):
    """The name of the variant with the family's open preemption gate (``holder``), and when that
    gate opened.

    All variants are for one job, so only one of them may preempt at a time:
    docs/spec/lifecycle.md#4.8."""

    holder: str
    since: datetime


def holder_of(
    siblings: Iterable[Sibling], held: GateOpening | None, now: datetime
) -> tuple[Sibling | None, bool]:
    """Returns the sibling with the open gate, and whether all other gates of the family must stay
    closed. Those gates stay closed until the open gate has been open for PREEMPTION_TIMEOUT, and
    longer if workloads were preempted for the reservation of the sibling with the open gate."""
    if held is None:
        return None, False
    holder = next(
        (sibling for sibling in siblings if sibling.name == held.holder and sibling.open), None
    )
    if holder is None:
        return None, False
    return holder, holder.took or now < held.since + PREEMPTION_TIMEOUT


def to_open(siblings: Iterable[Sibling], held: GateOpening | None, now: datetime) -> str:
    """Returns the name of the sibling that gets an open preemption gate now; "": no gate opens.

    ``siblings``: all active variants of the family. An open gate of a variant that is not among
    ``siblings`` (it was deleted, deactivated or rejected) does not count, nor does the gate of an
    evicted variant, which is closed. The search stops at a sibling that is not evaluated yet,
    because that sibling may need no preemption. When PREEMPTION_TIMEOUT is over for the sibling
    with the open gate, the search continues with the siblings after that one, so that every
    sibling's gate opens in turn."""
    ordered = sorted(siblings, key=lambda sibling: sibling.place)
    holder, keeps = holder_of(ordered, held, now)
    if keeps:
        return ""
    turned = holder.place if holder is not None else -1
    first = ""
    for sibling in ordered:
        if sibling.open:
            continue
        if not sibling.evaluated:
            break
        if sibling.blocked and sibling.place > turned:
            return sibling.name
        if sibling.blocked:
            first = first or sibling.name
    return first


def first_choice(siblings: Iterable[Sibling], waits_for_victims: Iterable[str]) -> int | None:
    """Returns the last place in the family's order of preference at which the scheduler may try a
    variant; None: the scheduler may try all variants.

    The sibling at the returned place waits for its preemption gate to open, or for its victims to
    stop. ``waits_for_victims``: the names of siblings with victims that are still stopping."""
    known = tuple(siblings)
    stopping = set(waits_for_victims)
    any_open = any(sibling.open for sibling in known)
    ahead = [
        sibling.place
        for sibling in known
        if sibling.name in stopping or (sibling.blocked and not sibling.open and not any_open)
    ]
    return min(ahead, default=None)


NAME_MAX: Final = 253
"""How many characters an object's name may have."""
_MIDDLE: Final = "-variant-"
_HASH: Final = 5
_TAG_LEAST: Final = 8
"""When a variant's name is cut, at least this many characters of its tag are kept."""


def variant_name(parent: str, parent_uid: str, tag: str, *, force_hash: bool = False) -> str:
    """Returns the workload name of a parent's variant with the tag ``tag``, which is a flavor or
    the name of an explicit variant.

    Equal arguments give the same name, so that creating a variant again finds the existing one. A
    name that is too long is cut and gets a hash of the parent's uid and the tag. ``force_hash``:
    add the hash to a name of any length, because another workload has the plain name."""
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
    """The variant is the admitted variant of its family."""
    NO_MIGRATION = "NoMigration"
    """Another variant is admitted, and the family does not migrate."""
    LOWER_THAN_ADMITTED = "lowerThanAdmitted"
    """The variant is worse than the admitted variant."""
    BELOW_MIN = "belowMin"
    """The variant is worse than minFlavor or minVariant, the worst variant to migrate to."""
    DELETE_DELAY = "deleteDelay"
    """The variant's deleteDelaySeconds have passed."""
    UPGRADE = "upgrade"
    """The variant is better than the admitted variant."""


STOPPED = frozenset({ActivityReason.REJECTED, ActivityReason.USER, ActivityReason.REQUEUING_LIMIT})
"""Reasons why a variant is inactive that only a reset of the family or a user can end; the policy
never ends them."""


class Variant(NamedTuple):
    """A variant, with the fields that the policy reads. ``place``: the variant's place in the
    family's order of preference, 0 is the best. ``stopped_by``: one of the reasons in `STOPPED`, or
    "". ``create_delay``, ``delete_delay``: createDelaySeconds and deleteDelaySeconds of the
    variant; ``delete_delay`` None: the variant is never stopped because of a delay."""

    name: str
    place: int
    stopped_by: str = ""
    create_delay: int = 0
    delete_delay: int | None = None


class FamilyState(NamedTuple):
    """A family, with the fields that the policy reads. ``active``: the family's parent is active
    and not finished. ``start``: when the family was created or reset. ``first_admitted``: the time
    of the family's first admission after ``start``; None: not admitted yet. ``admitted``: the name
    of the admitted variant, also while its job stops; "": no variant is admitted. ``floor``: the
    name of the worst variant to which the family may migrate; "": any. ``floor_place``: the place
    of the floor in the order of preference, if the family has no variant at that place."""

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
    """Returns the state that the policy sets for each variant now, by the variant's name, the best
    variant first.

    ``family.admitted`` and ``family.floor`` are ignored if they are not the name of one of
    ``variants``."""
    ordered = sorted(variants, key=lambda variant: variant.place)
    by_name = {variant.name: variant for variant in ordered}
    admitted = by_name.get(family.admitted)
    floor = by_name.get(family.floor)
    return {
        variant.name: _desired_state(family, variant, admitted, floor, now) for variant in ordered
    }


def _desired_state(
    family: FamilyState,
    variant: Variant,
    admitted: Variant | None,
    floor: Variant | None,
    now: datetime,
) -> DesiredState:
    if not family.active:
        return DesiredState(False, ActivityReason.PARENT)
    if variant.stopped_by in STOPPED:
        return DesiredState(False, ActivityReason(variant.stopped_by))
    # A createDelay of 0 must not count: the local clock can be behind the clock that stamped the
    # parent's ``start``.
    if variant is not admitted and variant.create_delay and now < _begins(family, variant):
        return DesiredState(False, ActivityReason.CREATE_DELAY)
    if admitted is None:
        return DesiredState(True, ActivityReason.RACE)
    if variant is admitted:
        return DesiredState(True, ActivityReason.ADMITTED)
    if family.mode == "NoMigration":
        return DesiredState(False, ActivityReason.NO_MIGRATION)
    if variant.place > admitted.place:
        return DesiredState(False, ActivityReason.LOWER_THAN_ADMITTED)
    lowest = floor.place if floor is not None else family.floor_place
    if lowest is not None and variant.place > lowest:
        return DesiredState(False, ActivityReason.BELOW_MIN)
    ends = _ends(family, variant)
    if ends is not None and now >= ends:
        return DesiredState(False, ActivityReason.DELETE_DELAY)
    return DesiredState(True, ActivityReason.UPGRADE)


def _begins(family: FamilyState, variant: Variant) -> datetime:
    return family.start + timedelta(seconds=variant.create_delay)


def _ends(family: FamilyState, variant: Variant) -> datetime | None:
    if variant.delete_delay is None or family.first_admitted is None:
        return None
    return family.first_admitted + timedelta(seconds=variant.delete_delay)


def next_change(family: FamilyState, variants: Iterable[Variant], now: datetime) -> datetime | None:
    """Returns when the result of `desired_states` next changes if nothing happens; None: never."""
    known = tuple(variants)
    moments = {_begins(family, variant) for variant in known}
    moments |= {end for variant in known if (end := _ends(family, variant)) is not None}
    later = sorted(moment for moment in moments if moment > now)
    if not later:
        # Families without a future delay are the most frequent case, and this function runs for
        # every change of a family.
        return None
    present = desired_states(family, known, now)
    for moment in later:
        if desired_states(family, known, moment) != present:
            return moment
    return None


class Tag(NamedTuple):
    """A flavor or an explicit variant of a ClusterQueue with concurrent admission. Each family in
    the ClusterQueue has one variant per tag.

    ``place``: the tag's place in the queue's order of preference, 0 is the best. ``create_delay``,
    ``delete_delay``: seconds; ``delete_delay`` None: variants with the tag are never stopped
    because of a delay."""

    name: str
    place: int
    flavors: tuple[str, ...]
    create_delay: int = 0
    delete_delay: int | None = None

    def within(self, allowed: frozenset[str] | None) -> tuple[str, ...]:
        """Returns the flavors of the tag that are in ``allowed``; ``allowed`` None: all flavors of
        the tag."""
        if allowed is None:
            return self.flavors
        return tuple(flavor for flavor in self.flavors if flavor in allowed)


class FamilyRules(NamedTuple):
    """The rules of a ClusterQueue for its families. ``floor``: the worst tag to which a family may
    migrate; "": any tag. ``tags``: the tags of the queue, the best first."""

    mode: Mode
    floor: str
    tags: tuple[Tag, ...]

    def tag(self, name: str) -> Tag | None:
        """Returns the tag with the name ``name``; None: the ClusterQueue has no such tag."""
        return next((tag for tag in self.tags if tag.name == name), None)

    def tags_within(self, allowed: frozenset[str] | None) -> tuple[Tag, ...]:
        """Returns the tags with at least one flavor in ``allowed``; ``allowed`` None: all tags."""
        return tuple(tag for tag in self.tags if tag.within(allowed))


def rules_of(spec: ClusterQueueSpec) -> FamilyRules | None:
    """Returns the rules of a ClusterQueue for its families; None: the queue has no concurrent
    admission, so its workloads have no variants."""
    given = spec.concurrent_admission
    if given is None:
        return None
    constraints = given.migration_constraints
    mode: Mode = "NoMigration" if constraints.mode == "NoMigration" else "UpgradeOnly"
    if given.explicit_variants:
        tags = tuple(
            Tag(
                explicit.name,
                place,
                explicit.allowed_resource_flavors,
                explicit.create_delay_seconds or 0,
                explicit.delete_delay_seconds,
            )
            for place, explicit in enumerate(given.explicit_variants)
        )
        return FamilyRules(mode, constraints.min_variant or "", tags)
    offered = [flavor.name for group in spec.resource_groups[:1] for flavor in group.flavors]
    tags = tuple(Tag(name, place, (name,)) for place, name in enumerate(offered))
    return FamilyRules(mode, constraints.min_flavor or "", tags)


class ParentState(NamedTuple):
    """The fields of a parent that the family policy reads.

    ``active``: the parent is neither deactivated, finished, being deleted, held nor gated by a
    user. ``waits``: the parent's backoff is not over. ``admitted``: the workload name of the
    admitted variant, also while its job stops; "": no variant is admitted. ``migrating_to``: the
    workload name of the better variant that is admitted once the job of the admitted variant has
    stopped. ``stopping``: the family's job is being stopped. ``allowed``: the flavors that the
    parent may use; None: all flavors. ``gate``: the opening of the preemption gate that was opened
    last in the family."""

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
    """The fields of a variant that the family policy reads. ``parent``, ``parent_uid``: name and
    uid in the variant's ownerReference; ``stopped_by``: one of the reasons in `STOPPED`, or "";
    ``active``: the field ``active`` in the variant's spec."""

    name: str
    tag: str
    parent: str
    parent_uid: str
    stopped_by: str = ""
    active: bool = True


def desired_variants(
    parent: ParentState, variants: Iterable[VariantState], rules: FamilyRules | None, now: datetime
) -> dict[str, DesiredState]:
    """Returns the state that the policy sets for each variant of a parent now, by the variant's
    workload name, the best variant first. A variant with a tag that the ClusterQueue does not have
    is left out."""
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
    """Returns when the createDelay of the parent's variant with the tag ``tag`` is over; None: the
    ClusterQueue does not have that tag."""
    known = rules.tag(tag) if rules is not None else None
    return parent.start + timedelta(seconds=known.create_delay) if known is not None else None


def in_order(variants: Iterable[VariantState], rules: FamilyRules) -> list[VariantState]:
    """Returns the variants with a tag of the ClusterQueue, ordered from best to worst."""
    places = {tag.name: tag.place for tag in rules.tags}
    return sorted(
        (variant for variant in variants if variant.tag in places),
        key=lambda variant: places[variant.tag],
    )


def _rows(variants: Iterable[VariantState], rules: FamilyRules) -> list[Variant]:
    rows = []
    for variant in variants:
        tag = rules.tag(variant.tag)
        if tag is not None:
            rows.append(
                Variant(
                    variant.name, tag.place, variant.stopped_by, tag.create_delay, tag.delete_delay
                )
            )
    return rows


def _family_state(parent: ParentState, rules: FamilyRules) -> FamilyState:
    # The floor is given as the place of its tag, not as a variant: a parent that may not use the
    # floor's flavors has no variant for that tag.
    floor = rules.tag(rules.floor) if rules.floor else None
    return FamilyState(
        active=parent.active,
        start=parent.start,
        mode=rules.mode,
        floor_place=floor.place if floor is not None else None,
        admitted=parent.admitted,
        first_admitted=parent.first_admitted,
    )
