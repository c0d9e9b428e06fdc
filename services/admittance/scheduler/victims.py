"""Whom a preemptor may take quota from, and in which order. Source: SCHEDULING 6.1 and 6.2."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from admittance.events.shapes import Shares
from admittance.quota.cell import FlavorResource, is_over
from admittance.quota.tree import Node
from admittance.scheduler.picture import Member, Ranked
from admittance.scheduler.queue import Queue

IN_CLUSTER_QUEUE: Final = "InClusterQueue"
RECLAMATION: Final = "InCohortReclamation"
RECLAIM_WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"
FAIR_SHARING: Final = "InCohortFairSharing"


class Victim(NamedTuple):
    """Who has to go, and under which rule; where shares decided, which."""

    member: Member
    reason: str
    shares: Shares | None = None


def allows(policy: str, preemptor: Member, other: Member) -> bool:
    """The policy lets the preemptor take quota from the other, by priority and age alone."""
    if policy == "LowerPriority":
        return other.priority < preemptor.priority
    if policy == "LowerOrNewerEqualPriority":
        if other.priority != preemptor.priority:
            return other.priority < preemptor.priority
        assert preemptor.stamp is not None and other.stamp is not None
        return preemptor.stamp < other.stamp
    return policy == "Any"


def candidates_of(
    queue: Queue, policy: str, preemptor: Member, contested: Collection[FlavorResource]
) -> Iterator[Ranked]:
    """Those of one queue that the policy gives up and that hold something contested, in order:
    where usage counts, those of LocalQueues that used more first.

    Judged by the assigned flavor: holding an amount of nothing counts.
    """
    found = _given_up(queue, policy, preemptor, contested)
    return found if queue.lanes is None else iter(queue.lanes.used_most_first(found))


def _given_up(
    queue: Queue, policy: str, preemptor: Member, contested: Collection[FlavorResource]
) -> Iterator[Ranked]:
    """By rank. Lower priorities come first, so that the search ends with the first one that no
    policy but Any would give up."""
    if policy not in ("LowerPriority", "LowerOrNewerEqualPriority", "Any"):
        return
    for entry in queue.ranked:
        if policy != "Any" and entry[0] > preemptor.priority:
            return
        other = entry[4]
        charge = other.charge
        if charge is None or not allows(policy, preemptor, other):
            continue
        for cell, _ in charge.cells:
            if cell.fr in contested:
                yield entry
                break


def leaving_first(ranked: Iterable[Ranked]) -> list[Member]:
    """The members in order; those on their way out already before all others."""
    leaving: list[Member] = []
    staying: list[Member] = []
    for entry in ranked:
        (leaving if entry[4].is_leaving else staying).append(entry[4])
    return leaving + staying


def is_over_any(node: Node, contested: Iterable[FlavorResource]) -> bool:
    """The node takes from its parent in something contested."""
    cells = node.cells
    for fr in contested:
        cell = cells.get(fr)
        if cell is not None and is_over(cell):
            return True
    return False


def lenders_below(
    cohort: Node, skip: Node, contested: Collection[FlavorResource]
) -> Iterator[Node]:
    """The ClusterQueues below the cohort, but for those at or below skip, that take more of
    something contested than they have, and so does every cohort in between."""
    for node in cohort.members.values():
        if node is not skip and is_over_any(node, contested):
            yield node
    for below in cohort.cohorts.values():
        if below is not skip and is_over_any(below, contested):
            yield from lenders_below(below, skip, contested)


def take_out(member: Member) -> None:
    """As if the member held nothing; to be undone by `put_back`."""
    assert member.charge is not None
    for cell, amount in member.charge.cells:
        cell.charge(-amount)


def put_back(member: Member) -> None:
    """Undoes `take_out`."""
    assert member.charge is not None
    for cell, amount in member.charge.cells:
        cell.charge(amount)


def hold(members: Iterable[Member], fr: FlavorResource, amount: int) -> bool:
    """These hold at least so much of the flavor and resource together."""
    for member in members:
        if member.charge is not None:
            for cell, much in member.charge.cells:
                if cell.fr == fr:
                    amount -= much
            if amount <= 0:
                return True
    return amount <= 0
