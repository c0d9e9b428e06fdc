"""The search for victims without fair sharing, in cohorts of any depth. Source: SCHEDULING 6.3.

The picture itself is tried out: what would go is taken out of it, and put back before the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from admittance.quota.cell import Cell, FlavorResource, is_over
from admittance.quota.tree import Node
from admittance.scheduler.picture import Member, Ranked
from admittance.scheduler.plan import Policy
from admittance.scheduler.queue import Queue
from admittance.scheduler.room import Need, Taken, fill_back, fits, lacking, may_serve
from admittance.scheduler.victims import (
    IN_CLUSTER_QUEUE,
    RECLAIM_WHILE_BORROWING,
    RECLAMATION,
    Victim,
    candidates_of,
    leaving_of,
    lenders_below,
)


class Lists(NamedTuple):
    """Candidates whose cohort owes it to the preemptor, those that only a policy gives up, and
    those of its own queue; each in order. ``ways``: of every queue that they are of, but for the
    preemptor's, the contested cells on the way up to the cohort that both share, node by node."""

    entitled: list[Ranked]
    others: list[Ranked]
    own: list[Ranked]
    ways: dict[Queue, list[list[Cell]]]

    def in_order(self) -> list[tuple[list[Ranked], bool, bool]]:
        """Those on their way out already first, and otherwise list by list; and whether those of
        each list are of other queues, and whether these owe it to the preemptor."""
        kinds = ((self.entitled, True, True), (self.others, True, False), (self.own, False, False))
        leaving: list[tuple[list[Ranked], bool, bool]] = []
        staying: list[tuple[list[Ranked], bool, bool]] = []
        for ranked, elsewhere, owed in kinds:
            going = leaving_of(ranked)
            rest = ranked
            if going:
                leaving.append((going, elsewhere, owed))
                rest = [entry for entry in ranked if not entry[4].is_leaving]
            staying.append((rest, elsewhere, owed))
        return leaving + staying


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
    if not (lists.own or lists.entitled or lists.others):
        return []
    short = lacking(need)
    if not may_serve([*lists.own, *lists.entitled, *lists.others], short):
        return []
    under = all(cell.usage < cell.nominal for cell in need if cell.fr in contested)
    if not (lists.entitled or lists.others) or (not policy.borrow and not under):
        tries: tuple[bool, ...] = (True,)
    elif not policy.borrow and not lists.entitled:
        tries = (False, True)
    else:
        tries = (True, False)
    hunt = _Hunt(policy, preemptor, need, lists.ways)
    ordered = lists.in_order()
    for borrowing in tries:
        taken = hunt.run(ordered, dict(short), borrowing=borrowing)
        if taken:
            return fill_back(taken, need, borrowing=borrowing)
    return []


class _Hunt:
    """The attempts of one search."""

    def __init__(
        self,
        policy: Policy,
        preemptor: Member,
        need: Need,
        ways: Mapping[Queue, list[list[Cell]]],
    ) -> None:
        self._policy = policy
        self._priority = preemptor.priority
        self._need = need
        self._asked: dict[Queue, set[Cell]] = {}
        self._ways = ways

    def run(
        self,
        ordered: Iterable[tuple[list[Ranked], bool, bool]],
        lack: dict[FlavorResource, int],
        *,
        borrowing: bool,
    ) -> list[Taken]:
        """Takes one after the other until there is room enough; else puts all back, and the answer
        is empty."""
        need = self._need
        taken: list[Taken] = []
        closed: set[Queue] = set()
        for ranked, elsewhere, owed in ordered:
            for entry in ranked:
                member = entry[4]
                held = member.charge
                assert held is not None
                reason = RECLAMATION if elsewhere else IN_CLUSTER_QUEUE
                if elsewhere:
                    if not owed:
                        if not self._may_borrow_for(entry[0]):
                            if borrowing:
                                continue
                        else:
                            reason = RECLAIM_WHILE_BORROWING
                    # What goes only lowers usage: a queue that holds no more than is theirs on its
                    # way up will not hold more again in this attempt.
                    if held.queue in closed:
                        continue
                    if not _is_open(self._ways[held.queue]):
                        closed.add(held.queue)
                        continue
                # What it holds of other flavors and resources makes no difference here.
                asked = self._asked_of(held.queue)
                amounts = [one for one in held.cells if one[0] in asked]
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
                    return taken
        for _, amounts in taken:
            for cell, amount in amounts:
                cell.charge(amount)
        return []

    def _asked_of(self, queue: Queue) -> set[Cell]:
        """The cells of the queue for what is asked for."""
        found = self._asked.get(queue)
        if found is None:
            assert queue.node is not None
            cells = queue.node.cells
            found = {cells[cell.fr] for cell in self._need if cell.fr in cells}
            self._asked[queue] = found
        return found

    def _may_borrow_for(self, priority: int) -> bool:
        """The preemptor may go on borrowing after it has taken from somebody of that priority."""
        policy = self._policy
        return (
            policy.borrow
            and priority < self._priority
            and (policy.threshold is None or priority <= policy.threshold)
        )


def _is_open(way: list[list[Cell]]) -> bool:
    """On the whole way up there is more in use than is theirs."""
    for cells in way:
        for cell in cells:
            if cell.subtree < cell.usage and is_over(cell):
                break
        else:
            return False
    return True


def _way(node: Node, common: Node, contested: Collection[FlavorResource]) -> list[list[Cell]]:
    """The contested cells of the node and its cohorts below the common one."""
    way: list[list[Cell]] = []
    here: Node | None = node
    while here is not None and here is not common:
        way.append([cell for fr in contested if (cell := here.cells.get(fr)) is not None])
        here = here.parent
    return way


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
    own = candidates_of(queue, policy.within, preemptor, contested, gone)
    entitled: list[Ranked] = []
    others: list[Ranked] = []
    ways: dict[Queue, list[list[Cell]]] = {}
    by_usage = False
    cohort = queue.node.parent
    if cohort is None or policy.reclaim == "Never":
        return Lists(entitled, others, own, ways)
    has_right = all(not is_over(cell, amount) for cell, amount in need.items())
    rest = _above(list(need.items()))
    below = queue.node
    while cohort is not None:
        for node in lenders_below(cohort, below, contested):
            other = queues.get(node.name)
            if other is None or not other.activity.active:
                continue
            found = candidates_of(other, policy.reclaim, preemptor, contested, gone)
            if found:
                by_usage = by_usage or other.lanes is not None
                ways[other] = _way(node, cohort, contested)
                (entitled if has_right else others).extend(found)
        if not has_right:
            has_right = all(not is_over(cell, amount) for cell, amount in rest)
        if cohort.parent is None:
            break
        rest = _above(rest)
        below, cohort = cohort, cohort.parent
    if len(ways) > 1:
        for candidates in (entitled, others):
            candidates.sort()
            if by_usage:
                used_most_first(candidates)
    return Lists(entitled, others, own, ways)


def used_most_first(candidates: list[Ranked]) -> None:
    """Usage only counts among those of one queue: the places that they have in the order of all
    are theirs, and there those of LocalQueues that used more come first."""
    places: dict[Queue, list[int]] = {}
    for at, entry in enumerate(candidates):
        held = entry[4].charge
        if held is not None and held.queue.lanes is not None:
            places.setdefault(held.queue, []).append(at)
    for queue, found in places.items():
        assert queue.lanes is not None
        of = [candidates[at] for at in found]
        for at, entry in zip(found, queue.lanes.used_most_first(of), strict=True):
            candidates[at] = entry


def _above(amounts: list[tuple[Cell, int]]) -> list[tuple[Cell, int]]:
    """What of the amounts has to come from the parents."""
    return [
        (cell.parent, max(0, amount - cell.local_free()))
        for cell, amount in amounts
        if cell.parent is not None
    ]
