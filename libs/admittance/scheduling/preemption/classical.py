"""The search for victims of preemption without fair sharing, in cohorts of any depth. Source:
`docs/spec/scheduling.md#6.3`.

The search subtracts the usage of victims from the scheduler's state, and restores that usage before
it returns."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from admittance.events import reasons
from admittance.quota.cell import Cell, FlavorResource, is_over
from admittance.quota.tree import Node
from admittance.scheduling.preemption.candidates import (
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
from admittance.scheduling.state.held.shared_quota import exclude
from admittance.scheduling.state.workload_info import (
    CandidateEntry,
    Charge,
    Queue,
    Victim,
    WorkloadInfo,
)


def search(
    queues: Mapping[str, Queue],
    queue: Queue,
    preemptor: WorkloadInfo,
    need: Need,
    contested: Collection[FlavorResource],
    gone: Container[WorkloadInfo] = (),
) -> list[Victim]:
    """Returns a minimal set of victims for the preemptor, found greedily; empty: no set of victims
    makes enough room. ``gone``: workloads that must not be victims."""
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
        # Other queues give up quota only to a preemptor within its nominal quota, and victims in
        # other queues do not bring the preemptor within its nominal quota.
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
    attempt = _Search(policy, preemptor, need, contested, lists.commons)
    ordered = lists.in_order()
    if over and not tries[0]:
        taken = attempt.fit_within_nominal(ordered, over)
        if taken:
            return fill_back(taken, need, borrowing=False)
    for borrowing in tries:
        taken = attempt.run(ordered, dict(short), borrowing=borrowing)
        if taken:
            return fill_back(taken, need, borrowing=borrowing)
    return []


class _Search:
    """One search for the victims of one preemptor without fair sharing, with all attempts of the
    search."""

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
        """One attempt of the search: removes candidates in order until the preemptor fits, and
        returns the needed victims. If the preemptor never fits, restores all candidates and returns
        an empty list."""
        need = self._need
        taken: list[RemovedVictim] = []
        closed: set[Queue] = set()
        for ranked, elsewhere, owed in ordered:
            for entry in ranked:
                workload = entry[4]
                held = workload.charge
                assert held is not None
                reason = reasons.IN_COHORT_RECLAMATION if elsewhere else reasons.IN_CLUSTER_QUEUE
                if elsewhere:
                    if not owed:
                        if not self._may_borrow_for(entry[0]):
                            if borrowing:
                                continue
                        else:
                            reason = reasons.IN_COHORT_RECLAIM_WHILE_BORROWING
                    # Removals only lower usage, so a queue that has stopped borrowing gives up no
                    # further candidates during the attempt.
                    if held.queue in closed:
                        continue
                    if not self._is_open(held.queue):
                        closed.add(held.queue)
                        continue
                amounts = self._amounts(held)
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
        for removed in taken:
            restore_victim(removed)
        return []

    def fit_within_nominal(
        self,
        ordered: Sequence[tuple[list[CandidateEntry], bool, bool]],
        over: Mapping[FlavorResource, int],
    ) -> list[RemovedVictim]:
        """Finds the same victims as the attempt `run` without borrowing, but faster, if the
        preemptor needs victims of its own queue, which come last in the order, to get within its
        nominal quota. `run` would remove all candidates of other queues and then restore most of
        them; this method removes only the first of these candidates. An empty result means that
        this search found no answer, and the caller must use `run`."""
        need = self._need
        own = self._least_of_own(ordered, dict(over))
        taken: list[RemovedVictim] = []
        if not own:
            return taken
        for victim in own:
            remove_victim(victim)
        others = self._others(ordered)

        def has_room() -> bool:
            while not fits(need, borrowing=False):
                removed = next(others, None)
                if removed is None:
                    return False
                taken.append(removed)
            return True

        if not has_room():
            for victim in (*taken, *own):
                restore_victim(victim)
            return []
        # Try to restore the usage of each victim of the preemptor's own queue, and remove further
        # candidates of other queues for it if needed.
        for index in reversed(range(len(own) - 1)):
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
        """Returns the first candidates of the preemptor's own queue that bring the preemptor within
        its nominal quota; empty: one of these candidates is being evicted already, so it would not
        come last in the order."""
        own: list[RemovedVictim] = []
        for ranked, elsewhere, _ in ordered:
            for entry in () if elsewhere else ranked:
                workload = entry[4]
                held = workload.charge
                assert held is not None
                if workload.is_leaving:
                    return []
                amounts = self._amounts(held)
                own.append((Victim(workload, reasons.IN_CLUSTER_QUEUE), amounts))
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
        """Removes the candidates of other queues one by one, each when the caller asks for the next
        item."""
        for ranked, elsewhere, _ in ordered:
            for entry in ranked if elsewhere else ():
                workload = entry[4]
                held = workload.charge
                assert held is not None
                if self._is_open(held.queue):
                    victim = Victim(workload, reasons.IN_COHORT_RECLAMATION)
                    removed = victim, self._amounts(held)
                    remove_victim(removed)
                    yield removed

    def _amounts(self, held: Charge) -> list[tuple[Cell, int]]:
        """Returns what a candidate holds of the flavors and resources that the preemptor needs."""
        asked = self._asked.get(held.queue)
        if asked is None:
            assert held.queue.node is not None
            cells = held.queue.node.cells
            asked = {cells[cell.fr] for cell in self._need if cell.fr in cells}
            self._asked[held.queue] = asked
        return [amount for amount in held.cells if amount[0] in asked]

    def _may_borrow_for(self, priority: int) -> bool:
        """Whether the preemptor may borrow after it has preempted a workload of priority
        ``priority``."""
        policy = self._policy
        return (
            policy.borrow
            and priority < self._priority
            and (policy.threshold is None or priority <= policy.threshold)
        )

    def _is_open(self, queue: Queue) -> bool:
        """Whether the queue borrows, and every cohort between the queue and the lowest cohort that
        it has in common with the preemptor's queue borrows too."""
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
