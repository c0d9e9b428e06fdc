"""Charges a workload for its quota and gives the quota back, with what depends on that: the shared
quota of its family, plans of preemption, and the usage of its LocalQueue.

While a family holds quota, its other variants ask only for what the family does not hold yet. They
wait in classes of their own and are tried again when the quota of the family changes. Source:
`docs/spec/lifecycle.md#4.6, #4.11`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admittance.events.shapes import Admission
from admittance.family.policy import rules_of
from admittance.quota.cell import Cell
from admittance.scheduling.state import planned
from admittance.scheduling.state.shared_quota import Overlap
from admittance.scheduling.state.workload_info import Charge

if TYPE_CHECKING:
    from admittance.scheduling.state.queue import Queue
    from admittance.scheduling.state.state import SchedulerState
    from admittance.scheduling.state.workload_info import Family, WorkloadInfo


def enter(world: SchedulerState, member: WorkloadInfo) -> None:
    """Adds a charged variant to the shared quota of its family, which counts once."""
    family = member.family
    assert family is not None and member.charge is not None
    overlap = family.held
    if overlap is None:
        overlap = family.held = Overlap(world.members, shares=world.config.fair_sharing is not None)
    overlap.join(member, member.charge.cells)
    member.overlap = overlap
    member.ties = [*(member.ties or ()), overlap]
    changed(world, family)


def withdraw(member: WorkloadInfo) -> Family:
    """Takes a variant out of the shared quota of its family and returns the family.

    The charge of the variant has been given back in full, or no longer belongs to the family. The
    caller calls `changed` with the family once the charge is removed."""
    family, overlap = member.family, member.overlap
    assert family is not None and overlap is not None and member.charge is not None
    overlap.leave(member, member.charge.cells)
    member.overlap = None
    member.ties = [one for one in member.ties or () if one is not overlap] or None
    if not overlap.members:
        family.held = None
    return family


def judge(world: SchedulerState, family: Family) -> None:
    """Chooses again which variant counts in shares, after the admitted variant may have changed."""
    if family.held is not None:
        family.held.count(_counts(world, family.held))


def changed(world: SchedulerState, family: Family) -> None:
    """Puts the waiting variants into their classes again, after the quota of the family changed."""
    judge(world, family)
    waiting: list[tuple[Queue, WorkloadInfo]] = []
    for one in family.variants:
        one.patience = None
        if one.queue is not None and one.entry is not None and one.queue.is_apart(one):
            waiting.append((one.queue, one))
            one.queue.remove(one)
    for queue, one in waiting:
        queue.add(one, world.now)
        world.changed(queue)


def _counts(world: SchedulerState, held: Overlap[WorkloadInfo]) -> WorkloadInfo | None:
    """Returns the variant that counts in shares: the admitted one, else the best one."""
    members = list(held.members)
    if len(members) < 2:
        return members[0] if members else None
    admitted = [one for one in members if one.admitted_at is not None]
    if admitted:
        # With two, one takes over and the end of the other one is not known yet.
        return max(admitted, key=lambda one: (one.admitted_at, one.uid))
    return min(members, key=lambda one: (_place(world, one), one.uid))


def _place(world: SchedulerState, member: WorkloadInfo) -> int:
    family, charge = member.family, member.charge
    if family is None or charge is None or member not in family.variants:
        return len(world.members)
    queue = world.catalog.cluster_queues.get(charge.queue.name)
    rules = rules_of(queue.spec) if queue is not None else None
    tag = rules.tag(family.tag(member)) if rules is not None else None
    return tag.place if tag is not None else len(world.members)


def charge(
    world: SchedulerState,
    member: WorkloadInfo,
    queue: Queue,
    admission: Admission,
    cells: list[tuple[Cell, int]],
) -> None:
    """Charges the workload for these amounts."""
    for cell, amount in cells:
        cell.charge(amount)
    member.charge = Charge(queue, admission, cells)
    if member.family is not None:
        enter(world, member)
    queue.holding[member] = None
    domain = queue.domain
    if domain is not None:
        if member.pending is not None:
            planned.enlist(world, domain, member)
        if domain.bent or (world.planning and _concerns_a_plan(world, member)):
            planned.settle(world, domain)
    world.moved(domain)
    if world.accounts is not None:
        world.accounts.heard(member, world.now, anew=True)


def release(world: SchedulerState, member: WorkloadInfo) -> Queue | None:
    """Gives back exactly what the workload was charged. Returns the queue of that quota."""
    held = member.charge
    if held is None:
        return None
    domain = held.queue.domain
    tied = domain is not None and (domain.bent or member.ties is not None)
    if domain is not None and tied:
        planned.dissolve(domain)
    for cell, amount in held.cells:
        cell.charge(-amount)
    family = withdraw(member) if member.overlap is not None else None
    member.charge = None
    if family is not None:
        changed(world, family)
    held.queue.holding.pop(member, None)
    if domain is not None:
        planned.strike(world, domain, member)
        if tied:
            planned.settle(world, domain)
    if member.ranked is not None:
        held.queue.unrank(member)
    world.moved(held.queue.domain)
    if world.accounts is not None:
        world.accounts.heard(member, world.now)
    return held.queue


def _concerns_a_plan(world: SchedulerState, member: WorkloadInfo) -> bool:
    """Returns whether a plan of preemption depends on what the workload holds. The quota of a
    variant depends on what its siblings hold."""
    return member.pending is not None or member.key in world.planned or member.overlap is not None
