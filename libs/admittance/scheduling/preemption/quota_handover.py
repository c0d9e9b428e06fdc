"""Quota that is handed on in one decision: assumed as a whole, and undone as a whole.

The one who gets it and all who give it up are written in one batch or not at all. Those who give
are written first: once the picture hears of the one who gets, it has heard of all of them.

Until then it is not certain that anything was given up. So nobody else is decided about in the
domain meanwhile: whoever counted on what is left over of it would be over quota if it is refused.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from admittance.scheduling.families import family_usage
from admittance.scheduling.families.shared_charge import Overlap
from admittance.scheduling.preemption import planned
from admittance.scheduling.preemption.victims import put_back, take_out
from admittance.scheduling.state.workload_info import Charge, Member, Ranked, Say

if TYPE_CHECKING:
    from admittance.scheduling.families.families import Family
    from admittance.scheduling.state.domain import Domain
    from admittance.scheduling.state.queue import Queue
    from admittance.scheduling.state.state import World


class Given(NamedTuple):
    """What one of them held, and its place among the possible victims."""

    charge: Charge
    ranked: Ranked | None


class Joint:
    """``member`` gets what ``given`` held; those of whom the picture has heard since are not in it
    any more."""

    __slots__ = ("_overlaps", "domain", "given", "member")

    def __init__(self, member: Member, domain: Domain) -> None:
        self.member = member
        self.domain = domain
        self.given: dict[Member, Given] = {}
        self._overlaps: dict[Family, Overlap] = {}

    def turn_back(self, *, again: bool = False) -> None:
        """Charges as if it did not hold, and again as if it did."""
        (put_back if again else take_out)(self.member)
        sign = -1 if again else 1
        for giver, given in self.given.items():
            for cell, amount in given.charge.cells:
                cell.charge(sign * amount)
            if giver.family is not None:
                overlap = giver.family.held or self._overlaps.setdefault(giver.family, Overlap())
                (overlap.leave if again else overlap.join)(giver, given.charge.cells)


def hand_on(world: World, domain: Domain, member: Member, givers: Iterable[Member]) -> None:
    """The givers hold nothing from now on; to be done before the member is charged."""
    assert domain not in world.joints
    joint = member.joint = world.joints[domain] = Joint(member, domain)
    for giver in givers:
        assert giver.charge is not None
        joint.given[giver] = Given(giver.charge, giver.ranked)
        world.release(giver)
        giver.joint = joint
        world.under_way(giver, domain, Say.HANDED_ON)


def heard_of(giver: Member) -> Queue:
    """The picture says itself what the giver holds: the decision is no longer asked. Returns the
    queue whose quota it gave."""
    joint = giver.joint
    assert joint is not None
    giver.joint = None
    return joint.given.pop(giver).charge.queue


def end(world: World, joint: Joint) -> None:
    """Whoever has not been heard of holds again exactly what it held."""
    joint.member.joint = None
    del world.joints[joint.domain]
    for giver, (charge, ranked) in joint.given.items():
        giver.joint = None
        world.landed(giver, charge.queue.domain)
        for cell, amount in charge.cells:
            cell.charge(amount)
        giver.charge = charge
        if giver.family is not None:
            family_usage.enter(world, giver)
        charge.queue.holding[giver] = None
        if world.accounts is not None:
            world.accounts.heard(giver, world.now, anew=True)
        if ranked is not None:
            insort(charge.queue.ranked, ranked)
            giver.ranked = ranked
        if charge.queue.domain is not None and world.planning:
            planned.enlist(world, charge.queue.domain, giver)
            planned.settle(world, charge.queue.domain)
        world.moved(charge.queue.domain)
    joint.given.clear()
    world.stir(joint.domain)
