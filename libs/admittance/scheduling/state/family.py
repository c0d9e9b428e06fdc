"""Families of concurrent admission: a parent workload and the variants that try for it. Source:
`docs/spec/lifecycle.md#4`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from admittance.family.policy import ParentState, VariantState

if TYPE_CHECKING:
    from admittance.scheduling.state.shared_quota import Overlap
    from admittance.scheduling.state.workload_info import Key, Member


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
