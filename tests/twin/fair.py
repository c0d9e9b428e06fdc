"""Shares, and the victims that make a workload fit, with fair sharing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from twin.objects import UNLIMITED, Job
from twin.preempt import IN_QUEUE, RECLAIMED, Need, Victim, candidates, fill_back, fits, order
from twin.tree import Node, Tree

IN_SHARES = "InCohortFairSharing"
FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"

Share = tuple[bool, float]
"""Whether it borrows at no weight at all, which is above everything else, and how much."""


def ratio(node: Node) -> float:
    """The largest part of what can be lent that a place has borrowed, in thousandths."""
    if node.parent is None:
        return 0.0
    borrowed: dict[str, float] = {}
    lendable: dict[str, float] = {}
    for fr in node.frs():
        much = max(0, node.usage(fr) - node.subtree(fr))
        borrowed[fr[1]] = borrowed.get(fr[1], 0) + much
    for fr in node.root().frs():
        lendable[fr[1]] = lendable.get(fr[1], 0) + node.parent.potential(fr)
    most = 0.0
    for resource, much in borrowed.items():
        lent = lendable.get(resource, 0)
        if much > 0 and lent > 0:
            part = 0.0 if lent == UNLIMITED else float(much) * 1000.0 / float(lent)
            most = max(most, part)
    return most


def share(node: Node) -> Share:
    part = ratio(node)
    if part == 0:
        return False, 0.0
    if node.place.weight == 0:
        return True, part
    return False, part / node.place.weight


def borrows(node: Node) -> bool:
    return node.parent is not None and any(node.over(fr) for fr in node.frs())


def sides(node: Node, other: Node) -> tuple[Node, Node]:
    """The two children of the lowest cohort that both are in, each above its own."""
    left, right = [node, *node.above()], [other, *other.above()]
    while len(left) > 1 and len(right) > 1 and left[-2:] and left[-1] is right[-1]:
        if left[-2] is right[-2]:
            left.pop()
            right.pop()
        else:
            return left[-2], right[-2]
    raise AssertionError("one is above the other")


@dataclass
class Targets:
    """The ClusterQueues with candidates, and their candidates, the best first."""

    tree: Tree
    node: Node
    line: dict[str, list[Job]]
    pruned: set[int] = field(default_factory=set)

    def queues(self) -> Iterator[Node]:
        """Yields the queue from which to take the next victim, again and again."""
        if self.node.parent is None:
            while self.line.get(self.node.name):
                yield self.node
            return
        root = self.node.root()
        while id(root) not in self.pruned:
            entry = self.next_of(root)
            if entry is not None:
                yield entry

    def next_of(self, cohort: Node) -> Node | None:
        queues: list[Node] = []
        cohorts: list[Node] = []
        for child in cohort.children:
            if id(child) in self.pruned or not child.active:
                continue
            if child.is_queue:
                useless = child is not self.node and not borrows(child)
                if useless or not self.line.get(child.name):
                    self.pruned.add(id(child))
                else:
                    queues.append(child)
            elif not borrows(child) and child not in self.node.above():
                self.pruned.add(id(child))
            else:
                cohorts.append(child)
        if not queues and not cohorts:
            self.pruned.add(id(cohort))
            return None
        shares = {queue.name: share(queue) for queue in queues}
        if cohorts:
            of_cohorts = [share(cohort) for cohort in cohorts]
            highest = max(of_cohorts)
            if not queues or highest >= max(shares.values()):
                return self.next_of(cohorts[of_cohorts.index(highest)])
        highest = max(shares.values())
        tied = [queue for queue in queues if shares[queue.name] == highest]
        return min(tied, key=lambda entry: order(self.tree, self.node, self.line[entry.name][0]))


def fair(
    tree: Tree,
    node: Node,
    preemptor: Job,
    need: Need,
    frs: Collection[tuple[str, str]],
    strategies: tuple[str, ...] = (FINAL, INITIAL),
) -> list[Victim]:
    line: dict[str, list[Job]] = {}
    line[node.name] = list(candidates(node, node.place.within, preemptor, frs))
    for other in node.root().queues():
        if other is not node and any(other.over(fr) for fr in frs):
            line[other.name] = list(candidates(other, node.place.reclaim, preemptor, frs))
    for jobs in line.values():
        jobs.sort(key=lambda job: order(tree, node, job))
    node.charge(need)
    within = all(node.quota(fr).nominal >= node.usage(fr) for fr in frs)
    taken: list[Victim] = []
    retry: dict[str, list[Job]] = {}

    def done(job: Job, reason: str) -> bool:
        """Takes one victim, and returns whether the workload fits then."""
        tree.remove(job)
        taken.append(Victim(job, reason))
        node.charge(need, -1)
        enough = fits(node, need, borrow=True)
        node.charge(need)
        return enough

    def first_pass() -> bool:
        for target in Targets(tree, node, line).queues():
            jobs = line[target.name]
            if target is node or within:
                if done(jobs.pop(0), IN_QUEUE if target is node else RECLAIMED):
                    return True
                continue
            mine, theirs = sides(node, target)
            wanted, before = share(mine), share(theirs)
            while jobs:
                job = jobs.pop(0)
                tree.remove(job)
                after = share(theirs)
                tree.add(job)
                if wanted <= after if strategies[0] == FINAL else wanted < before:
                    if done(job, IN_SHARES):
                        return True
                    break
                retry.setdefault(target.name, []).append(job)
        return False

    def second_pass() -> bool:
        for target in Targets(tree, node, retry).queues():
            job = retry[target.name].pop(0)
            mine, theirs = sides(node, target)
            if share(mine) < share(theirs) and done(job, IN_SHARES):
                return True
            retry[target.name] = []
        return False

    result = first_pass() or (len(strategies) > 1 and second_pass())
    node.charge(need, -1)
    if result:
        return fill_back(tree, node, need, taken, borrow=True)
    for victim in taken:
        tree.add(victim.job)
    return []
