"""Which rule keeps a workload from being preempted, told of one flavor and resource.

The rules are those by which `preempt` and `fair` gather candidates; here nothing is searched.
"""

from __future__ import annotations

from typing import NamedTuple

from admittance.quota.cell import Cell, borrow_level, is_over
from admittance.quota.shares import share_of
from admittance.quota.tree import Node
from admittance.scheduler import loops
from admittance.scheduler.picture import Member
from admittance.scheduler.plan import NOBODY, Policy
from admittance.scheduler.queue import Queue
from admittance.scheduler.victims import allows
from admittance.scheduler.world import World


class Ask(NamedTuple):
    """Who asks, for how much of what: ``wanted`` counts what its other pod sets take."""

    queue: Queue
    member: Member
    cell: Cell
    wanted: int

    @property
    def policy(self) -> Policy:
        """What its queue allows."""
        return self.queue.plan.policy if self.queue.plan is not None else NOBODY


def spared_by(world: World, ask: Ask, other: Member) -> str:
    """Which rule keeps the holder from being preempted; "": it is a candidate."""
    assert other.charge is not None
    queue = other.charge.queue
    if other in world.loops.barred(ask.member):
        return loops.REASON
    if queue is ask.queue:
        if ask.policy.within == "Never":
            return "PolicyNever"
        return "" if allows(ask.policy.within, ask.member, other) else "PriorityNotLower"
    return outside(world, ask, queue) or _by_priority(world, ask, other)


def outside(world: World, ask: Ask, queue: Queue) -> str:
    """What protects everybody in another queue; "": nothing."""
    if ask.policy.reclaim == "Never":
        return "PolicyNever"
    if not queue.activity.active:
        return "Inactive"
    node = queue.node
    cell = node.cells.get(ask.cell.fr) if node is not None else None
    if node is None or cell is None or not is_over(cell):
        return "WithinNominal"
    return "CohortWithinQuota" if sheltering(world, node, ask) is not None else ""


def sheltering(world: World, node: Node, ask: Ask) -> Node | None:
    """The cohort above another queue, below the common one, that takes no more than it has: of what
    is asked for, or, where shares count, of anything."""
    above = node.parent
    common = _common(ask, node)
    while above is not None and above is not common:
        if world.config.fair_sharing is not None:
            if not share_of(above).borrowing:
                return above
        else:
            cell = above.cells.get(ask.cell.fr)
            if cell is None or not is_over(cell):
                return above
        above = above.parent
    return None


def _common(ask: Ask, node: Node) -> Node | None:
    """The lowest cohort above both."""
    mine: set[Node] = set()
    here = ask.queue.node
    while here is not None:
        mine.add(here)
        here = here.parent
    above = node.parent
    while above is not None and above not in mine:
        above = above.parent
    return above


def _by_priority(world: World, ask: Ask, other: Member) -> str:
    assert other.charge is not None
    policy = ask.policy
    if not allows(policy.reclaim, ask.member, other):
        return "PriorityNotLower"
    node = other.charge.queue.node
    if world.config.fair_sharing is not None or (node is not None and _is_entitled(ask, node)):
        return ""
    if not policy.borrow:
        return "WhileBorrowing"
    if other.priority >= ask.member.priority:
        return "PriorityNotLower"
    if policy.threshold is not None and other.priority > policy.threshold:
        return "AboveThreshold"
    return ""


def _is_entitled(ask: Ask, node: Node) -> bool:
    """Its queue, or a cohort above it and below the one that it shares with the other queue, has
    enough of its own."""
    common = _common(ask, node)
    cell, rest = ask.cell, ask.wanted
    while is_over(cell, rest):
        rest = max(0, rest - cell.local_free())
        if cell.parent is None or cell.parent.node is common:
            return False
        cell = cell.parent
    return True


def is_too_much(ask: Ask) -> bool:
    """No part of the tree below the root is entitled to so much, so that victims are not even
    looked for. Source: SCHEDULING 5.3 and 6.4."""
    plan = ask.queue.plan
    if plan is None or plan.borrow_preempts or ask.cell.nominal >= ask.wanted:
        return False
    return not borrow_level(ask.cell, ask.wanted)[1]
