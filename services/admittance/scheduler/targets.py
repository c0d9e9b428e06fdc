"""Which queue gives something up next under fair sharing. Source: SCHEDULING 6.7."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from admittance.quota.shares import Share, Standing
from admittance.quota.tree import Node
from admittance.scheduler.picture import Ranked

ShareOf = Callable[[Node], Share]
Place = tuple[bool, bool, Ranked]
"""Order of candidates over all queues: who is leaving first, then those of other queues."""


class Targets:
    """The queues to take from, the one with the largest share first, found anew each time.

    A queue comes up again as long as it has candidates and borrows, and so do the cohorts above
    it; but for the preemptor's own side, which need not borrow.
    """

    def __init__(
        self, preemptor: Node, candidates: Mapping[Node, list[Ranked]], share: ShareOf
    ) -> None:
        self._preemptor = preemptor
        self._own: set[Node] = set()
        here: Node | None = preemptor
        while here is not None:
            self._own.add(here)
            here = here.parent
        self._share = share
        self._left = {node: entries[::-1] for node, entries in candidates.items() if entries}
        self._below: dict[Node, dict[Node, None]] = {}
        for node in self._left:
            child = node
            while child.parent is not None:
                self._below.setdefault(child.parent, {})[child] = None
                child = child.parent

    def __iter__(self) -> Iterator[Node]:
        root = self._preemptor.root()
        if not root.is_cohort:
            while self.has(root):
                yield root
            return
        while root in self._below:
            found = self._next(root)
            if found is not None:
                yield found

    def has(self, node: Node) -> bool:
        """The queue has candidates left."""
        return bool(self._left.get(node))

    def pop(self, node: Node) -> Ranked:
        """Its next candidate."""
        return self._left[node].pop()

    def drop(self, node: Node) -> None:
        """Nobody is taken from the queue any more."""
        self._left.pop(node, None)

    def _next(self, cohort: Node) -> Node | None:
        best: tuple[Node, Standing] | None = None
        best_cohort: tuple[Node, Standing] | None = None
        for node in list(self._below[cohort]):
            share = self._share(node)
            if (not share.borrowing and node not in self._own) or not (
                node in self._below if node.is_cohort else self.has(node)
            ):
                self._prune(cohort, node)
                continue
            standing = share.standing
            if node.is_cohort:
                if best_cohort is None or standing > best_cohort[1]:
                    best_cohort = node, standing
            elif (
                best is None
                or standing > best[1]
                or (standing == best[1] and self._place(node) < self._place(best[0]))
            ):
                best = node, standing
        if best is None and best_cohort is None:
            self._below.pop(cohort, None)
            return None
        if best_cohort is not None and (best is None or best_cohort[1] >= best[1]):
            return self._next(best_cohort[0])
        assert best is not None
        return best[0]

    def _prune(self, cohort: Node, node: Node) -> None:
        del self._below[cohort][node]
        self._below.pop(node, None)
        self._left.pop(node, None)

    def _place(self, node: Node) -> Place:
        entry = self._left[node][-1]
        return not entry[4].is_leaving, node is self._preemptor, entry
