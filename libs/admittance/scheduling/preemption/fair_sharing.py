"""The search for victims of preemption under fair sharing. Source: `docs/spec/scheduling.md#6.6,
#6.7`.

Shares are computed as if the preemptor had the quota that it needs. The search subtracts the usage
of victims from the scheduler's state, and restores that usage before it returns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping
from heapq import heappop, heappush
from typing import TypeVar

from admittance.events import reasons
from admittance.events.shapes import Shares
from admittance.quota.cell import FlavorResource
from admittance.quota.tree import Node
from admittance.scheduling.fairsharing.shares import Share, Standing, share_of
from admittance.scheduling.preemption.candidates import candidates_of, is_over_any, leaving_first
from admittance.scheduling.preemption.decision_inputs import compared_shares
from admittance.scheduling.preemption.room import (
    Need,
    RemovedVictim,
    can_free,
    fill_back,
    fits,
    shortfalls,
)
from admittance.scheduling.state.config import FINAL_SHARE, INITIAL_SHARE
from admittance.scheduling.state.held.shared_quota import FamilyQuota, remove_usage, restore_usage
from admittance.scheduling.state.workload_info import (
    CandidateEntry,
    Queue,
    Victim,
    WorkloadInfo,
    family_quota_of,
)


def search(
    queues: Mapping[str, Queue],
    queue: Queue,
    preemptor: WorkloadInfo,
    need: Need,
    contested: Collection[FlavorResource],
    strategies: tuple[str, ...],
    gone: Container[WorkloadInfo] = (),
) -> list[Victim]:
    """Returns the victims that the preemptor needs and that fair sharing allows; empty: no victims
    make enough room. ``gone``: workloads that must not be victims."""
    by_queue = _candidates(queues, queue, preemptor, contested, gone)
    candidates = [entry for entries in by_queue.values() for entry in entries]
    short = shortfalls(need)
    if not candidates or not can_free(candidates, short):
        return []
    held = family_quota_of(preemptor)
    attempt = _Search(queue, need, contested, short, held)
    attempt.add()
    done = attempt.by_strategy(by_queue, strategies[0])
    if not done and len(strategies) > 1:
        done = attempt.by_initial_share()
    attempt.subtract()
    if done:
        return fill_back(attempt.taken, need, borrowing=True)
    for victim, _ in attempt.taken:
        restore_usage(victim.workload)
    return []


def _candidates(
    queues: Mapping[str, Queue],
    queue: Queue,
    preemptor: WorkloadInfo,
    contested: Collection[FlavorResource],
    gone: Container[WorkloadInfo],
) -> dict[Node, list[CandidateEntry]]:
    """Returns the workloads of each queue that the policies allow to preempt, in order."""
    plan, node = queue.plan, queue.node
    assert plan is not None and node is not None
    by_queue: dict[Node, list[CandidateEntry]] = {}
    own = candidates_of(queue, plan.policy.within, preemptor, contested, gone)
    if own:
        by_queue[node] = leaving_first(own)
    if node.parent is not None and plan.policy.reclaim != "Never":
        for other_node in node.root().queues():
            if other_node is node or not is_over_any(other_node, contested):
                continue
            other = queues.get(other_node.name)
            if other is not None and other.activity.active:
                given = candidates_of(other, plan.policy.reclaim, preemptor, contested, gone)
                if given:
                    by_queue[other_node] = leaving_first(given)
    return by_queue


class _Search:
    """One search for the victims of one preemptor under fair sharing: the victims removed so far,
    and the shares of nodes without these victims."""

    def __init__(
        self,
        queue: Queue,
        need: Need,
        contested: Collection[FlavorResource],
        short: dict[FlavorResource, int],
        held: FamilyQuota[WorkloadInfo] | None,
    ) -> None:
        assert queue.node is not None
        self._held = held
        self.taken: list[RemovedVictim] = []
        self._retry: dict[Node, list[CandidateEntry]] = {}
        self._node = queue.node
        self._need = need
        self._contested = contested
        self._short = short
        self.shares: dict[Node, Share] = {}
        self._sides: dict[Node, tuple[Node, Node]] = {}

    def add(self) -> None:
        """Charges the quota that the preemptor needs, as if the preemptor had it. For a variant,
        the needed quota replaces the quota that its family holds."""
        if self._held is not None:
            self._held.assume(self._need)
            return
        for cell, amount in self._need.items():
            cell.charge(amount)

    def subtract(self) -> None:
        """Undoes `add`: subtracts the quota that the preemptor needs."""
        if self._held is not None:
            self._held.end_assumption()
            return
        for cell, amount in self._need.items():
            cell.charge(-amount)

    def share(self, node: Node) -> Share:
        """The present share of the node, from a cache."""
        share = self.shares.get(node)
        if share is None:
            share = self.shares[node] = share_of(node)
        return share

    def _take(
        self, entry: CandidateEntry, node: Node, reason: str, why: Shares | None = None
    ) -> bool:
        """Removes the quota of the candidate; returns whether the preemptor fits now."""
        remove_usage(entry[4])
        return self._taken(entry, node, reason, why)

    def _taken(self, entry: CandidateEntry, node: Node, reason: str, why: Shares | None) -> bool:
        """Records the candidate, whose quota is removed, as a victim; returns whether the preemptor
        fits now."""
        workload = entry[4]
        assert workload.charge is not None
        short = self._short
        if short:
            for cell, amount in workload.charge.cells:
                left = short.get(cell.fr)
                if left is not None:
                    if left > amount:
                        short[cell.fr] = left - amount
                    else:
                        del short[cell.fr]
        self._moved(node)
        self.taken.append((Victim(workload, reason, why), workload.charge.cells))
        # A victim frees at most what it held, so the function tests whether the preemptor fits only
        # when the removed victims held enough of every missing amount.
        return not short and self._fits()

    def _moved(self, node: Node) -> None:
        here: Node | None = node
        while here is not None:
            self.shares.pop(here, None)
            here = here.parent

    def _fits(self) -> bool:
        self.subtract()
        enough = fits(self._need, borrowing=True)
        self.add()
        return enough

    def _standings(self, node: Node) -> tuple[Standing, Standing, Node]:
        """Returns the standings of the two nodes that `almost_common` finds for the preemptor's
        queue and the queue ``node``, and the second of these nodes."""
        sides = self._sides.get(node)
        if sides is None:
            sides = self._sides[node] = almost_common(self._node, node)
        mine, theirs = sides
        return self.share(mine).standing, self.share(theirs).standing, theirs

    def by_strategy(self, candidates: dict[Node, list[CandidateEntry]], strategy: str) -> bool:
        """Takes the candidates that the strategy allows to preempt as victims, queue by queue;
        returns whether the preemptor fits then."""
        within = all(
            cell.nominal >= cell.usage for cell in self._need if cell.fr in self._contested
        )
        targets = Targets(self._node, candidates, self.share)
        for node in targets:
            if node is self._node or within:
                reason = (
                    reasons.IN_CLUSTER_QUEUE
                    if node is self._node
                    else reasons.IN_COHORT_RECLAMATION
                )
                if self._take(targets.pop(node), node, reason):
                    return True
                continue
            mine, before, side = self._standings(node)
            while targets.has(node):
                entry = targets.pop(node)
                if strategy == FINAL_SHARE:
                    remove_usage(entry[4])
                    share = share_of(side)
                    after = share.standing
                    if mine <= after:
                        why = compared_shares(strategy, mine, before, after)
                        if self._taken(entry, node, reasons.IN_COHORT_FAIR_SHARING, why):
                            return True
                        self.shares[side] = share
                        break
                    restore_usage(entry[4])
                elif mine < before:
                    if self._take(
                        entry,
                        node,
                        reasons.IN_COHORT_FAIR_SHARING,
                        compared_shares(strategy, mine, before),
                    ):
                        return True
                    break
                self._retry.setdefault(node, []).append(entry)
        return False

    def by_initial_share(self) -> bool:
        """The last attempt of the search, with the candidates that `by_strategy` left: takes one
        candidate of each queue as a victim if the queue's side has a larger share than the
        preemptor's side; returns whether the preemptor fits then. A queue's side is the node that
        `almost_common` finds for the queue."""
        targets = Targets(self._node, self._retry, self.share)
        for node in targets:
            mine, theirs, _ = self._standings(node)
            if mine < theirs:
                why = compared_shares(INITIAL_SHARE, mine, theirs)
                if self._take(targets.pop(node), node, reasons.IN_COHORT_FAIR_SHARING, why):
                    return True
            targets.drop(node)
        return False


def almost_common(mine: Node, other: Node) -> tuple[Node, Node]:
    """Returns two children of the lowest cohort above both queues: the child that is or contains
    the queue ``mine``, and the child that is or contains the queue ``other``."""
    ways: dict[Node, Node] = {}
    here = mine
    while here.parent is not None:
        ways[here.parent] = here
        here = here.parent
    there = other
    while there.parent is not None and there.parent not in ways:
        there = there.parent
    assert there.parent is not None
    return ways[there.parent], there


ShareOf = Callable[[Node], Share]
Place = tuple[bool, bool, CandidateEntry]
"""Order of candidates over all queues: first candidates that are being evicted, then candidates of
other queues than the preemptor's."""

QueueItem = tuple[int, float, Place, Node]
"""Item of a queue in the heap of its cohort: the queue's standing, negated; the place of the
queue's first candidate; the queue's node."""

CohortItem = tuple[int, float, int, Node]
"""Item of a cohort in the heap of its parent cohort: the cohort's standing, negated; its number in
that heap; its node."""

HeapItem = TypeVar("HeapItem", QueueItem, CohortItem)


class Targets:
    """Iterates over the queues in which a search under fair sharing preempts, those with the
    largest share first.

    The iterator yields a queue again as long as that queue has candidates, and the queue and every
    cohort above it borrow. The preemptor's own queue and the cohorts above it need not borrow. A
    removed victim changes only the shares of its queue and of the cohorts above that queue, so only
    these nodes are placed anew in their heaps."""

    def __init__(
        self, preemptor: Node, candidates: Mapping[Node, list[CandidateEntry]], share: ShareOf
    ) -> None:
        self._preemptor = preemptor
        self._own: set[Node] = set()
        here: Node | None = preemptor
        while here is not None:
            self._own.add(here)
            here = here.parent
        self._share = share
        self._left = {node: entries[::-1] for node, entries in candidates.items() if entries}
        self._below: dict[Node, dict[Node, int]] = {}
        for node in self._left:
            child = node
            while child.parent is not None:
                fellows = self._below.setdefault(child.parent, {})
                fellows.setdefault(child, len(fellows))
                child = child.parent
        self._queues: dict[Node, list[QueueItem]] = {}
        self._cohorts: dict[Node, list[CohortItem]] = {}
        self._items: dict[Node, QueueItem | CohortItem] = {}

    def __iter__(self) -> Iterator[Node]:
        root = self._preemptor.root()
        if not root.is_cohort:
            while self.has(root):
                yield root
            return
        if root not in self._below:
            return
        self._fill(root)
        while (node := self._next(root)) is not None:
            yield node
            self._renew(node)

    def has(self, node: Node) -> bool:
        """Whether the queue has candidates for preemption left in this search."""
        return bool(self._left.get(node))

    def pop(self, node: Node) -> CandidateEntry:
        """Removes and returns the queue's next candidate for preemption."""
        return self._left[node].pop()

    def drop(self, node: Node) -> None:
        """Drops the queue with all its candidates from this search."""
        self._left.pop(node, None)

    def _next(self, root: Node) -> Node | None:
        """Returns the next queue in which the search preempts; None: no queue is left."""
        cohort = root
        while True:
            queue, below = self._first(self._queues[cohort]), self._first(self._cohorts[cohort])
            if below is not None and (queue is None or below[:2] <= queue[:2]):
                cohort = below[3]
            elif queue is not None:
                return queue[3]
            elif cohort is root:
                return None
            else:
                # No queue below this cohort has candidates left.
                self._items.pop(cohort, None)
                cohort = root

    def _first(self, heap: list[HeapItem]) -> HeapItem | None:
        """Returns the first item of the heap that is up to date, and removes the outdated items
        before it; None: the heap is empty."""
        while heap:
            item = heap[0]
            if self._items.get(item[3]) is item:
                return item
            heappop(heap)
        return None

    def _fill(self, cohort: Node) -> None:
        self._queues[cohort] = []
        self._cohorts[cohort] = []
        for node, number in self._below[cohort].items():
            if node.is_cohort:
                self._fill(node)
            self._put(cohort, node, number)

    def _renew(self, node: Node) -> None:
        """Places the queue and its cohorts anew in their heaps, after candidates of the queue were
        removed or the queue was dropped."""
        here = node
        while here.parent is not None:
            # A node that has lost its item borrows nothing or has no candidates left, and stays
            # without an item, because shares only fall during a search.
            if self._items.pop(here, None) is not None:
                self._put(here.parent, here, self._below[here.parent][here])
            here = here.parent

    def _put(self, cohort: Node, node: Node, number: int) -> None:
        if not node.is_cohort and not self.has(node):
            return
        share = self._share(node)
        if not share.borrowing and node not in self._own:
            return
        above, value = share.standing
        if node.is_cohort:
            of_cohort = self._items[node] = (-above, -value, number, node)
            heappush(self._cohorts[cohort], of_cohort)
        else:
            of_queue = self._items[node] = (-above, -value, self._place(node), node)
            heappush(self._queues[cohort], of_queue)

    def _place(self, node: Node) -> Place:
        entry = self._left[node][-1]
        return not entry[4].is_leaving, node is self._preemptor, entry
