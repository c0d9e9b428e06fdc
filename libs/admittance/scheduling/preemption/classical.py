"""The search for victims without fair sharing, in cohorts of any depth.
Source: `docs/spec/scheduling.md#6.3`.

The state itself is tried out: what would go is taken out of it, and put back before the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from admittance.quota.cell import Cell, FlavorResource, is_over
from admittance.quota.tree import Node
from admittance.scheduling.preemption.candidates import (
    IN_CLUSTER_QUEUE,
    RECLAIM_WHILE_BORROWING,
    RECLAMATION,
    QueueCandidates,
    candidate_lists,
    candidates_in_cohort,
    candidates_of,
    is_entitled,
    path_below,
)
from admittance.scheduling.preemption.room import (
    Need,
    RemovedVictim,
    above_nominal,
    can_free,
    fill_back,
    fits,
    remove_victim,
    restore_victim,
    shortfalls,
)
from admittance.scheduling.state.flavor_plan import Policy
from admittance.scheduling.state.shared_quota import exclude
from admittance.scheduling.state.workload_info import CandidateEntry, Queue, Victim, WorkloadInfo


def search(
    queues: Mapping[str, Queue],
    queue: Queue,
    preemptor: WorkloadInfo,
    need: Need,
    contested: Collection[FlavorResource],
    gone: Collection[WorkloadInfo] = (),
) -> list[Victim]:
    """The least set of victims, found greedily; empty when there is none. ``gone``: whom not to
    take into account."""
    assert queue.plan is not None
    policy = queue.plan.policy
    own = candidates_of(queue, policy.within, preemptor, contested, gone)
    offered: Iterable[QueueCandidates] = candidates_in_cohort(
        queues, queue, preemptor, need, contested, gone
    )
    under = all(cell.usage < cell.nominal for cell in need if cell.fr in contested)
    over = above_nominal(need)
    within = under and can_free(own, over)
    if over and not within and not policy.borrow and not is_entitled(queue, need):
        # Others may only go for a preemptor that comes within its own quota, and what goes
        # elsewhere does not bring it there.
        offered = ()
    lists = candidate_lists(own, offered)
    if not (own or lists.entitled or lists.others):
        return []
    short = shortfalls(need)
    if not can_free([*own, *lists.entitled, *lists.others], short):
        return []
    if not (lists.entitled or lists.others) or (not policy.borrow and not under):
        tries: tuple[bool, ...] = (True,)
    elif not policy.borrow and not lists.entitled:
        tries = (False, True)
    else:
        tries = (True, False)
    hunt = _Search(policy, preemptor, need, contested, lists.commons)
    ordered = lists.in_order()
    if over and not tries[0]:
        taken = hunt.come_within(ordered, over)
        if taken:
            return fill_back(taken, need, borrowing=False)
    for borrowing in tries:
        taken = hunt.run(ordered, dict(short), borrowing=borrowing)
        if taken:
            return fill_back(taken, need, borrowing=borrowing)
    return []


class _Search:
    """The attempts of one search."""

    def __init__(
        self,
        policy: Policy,
        preemptor: WorkloadInfo,
        need: Need,
        contested: Collection[FlavorResource],
        commons: Mapping[Queue, Node],
    ) -> None:
        self._policy = policy
        self._priority = preemptor.priority
        self._need = need
        self._asked: dict[Queue, set[Cell]] = {}
        self._contested = contested
        self._commons = commons
        self._ways: dict[Queue, list[list[Cell]]] = {}

    def run(
        self,
        ordered: Iterable[tuple[list[CandidateEntry], bool, bool]],
        lack: dict[FlavorResource, int],
        *,
        borrowing: bool,
    ) -> list[RemovedVictim]:
        """Takes one after the other until there is room enough; else puts all back, and the answer
        is empty."""
        need = self._need
        taken: list[RemovedVictim] = []
        closed: set[Queue] = set()
        for ranked, elsewhere, owed in ordered:
            for entry in ranked:
                workload = entry[4]
                held = workload.charge
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
                    if not self._is_open(held.queue):
                        closed.add(held.queue)
                        continue
                # What it holds of other flavors and resources makes no difference here.
                asked = self._asked_of(held.queue)
                amounts = [one for one in held.cells if one[0] in asked]
                taken.append((Victim(workload, reason), amounts))
                if workload.shared_quotas:
                    exclude(workload)
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
        for one in taken:
            restore_victim(one)
        return []

    def come_within(
        self,
        ordered: Sequence[tuple[list[CandidateEntry], bool, bool]],
        over: Mapping[FlavorResource, int],
    ) -> list[RemovedVictim]:
        """The same without borrowing, where the preemptor comes within its own quota only by what
        its own queue gives up, the last of all. Then `run` would take all others before that, and
        all but the first few would be spared: nobody behind those is even taken here. Empty: that
        cannot be told so, and `run` may find somebody still."""
        need = self._need
        own = self._least_of_own(ordered, dict(over))
        taken: list[RemovedVictim] = []
        if not own:
            return taken
        for one in own:
            remove_victim(one)
        others = self._others(ordered)

        def has_room() -> bool:
            while not fits(need, borrowing=False):
                found = next(others, None)
                if found is None:
                    return False
                taken.append(found)
            return True

        if not has_room():
            for one in (*taken, *own):
                restore_victim(one)
            return []
        # Who may stay of its own queue is asked with all others gone: with as many as that needs.
        for index in range(len(own) - 2, -1, -1):
            restore_victim(own[index])
            if not above_nominal(need) and has_room():
                own[index] = own[-1]
                own.pop()
            else:
                remove_victim(own[index])
        return taken + own

    def _least_of_own(
        self,
        ordered: Sequence[tuple[list[CandidateEntry], bool, bool]],
        over: dict[FlavorResource, int],
    ) -> list[RemovedVictim]:
        """The first of its own queue that bring it within its quota; empty: some of those are on
        their way out already, so that they are not the last."""
        own: list[RemovedVictim] = []
        for ranked, elsewhere, _ in ordered:
            for entry in () if elsewhere else ranked:
                workload = entry[4]
                held = workload.charge
                assert held is not None
                if workload.is_leaving:
                    return []
                asked = self._asked_of(held.queue)
                amounts = [one for one in held.cells if one[0] in asked]
                own.append((Victim(workload, IN_CLUSTER_QUEUE), amounts))
                for cell, amount in amounts:
                    more = over.pop(cell.fr, 0) - amount
                    if more > 0:
                        over[cell.fr] = more
                if not over:
                    return own
        return []

    def _others(
        self, ordered: Sequence[tuple[list[CandidateEntry], bool, bool]]
    ) -> Iterator[RemovedVictim]:
        """Takes those of other queues one after the other, as they are asked for."""
        for ranked, elsewhere, _ in ordered:
            for entry in ranked if elsewhere else ():
                workload = entry[4]
                held = workload.charge
                assert held is not None
                if self._is_open(held.queue):
                    asked = self._asked_of(held.queue)
                    amounts = [one for one in held.cells if one[0] in asked]
                    found = Victim(workload, RECLAMATION), amounts
                    remove_victim(found)
                    yield found

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

    def _is_open(self, queue: Queue) -> bool:
        """On the whole way up to the cohort that it shares there is more in use than is theirs."""
        way = self._ways.get(queue)
        if way is None:
            assert queue.node is not None
            common = self._commons[queue]
            way = self._ways[queue] = path_below(queue.node, common, self._contested)
        for cells in way:
            for cell in cells:
                if cell.subtree < cell.usage and is_over(cell):
                    break
            else:
                return False
        return True
