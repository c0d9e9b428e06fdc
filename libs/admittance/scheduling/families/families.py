"""Families of concurrent admission as the picture has them: a parent, and the variants that try
for it. Whichever is heard of first, they find each other by the uid of the parent.

A parent holds no quota and is never tried; its variants are workloads like others, but for what
the modules `siblings` (who may be tried now) and `motion` (how one takes over from another) say.
Source: LIFECYCLE 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from sys import intern
from typing import TYPE_CHECKING, Final, NamedTuple

from admittance.family.states import ParentState, VariantState
from admittance.scheduling.families import family_usage
from admittance.scheduling.state.workload_info import Key, Member

if TYPE_CHECKING:
    from admittance.scheduling.families.shared_charge import Overlap
    from admittance.scheduling.state.state import World
    from admittance.scheduling.state.workload_view import Facts


LAST: Final = 9_999
"""The place of a variant that the queue has none for."""


class Sibling(NamedTuple):
    """What a stored variant tells of itself, beside its name. ``is_open``: its family's gate lets
    it preempt. Few of them differ, so that each is kept once."""

    tag: str
    stopped_by: str = ""
    active: bool = True
    is_open: bool = False


class Family:
    """A parent and its variants, as far as they are known.

    ``parent``, ``state``: None as long as nobody has heard of it: then no variant is tried.
    ``moving``: the variant that is to take over and the admitted one, as long as that decision is
    on its way. ``begins``: the variant that was last assigned quota with which it will be admitted.
    ``held``: what the variants hold together; None: nothing.
    """

    __slots__ = ("begins", "held", "moving", "parent", "state", "uid", "variants")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.parent: Member | None = None
        self.state: ParentState | None = None
        self.variants: dict[Member, Sibling] = {}
        self.moving: tuple[Member, Member] | None = None
        self.begins: Member | None = None
        self.held: Overlap | None = None

    def states(self) -> list[VariantState]:
        """Its variants, as policy wants to know them."""
        return [
            VariantState(one.key[1], told.tag, "", self.uid, told.stopped_by, told.active)
            for one, told in self.variants.items()
        ]

    def tag(self, member: Member) -> str:
        """Which variant it is."""
        return self.variants[member].tag

    def siblings(self, member: Member) -> Iterator[Member]:
        """The other variants."""
        return (one for one in self.variants if one is not member)

    def charged(self) -> Iterator[Member]:
        """The variants that hold quota, or are promised some."""
        return (one for one in self.variants if one.charge is not None)

    def admitted(self) -> Member | None:
        """The variant that is admitted as it is written, also while its job still stops; None:
        there is none, or it is gone."""
        if self.state is None or not self.state.admitted:
            return None
        name = self.state.admitted
        return next((one for one in self.variants if one.key[1] == name), None)


def order_key(member: Member) -> tuple[str, Key]:
    """What decides between equal age: siblings stand one after the other, the best first, where
    their parent would, and nobody comes between them. Nothing in it is a variant's alone but its
    name, since there are many."""
    family, queue = member.family, member.queue
    if family is None or family.parent is member:
        return member.uid, member.key
    tag = queue.tags.get(family.variants[member].tag) if queue is not None else None
    return family.uid, (_padded(tag.place if tag is not None else LAST), member.key[1])


@cache
def _padded(place: int) -> str:
    return f"{place:04d}"


def shares_flavors(member: Member) -> bool:
    """A sibling holds quota of a flavor that the variant may have, too: what counts for both counts
    once, so that it needs less than others who ask for the same."""
    family = member.family
    if family is None or member.shape is None or family.held is None:
        return False
    allowed = member.shape.allowed
    for one in family.held.members:
        if one is member or one.charge is None:
            continue
        for place in one.charge.admission.pod_set_assignments:
            if allowed is None or any(flavor in allowed for flavor in place.flavors.values()):
                return True
    return False


def keep(world: World, member: Member, facts: Facts) -> None:
    """The member is of that family from now on; of none, where it is regular."""
    uid = ""
    if facts.parent is not None:
        uid = member.uid
    elif facts.variant is not None:
        uid = facts.variant.parent_uid
    family = member.family
    if family is not None and (
        family.uid != uid or (family.parent is member) != bool(facts.parent)
    ):
        _move_out(world, member)
        leave(world, member)
        family = None
    if not uid:
        return
    if family is None:
        _move_out(world, member)
        family = world.families.get(uid)
        if family is None:
            family = world.families[uid] = Family(uid)
        member.family = family
    if facts.parent is not None:
        # The strings that everybody has are kept once.
        family.parent = member
        family.state = facts.parent._replace(
            namespace=member.key[0],
            name=member.key[1],
            uid=member.uid,
            queue=intern(facts.parent.queue),
        )
    elif facts.variant is not None:
        told = facts.variant
        found = Sibling(intern(told.tag), intern(told.stopped_by), told.active, facts.gate_open)
        family.variants[member] = world.told.setdefault(found, found)


def _move_out(world: World, member: Member) -> None:
    """Before it becomes something else: where it waits, it is found as what it was."""
    if member.queue is not None:
        world.take_out(member)
        member.signature = 0


def leave(world: World, member: Member) -> Family | None:
    """The member is of no family any more. Returns the one that it was of, if somebody is left."""
    family = member.family
    if family is None:
        return None
    if member.overlap is not None:
        family_usage.changed(world, family_usage.withdraw(member))
    member.family = None
    if family.parent is member:
        family.parent = family.state = None
    else:
        family.variants.pop(member, None)
    if family.parent is None and not family.variants:
        world.families.pop(family.uid, None)
        return None
    return family
