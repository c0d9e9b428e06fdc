"""The search for victims without fair sharing, in cohorts of any depth. Source: SCHEDULING 6.3.

The picture itself is tried out: what would go is taken out of it, and put back before the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from admittance.quota.cell import Cell, FlavorResource, is_over
from admittance.quota.tree import Node
from admittance.scheduler.picture import Member, Ranked
from admittance.scheduler.queue import Queue
from admittance.scheduler.room import Need, Taken, fill_back, fits, lacking, may_serve
from admittance.scheduler.victims import (
    IN_CLUSTER_QUEUE,
    RECLAIM_WHILE_BORROWING,
    RECLAMATION,
    Victim,
    candidates_of,
    is_over_any,
    lenders_below,
)

Candidate = tuple[Ranked, Node | None, str, bool]
"""Who; the lowest cohort shared with the preemptor (None: it is of its queue); under which rule;
and whether only a preemptor that does not borrow in the end may take it."""


class Lists(NamedTuple):
    """Candidates whose cohort owes it to the preemptor, those that only a policy gives up, and
    those of its own queue; each in order."""

    entitled: list[Candidate]
    others: list[Candidate]
    own: list[Candidate]

    def in_order(self) -> list[Candidate]:
        """Those on their way out already first, and otherwise list by list."""
        lists = (self.entitled, self.others, self.own)
        leaving = [one for of in lists for one in of if one[0][4].is_leaving]
        if not leaving:
            return [*self.entitled, *self.others, *self.own]
        return leaving + [one for of in lists for one in of if not one[0][4].is_leaving]


def search(
    queues: Mapping[str, Queue],
    queue: Queue,
    preemptor: Member,
    need: Need,
    contested: Collection[FlavorResource],
    gone: Collection[Member] = (),
) -> list[Victim]:
    """The least set of victims, found greedily; empty when there is none. ``gone``: whom not to
    take into account."""
    assert queue.plan is not None
    policy = queue.plan.policy
    lists = _candidates(queues, queue, preemptor, need, contested, gone)
    ordered = lists.in_order()
    if not ordered or not may_serve([one[0][4] for one in ordered], need):
        return []
    cells = [(cell, amount) for cell, amount in need.items() if cell.fr in contested]
    under = all(cell.usage < cell.nominal for cell, _ in cells)
    if not (lists.entitled or lists.others) or (not policy.borrow and not under):
        tries: tuple[bool, ...] = (True,)
    elif not policy.borrow and not lists.entitled:
        tries = (False, True)
    else:
        tries = (True, False)
    asked = {cell.fr for cell in need}
    for borrowing in tries:
        lack = lacking(need)
        taken: list[Taken] = []
        for entry, common, reason, only_within in ordered:
            if only_within and borrowing:
                continue
            member = entry[4]
            if common is not None and not _is_open(member, common, contested):
                continue
            assert member.charge is not None
            # What it holds of other flavors and resources makes no difference here.
            amounts = [one for one in member.charge.cells if one[0].fr in asked]
            taken.append((Victim(member, reason), amounts))
            for cell, amount in amounts:
                cell.charge(-amount)
                left = lack.get(cell.fr)
                if left is not None:
                    if left > amount:
                        lack[cell.fr] = left - amount
                    else:
                        del lack[cell.fr]
            if not lack and fits(need, borrowing=borrowing):
                return fill_back(taken, need, borrowing=borrowing)
        for _, held in taken:
            for cell, amount in held:
                cell.charge(amount)
    return []


def _is_open(member: Member, common: Node, contested: Collection[FlavorResource]) -> bool:
    """Its queue and all cohorts below the common one still hold more than is theirs."""
    charge = member.charge
    assert charge is not None
    node = charge.queue.node
    while node is not None and node is not common:
        if not is_over_any(node, contested):
            return False
        node = node.parent
    return True


def _candidates(
    queues: Mapping[str, Queue],
    queue: Queue,
    preemptor: Member,
    need: Need,
    contested: Collection[FlavorResource],
    gone: Collection[Member],
) -> Lists:
    assert queue.plan is not None and queue.node is not None
    policy = queue.plan.policy
    own: list[Candidate] = [
        (entry, None, IN_CLUSTER_QUEUE, False)
        for entry in candidates_of(queue, policy.within, preemptor, contested)
        if entry[4] not in gone
    ]
    entitled: list[Candidate] = []
    others: list[Candidate] = []
    by_usage = False
    cohort = queue.node.parent
    if cohort is None or policy.reclaim == "Never":
        return Lists(entitled, others, own)
    has_right = all(not is_over(cell, amount) for cell, amount in need.items())
    rest = _above(list(need.items()))
    below = queue.node
    while cohort is not None:
        for node in lenders_below(cohort, below, contested):
            other = queues.get(node.name)
            if other is None or not other.activity.active:
                continue
            by_usage = by_usage or other.lanes is not None
            for entry in candidates_of(other, policy.reclaim, preemptor, contested):
                if entry[4] in gone:
                    continue
                if has_right:
                    entitled.append((entry, cohort, RECLAMATION, False))
                elif (
                    not policy.borrow
                    or entry[0] >= preemptor.priority
                    or (policy.threshold is not None and entry[0] > policy.threshold)
                ):
                    others.append((entry, cohort, RECLAMATION, True))
                else:
                    others.append((entry, cohort, RECLAIM_WHILE_BORROWING, False))
        if not has_right:
            has_right = all(not is_over(cell, amount) for cell, amount in rest)
        if cohort.parent is None:
            break
        rest = _above(rest)
        below, cohort = cohort, cohort.parent
    for candidates in (entitled, others):
        candidates.sort(key=_rank)
        if by_usage:
            used_most_first(candidates)
    return Lists(entitled, others, own)


def used_most_first(candidates: list[Candidate]) -> None:
    """Usage only counts among those of one queue: the places that they have in the order of all
    are theirs, and there those of LocalQueues that used more come first."""
    places: dict[Queue, list[int]] = {}
    for at, (entry, *_) in enumerate(candidates):
        charge = entry[4].charge
        if charge is not None and charge.queue.lanes is not None:
            places.setdefault(charge.queue, []).append(at)
    for queue, found in places.items():
        assert queue.lanes is not None
        of = {candidates[at][0]: candidates[at] for at in found}
        for at, entry in zip(found, queue.lanes.used_most_first(list(of)), strict=True):
            candidates[at] = of[entry]


def _above(amounts: list[tuple[Cell, int]]) -> list[tuple[Cell, int]]:
    """What of the amounts has to come from the parents."""
    return [
        (cell.parent, max(0, amount - cell.local_free()))
        for cell, amount in amounts
        if cell.parent is not None
    ]


def _rank(candidate: Candidate) -> Ranked:
    return candidate[0]
