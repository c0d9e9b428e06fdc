"""The victims that make a workload fit, without fair sharing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from twin.objects import FR, Job
from twin.tree import Node, Tree

IN_QUEUE = "InClusterQueue"
RECLAIMED = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"

Need = Mapping[FR, int]


@dataclass
class Victim:
    """``below``: the cohort up to which its places have to be over quota, for other queues.
    ``if_within``: may go only if the preemptor does not borrow afterwards."""

    job: Job
    reason: str
    below: Node | None = None
    if_within: bool = False


def allowed(policy: str, preemptor: Job, victim: Job) -> bool:
    if policy == "LowerOrNewerEqualPriority" and victim.priority == preemptor.priority:
        return preemptor.queue_time() < victim.queue_time()
    if policy in ("LowerPriority", "LowerOrNewerEqualPriority"):
        return victim.priority < preemptor.priority
    return policy == "Any"


def candidates(node: Node, policy: str, preemptor: Job, frs: Collection[FR]) -> Iterator[Job]:
    """The workloads of one ClusterQueue that hold contested quota and that the policy allows to
    preempt."""
    for job in node.jobs:
        assert job.admission is not None
        if set(job.admission.usage()) & set(frs) and allowed(policy, preemptor, job):
            yield job


def order(tree: Tree, node: Node, job: Job) -> tuple[object, ...]:
    """The best victims first."""
    own = tree.holder(job) is node
    return (not job.leaving, own, job.priority, -job.reserved_at, job.uid)


def below(top: Node, skip: Node | None, frs: Collection[FR]) -> Iterator[Node]:
    """The active ClusterQueues under a cohort, reached through cohorts that all exceed their
    quota."""
    for child in top.children:
        if child is skip or not any(child.over(fr) for fr in frs):
            continue
        if child.is_queue:
            if child.active:
                yield child
        else:
            yield from below(child, skip, frs)


def collect(
    tree: Tree, node: Node, preemptor: Job, need: Need, frs: Collection[FR]
) -> tuple[list[Victim], list[Victim], list[Victim]]:
    """The candidates: by position in the tree, by priority, and in the same queue."""
    place = node.place
    own = [Victim(job, IN_QUEUE) for job in candidates(node, place.within, preemptor, frs)]
    by_right: list[Victim] = []
    by_priority: list[Victim] = []
    if node.parent is not None and place.reclaim != "Never":
        entitled = not any(node.over(fr, much) for fr, much in need.items())
        rest = {fr: max(0, much - node.local_free(fr)) for fr, much in need.items()}
        came_from = node
        for top in node.above():
            for queue in below(top, came_from, frs):
                for job in candidates(queue, place.reclaim, preemptor, frs):
                    too_high = job.priority >= preemptor.priority or (
                        place.threshold is not None and job.priority > place.threshold
                    )
                    if entitled:
                        by_right.append(Victim(job, RECLAIMED, top))
                    elif place.borrow == "Never" or too_high:
                        by_priority.append(Victim(job, RECLAIMED, top, if_within=True))
                    else:
                        by_priority.append(Victim(job, WHILE_BORROWING, top))
            entitled = entitled or not any(top.over(fr, much) for fr, much in rest.items())
            rest = {fr: max(0, much - top.local_free(fr)) for fr, much in rest.items()}
            came_from = top
    for some in (by_right, by_priority, own):
        some.sort(key=lambda candidate: order(tree, node, candidate.job))
    return by_right, by_priority, own


def fits(node: Node, need: Need, *, borrow: bool) -> bool:
    within = all(node.quota(fr).nominal >= node.usage(fr) + much for fr, much in need.items())
    return (borrow or within) and node.fits(need)


def fill_back(
    tree: Tree, node: Node, need: Need, taken: list[Victim], *, borrow: bool
) -> list[Victim]:
    """The needed victims only. Puts all victims back into the tree."""
    kept = list(taken)
    for victim in reversed(taken[:-1]):
        tree.add(victim.job)
        if fits(node, need, borrow=borrow):
            kept.remove(victim)
        else:
            tree.remove(victim.job)
    for victim in kept:
        tree.add(victim.job)
    return kept


def classical(
    tree: Tree, node: Node, preemptor: Job, need: Need, frs: Collection[FR]
) -> list[Victim]:
    by_right, by_priority, own = collect(tree, node, preemptor, need, frs)
    lists = (by_right, by_priority, own)
    line = [candidate for some in lists for candidate in some if candidate.job.leaving]
    line += [candidate for some in lists for candidate in some if not candidate.job.leaving]
    under = all(node.usage(fr) < node.quota(fr).nominal for fr in frs)
    never = node.place.borrow == "Never"
    if (not by_right and not by_priority) or (never and not under):
        tries = [True]
    elif never and not by_right:
        tries = [False, True]
    else:
        tries = [True, False]
    for borrow in tries:
        taken: list[Victim] = []
        for candidate in line:
            if candidate.below is not None:
                if borrow and candidate.if_within:
                    continue
                path = []
                at: Node | None = tree.holder(candidate.job)
                while at is not None and at is not candidate.below:
                    path.append(at)
                    at = at.parent
                if not all(any(place.over(fr) for fr in frs) for place in path):
                    continue
            tree.remove(candidate.job)
            taken.append(candidate)
            if fits(node, need, borrow=borrow):
                return fill_back(tree, node, need, taken, borrow=borrow)
        for candidate in taken:
            tree.add(candidate.job)
    return []
