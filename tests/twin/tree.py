"""Quota, lending and usage. Sums of usage are computed from the whole tree every time; sums of
quotas, which a tree never changes, once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from twin.objects import FR, UNLIMITED, Job, Place, Quota

Usage = Mapping[FR, float]


@dataclass
class Node:
    """A place in the tree. ``used``: of a ClusterQueue only, by those that it holds."""

    place: Place
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    used: dict[FR, float] = field(default_factory=dict)
    active: bool = True
    fair: bool = False
    jobs: list[Job] = field(default_factory=list)
    _named: set[FR] | None = None
    _subtree: dict[FR, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def is_queue(self) -> bool:
        return self.place.is_queue

    def quota(self, fr: FR) -> Quota:
        return self.place.quotas.get(fr) or Quota()

    # Sums. ----------------------------------------------------------------------------------

    def frs(self) -> set[FR]:
        """The flavors and resources with quota here or below."""
        if self._named is None:
            below = (child.frs() for child in self.children)
            self._named = set(self.place.quotas).union(*below)
        return self._named

    def subtree(self, fr: FR) -> float:
        if fr not in self._subtree:
            lent = sum(child.subtree(fr) - child.guaranteed(fr) for child in self.children)
            self._subtree[fr] = self.quota(fr).nominal + lent
        return self._subtree[fr]

    def guaranteed(self, fr: FR) -> float:
        lend = self.quota(fr).lend
        return 0 if lend is None else max(0, minus(self.subtree(fr), lend))

    def usage(self, fr: FR) -> float:
        if self.is_queue:
            return self.used.get(fr, 0)
        return sum(max(0, child.usage(fr) - child.guaranteed(fr)) for child in self.children)

    def local_free(self, fr: FR) -> float:
        return max(0, self.guaranteed(fr) - self.usage(fr))

    def available(self, fr: FR) -> float:
        if self.parent is None:
            return self.subtree(fr) - self.usage(fr)
        above = self.parent.available(fr)
        limit = self.quota(fr).borrow
        if limit is not None:
            private = self.guaranteed(fr)
            stored = minus(self.subtree(fr), private)
            above = min(above, stored - max(0, self.usage(fr) - private) + limit)
        return self.local_free(fr) + above

    def potential(self, fr: FR) -> float:
        if self.parent is None:
            return self.subtree(fr)
        most = self.guaranteed(fr) + self.parent.potential(fr)
        limit = self.quota(fr).borrow
        return most if limit is None else min(most, self.subtree(fr) + limit)

    def over(self, fr: FR, more: float = 0) -> bool:
        return self.subtree(fr) < self.usage(fr) + more

    # Ways. ----------------------------------------------------------------------------------

    def above(self) -> Iterator[Node]:
        """The cohorts on the way up, nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def root(self) -> Node:
        return [self, *self.above()][-1]

    def queues(self) -> Iterator[Node]:
        """The active ClusterQueues here and below."""
        if self.is_queue and self.active:
            yield self
        for child in self.children:
            yield from child.queues()

    def height(self) -> int:
        seen = [child for child in self.children if not child.is_queue or child.active]
        cohorts = [child.height() + 1 for child in seen if not child.is_queue]
        return max([min(len(seen), 1), *cohorts])

    def borrow_level(self, fr: FR, much: float) -> tuple[int, bool]:
        """How many cohort levels up the quota comes from, and whether the level is below the
        root."""
        if not self.over(fr, much) or self.parent is None:
            return 0, self.parent is not None
        rest = much - self.local_free(fr)
        for node in self.above():
            if not node.over(fr, rest):
                return node.height(), node.parent is not None
            rest -= node.local_free(fr)
        return self.root().height(), False

    # Changes. -------------------------------------------------------------------------------

    def charge(self, usage: Usage, times: int = 1) -> None:
        for fr, much in usage.items():
            self.used[fr] = self.used.get(fr, 0) + times * much

    def fits(self, usage: Usage) -> bool:
        return all(much <= max(0, self.available(fr)) for fr, much in usage.items())


def minus(left: float, right: float) -> float:
    """Subtracts; unlimited minus unlimited is 0."""
    return 0 if left == right == UNLIMITED else left - right


class Tree:
    """All cohort trees at one time. ``queue``: the active ClusterQueues by name."""

    def __init__(
        self,
        places: Iterable[Place],
        flavors: Iterable[str],
        jobs: Iterable[Job],
        *,
        fair: bool = False,
    ) -> None:
        self.nodes: dict[tuple[bool, str], Node] = {}
        known = set(flavors)
        for place in places:
            self.nodes[place.is_queue, place.name] = Node(place)
        for node in list(self.nodes.values()):
            if node.place.parent:
                key = (False, node.place.parent)
                if key not in self.nodes:
                    self.nodes[key] = Node(Place(node.place.parent, is_queue=False))
                node.parent = self.nodes[key]
                node.parent.children.append(node)
        for node in self.nodes.values():
            named = {flavor for group in node.place.groups for flavor in group.flavors}
            node.fair = fair
            node.active = not node.is_queue or (node.place.stop == "None" and named <= known)
        for job in jobs:
            if job.admission is not None and not job.finished:
                self.add(job)

    @property
    def queue(self) -> dict[str, Node]:
        return {name: node for (of, name), node in self.nodes.items() if of and node.active}

    def holder(self, job: Job) -> Node:
        assert job.admission is not None
        return self.nodes[True, job.admission.queue]

    def add(self, job: Job) -> None:
        assert job.admission is not None
        node = self.holder(job)
        node.jobs.append(job)
        node.charge(job.admission.usage())

    def remove(self, job: Job) -> None:
        assert job.admission is not None
        node = self.holder(job)
        node.jobs.remove(job)
        node.charge(job.admission.usage(), -1)
