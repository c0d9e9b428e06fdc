"""Quota that is handed on in one decision: assumed as a whole, and undone as a whole.

The one who gets it and all who give it up are written in one batch or not at all. Those who give
are written first: once the picture hears of the one who gets, it has heard of all of them.

Until then it is not certain that anything was given up. So nobody else is decided about in the
domain meanwhile: whoever counted on what is left over of it would be over quota if it is refused.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

from admittance.scheduling.state import charging, planned
from admittance.scheduling.state.in_flight import Given, Joint
from admittance.scheduling.state.workload_info import InFlight, WorkloadInfo

if TYPE_CHECKING:
    from admittance.scheduling.state.queue import Domain, Queue
    from admittance.scheduling.state.state import SchedulerState


def hand_on(
    world: SchedulerState, domain: Domain, member: WorkloadInfo, givers: Iterable[WorkloadInfo]
) -> None:
    """The givers hold nothing from now on; to be done before the member is charged."""
    assert domain not in world.joints
    joint = world.joint_of[member] = world.joints[domain] = Joint(member, domain)
    for giver in givers:
        assert giver.charge is not None
        joint.given[giver] = Given(giver.charge, giver.ranked)
        charging.release(world, giver)
        world.joint_of[giver] = joint
        world.under_way(giver, domain, InFlight.HANDED_ON)


def heard_of(world: SchedulerState, giver: WorkloadInfo) -> Queue:
    """The picture says itself what the giver holds: the decision is no longer asked. Returns the
    queue whose quota it gave."""
    joint = world.joint_of.pop(giver)
    return joint.given.pop(giver).charge.queue


def end(world: SchedulerState, joint: Joint) -> None:
    """Whoever has not been heard of holds again exactly what it held."""
    del world.joint_of[joint.member]
    del world.joints[joint.domain]
    for giver, (charge, ranked) in joint.given.items():
        del world.joint_of[giver]
        world.landed(giver, charge.queue.domain)
        for cell, amount in charge.cells:
            cell.charge(amount)
        giver.charge = charge
        if giver.family is not None:
            charging.enter(world, giver)
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
