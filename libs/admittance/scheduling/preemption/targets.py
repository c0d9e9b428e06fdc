"""The order in which queues give up quota under fair sharing.

Source: `docs/spec/scheduling.md#6.7, #8.1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from typing import TypeVar

from admittance.quota.tree import Node
from admittance.scheduling.fairsharing.shares import Share
from admittance.scheduling.state.workload_info import CandidateEntry

ShareOf = Callable[[Node], Share]
Place = tuple[bool, bool, CandidateEntry]
"""Order of candidates over all queues: who is leaving first, then those of other queues."""

QueueItem = tuple[int, float, Place, Node]
"""A queue's place in its cohort: standing, negated, and its first candidate."""

CohortItem = tuple[int, float, int, Node]
"""A cohort's place among those of its parent: standing, negated, and its number there."""

Item = TypeVar("Item", QueueItem, CohortItem)


class Targets:
    """The queues to take from, the one with the largest share first.

    A queue comes up again as long as it has candidates and borrows, and so do the cohorts above
    it; but for the preemptor's own side, which need not borrow. What is taken from a queue moves
    its own share and those of the cohorts above it, and no others, so only these find their places
    anew.
    """

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
        while (found := self._next(root)) is not None:
            yield found
            self._renew(found)

    def has(self, node: Node) -> bool:
        """The queue has candidates left."""
        return bool(self._left.get(node))

    def pop(self, node: Node) -> CandidateEntry:
        """Its next candidate."""
        return self._left[node].pop()

    def drop(self, node: Node) -> None:
        """Nobody is taken from the queue any more."""
        self._left.pop(node, None)

    def _next(self, root: Node) -> Node | None:
        """The queue whose turn it is; None: nothing is left."""
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
                # Nothing is left in it; nor need its share be looked at again.
                self._items.pop(cohort, None)
                cohort = root

    def _first(self, heap: list[Item]) -> Item | None:
        """The first item that is up to date."""
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
        """Candidates of the queue have been taken, or it was dropped."""
        here = node
        while here.parent is not None:
            # Who is out stays out: shares only fall.
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
