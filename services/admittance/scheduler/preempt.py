"""The search for victims without fair sharing, in cohorts of any depth. Source: SCHEDULING 6.3.

The picture itself is tried out: what would go is taken out of it, and put back before the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from admittance.quota.cell import Cell, FlavorResource, available, is_over
from admittance.quota.tree import Node
from admittance.scheduler.picture import Member, Ranked
from admittance.scheduler.queue import Queue
from admittance.scheduler.victims import (
    IN_CLUSTER_QUEUE,
    RECLAIM_WHILE_BORROWING,
    RECLAMATION,
    Victim,
    candidates_of,
    hold,
    is_over_any,
    lenders_below,
)

Need = Mapping[Cell, int]
"""What a preemptor asks for in all, per cell of its queue."""


Taken = tuple[Victim, Sequence[tuple[Cell, int]]]
"""A victim, and the amounts that were taken out of the picture for it."""


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
        for _, amounts in taken:
            for cell, amount in amounts:
                cell.charge(amount)
    return []


def lacking(need: Need) -> dict[FlavorResource, int]:
    """Of what there is too little, and by how much: no less has to be given up of it, since what
    goes makes at most as much room as it held."""
    lack: dict[FlavorResource, int] = {}
    for cell, amount in need.items():
        short = amount - max(0, available(cell))
        if short > 0:
            lack[cell.fr] = short
    return lack


def fits(need: Need, *, borrowing: bool) -> bool:
    """All of it would have room now; without borrowing: within the nominal quota."""
    for cell, amount in need.items():
        if not borrowing and cell.nominal < cell.usage + amount:
            return False
        if amount:
            free = available(cell)
            if amount > (free if free > 0 else 0):
                return False
    return True


def fill_back(taken: list[Taken], need: Need, *, borrowing: bool) -> list[Victim]:
    """Spares whoever need not go, the last ones taken first; the very last always goes. All are
    put back."""
    for index in range(len(taken) - 2, -1, -1):
        amounts = taken[index][1]
        for cell, amount in amounts:
            cell.charge(amount)
        if fits(need, borrowing=borrowing):
            taken[index] = taken[-1]
            taken.pop()
        else:
            for cell, amount in amounts:
                cell.charge(-amount)
    for _, amounts in taken:
        for cell, amount in amounts:
            cell.charge(amount)
    return [victim for victim, _ in taken]


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


def may_serve(candidates: Collection[Member], need: Need) -> bool:
    """Nothing is asked for of which there were too little even without all candidates."""
    return all(hold(candidates, fr, short) for fr, short in lacking(need).items())


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
    entitled.sort(key=_rank)
    others.sort(key=_rank)
    return Lists(entitled, others, own)


def _above(amounts: list[tuple[Cell, int]]) -> list[tuple[Cell, int]]:
    """What of the amounts has to come from the parents."""
    return [
        (cell.parent, max(0, amount - cell.local_free()))
        for cell, amount in amounts
        if cell.parent is not None
    ]


def _rank(candidate: Candidate) -> Ranked:
    return candidate[0]


__all__ = ["Need", "fill_back", "fits", "search"]
