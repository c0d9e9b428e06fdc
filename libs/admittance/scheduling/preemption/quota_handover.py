"""Hands quota from victims to their preemptor in one decision, which holds or fails as a whole.

The receiver and all givers are written in one batch or not at all. The givers are written first, so
that the scheduler has seen all of them when it sees the receiver.

Until then it is not certain that the quota was given up, so the scheduler decides about no other
workload of the domain: a workload that takes what is left over would be over quota if the batch is
refused.
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
    """Releases the quota of the givers for the receiver. To be called before it is charged."""
    assert domain not in world.joints
    joint = world.joint_of[member] = world.joints[domain] = Joint(member, domain)
    for giver in givers:
        assert giver.charge is not None
        joint.given[giver] = Given(giver.charge, giver.ranked)
        charging.release(world, giver)
        world.joint_of[giver] = joint
        world.under_way(giver, domain, InFlight.HANDED_ON)


def heard_of(world: SchedulerState, giver: WorkloadInfo) -> Queue:
    """Takes a giver out of the handover, since its stored state now says what it holds. Returns the
    queue whose quota it gave."""
    joint = world.joint_of.pop(giver)
    return joint.given.pop(giver).charge.queue


def end(world: SchedulerState, joint: Joint) -> None:
    """Ends the handover. Givers without a new stored state hold again exactly what they held."""
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
