"""Finds the candidates for preemption, and puts them in the order in which they are preempted.
Source: `docs/spec/scheduling.md#6.1, #6.2, #6.3`.

An *entitled* cohort has enough quota of its own for the needs of the preemptor, so other queues
have to give back quota that they borrow from that cohort."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from admittance.quota.cell import Cell, FlavorResource, is_over
from admittance.quota.tree import Node
from admittance.scheduling.preemption.room import Need
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import (
    CandidateCache,
    CandidateEntry,
    Charge,
    Queue,
    WorkloadInfo,
)


class CandidateLists(NamedTuple):
    """The candidates for preemption in three ordered lists: ``entitled``, in other queues below an
    entitled cohort; ``others``, in the remaining other queues; ``own``, in the preemptor's own
    queue. ``commons``: for each other queue the lowest cohort above both that queue and the
    preemptor's queue."""

    entitled: list[CandidateEntry]
    others: list[CandidateEntry]
    own: list[CandidateEntry]
    commons: dict[Queue, Node]

    def in_order(self) -> list[tuple[list[CandidateEntry], bool, bool]]:
        """Returns lists of candidates in the order of preemption; candidates that are being evicted
        already come first. Each list of candidates comes with two flags: the candidates are in
        other queues than the preemptor's; and those queues are below an entitled cohort."""
        kinds = ((self.entitled, True, True), (self.others, True, False), (self.own, False, False))
        leaving: list[tuple[list[CandidateEntry], bool, bool]] = []
        staying: list[tuple[list[CandidateEntry], bool, bool]] = []
        for ranked, elsewhere, owed in kinds:
            going = leaving_candidates(ranked)
            rest = ranked
            if going:
                leaving.append((going, elsewhere, owed))
                rest = [entry for entry in ranked if not entry[4].is_leaving]
            staying.append((rest, elsewhere, owed))
        return leaving + staying


class QueueCandidates(NamedTuple):
    """The candidates for preemption in one queue that is not the preemptor's. ``cohort``: the
    lowest cohort above the candidates' queue and the preemptor's queue; ``owed``: that cohort is
    entitled to the quota that the preemptor needs."""

    queue: Queue
    cohort: Node
    owed: bool
    ranked: list[CandidateEntry]


def candidates_in_cohort(
    queues: Mapping[str, Queue],
    queue: Queue,
    preemptor: WorkloadInfo,
    need: Need,
    contested: Collection[FlavorResource],
    gone: Container[WorkloadInfo],
) -> Iterator[QueueCandidates]:
    """Yields the candidates of each other queue that borrows, from the nearest cohort to the root.
    The caller must not change the scheduler's state before it has taken the last item."""
    assert queue.plan is not None and queue.node is not None
    policy = queue.plan.policy
    if policy.reclaim == "Never":
        return
    below = queue.node
    for cohort, owed in _entitlements(below, need):
        for node in borrowing_queues_below(cohort, below, contested):
            other = queues.get(node.name)
            if other is None or not other.activity.active:
                continue
            candidates = candidates_of(other, policy.reclaim, preemptor, contested, gone)
            if candidates:
                yield QueueCandidates(other, cohort, owed, candidates)
        below = cohort


def is_entitled(queue: Queue, need: Need) -> bool:
    """Whether a cohort above the queue is entitled to the quota in ``need``."""
    assert queue.node is not None
    return any(owed for _, owed in _entitlements(queue.node, need))


def _entitlements(node: Node, need: Need) -> Iterator[tuple[Node, bool]]:
    """Yields the cohorts above the node, up to the root, each with whether the cohort is entitled
    to the quota in ``need``."""
    cohort = node.parent
    has_right = all(not is_over(cell, amount) for cell, amount in need.items())
    rest = _from_parents(list(need.items()))
    while cohort is not None:
        yield cohort, has_right
        if not has_right:
            has_right = all(not is_over(cell, amount) for cell, amount in rest)
        rest = _from_parents(rest)
        cohort = cohort.parent


def candidate_lists(
    own: list[CandidateEntry], offered: Iterable[QueueCandidates]
) -> CandidateLists:
    """Returns the ordered lists of candidates for one search. ``own``: the candidates in the
    preemptor's queue; ``offered``: the candidates in other queues."""
    entitled: list[CandidateEntry] = []
    others: list[CandidateEntry] = []
    commons: dict[Queue, Node] = {}
    by_usage = False
    for other, cohort, owed, ranked in offered:
        by_usage = by_usage or other.lanes is not None
        commons[other] = cohort
        (entitled if owed else others).extend(ranked)
    if len(commons) > 1:
        for candidates in (entitled, others):
            candidates.sort()
            if by_usage:
                highest_usage_first(candidates)
    return CandidateLists(entitled, others, own, commons)


def path_below(node: Node, common: Node, contested: Collection[FlavorResource]) -> list[list[Cell]]:
    """Returns, for the node and each cohort between it and the cohort ``common``, the cells of the
    contested flavors and resources."""
    way: list[list[Cell]] = []
    here: Node | None = node
    while here is not None and here is not common:
        way.append([cell for fr in contested if (cell := here.cells.get(fr)) is not None])
        here = here.parent
    return way


def highest_usage_first(candidates: list[CandidateEntry]) -> None:
    """Sorts the candidates of each queue by the usage of their LocalQueues, highest first. A
    candidate changes places only with candidates of its own queue."""
    places: dict[Queue, list[int]] = {}
    for at, entry in enumerate(candidates):
        held = entry[4].charge
        if held is not None and held.queue.lanes is not None:
            places.setdefault(held.queue, []).append(at)
    for queue, places_of_queue in places.items():
        assert queue.lanes is not None
        of = [candidates[at] for at in places_of_queue]
        for at, entry in zip(places_of_queue, queue.lanes.used_most_first(of), strict=True):
            candidates[at] = entry


def _from_parents(amounts: list[tuple[Cell, int]]) -> list[tuple[Cell, int]]:
    """Returns the part of each needed amount that the node's parent must lend, because the node has
    not enough unused guaranteed quota."""
    return [
        (cell.parent, max(0, amount - cell.local_free()))
        for cell, amount in amounts
        if cell.parent is not None
    ]


_GOING: Final[int] = InFlight.PREEMPTED


def allows(policy: str, preemptor: WorkloadInfo, other: WorkloadInfo) -> bool:
    """Whether the preemption policy allows the preemptor to preempt the workload ``other``, by
    priority and age."""
    if policy == "LowerPriority":
        return other.priority < preemptor.priority
    if policy == "LowerOrNewerEqualPriority":
        if other.priority != preemptor.priority:
            return other.priority < preemptor.priority
        assert preemptor.queued_at is not None and other.queued_at is not None
        return preemptor.queued_at < other.queued_at
    return policy == "Any"


def candidates_of(
    queue: Queue,
    policy: str,
    preemptor: WorkloadInfo,
    contested: Collection[FlavorResource],
    gone: Container[WorkloadInfo] = (),
) -> list[CandidateEntry]:
    """Returns the workloads of one queue that the policy allows to preempt and that hold quota of a
    contested flavor and resource, in order. ``gone``: workloads that must not be victims.

    A workload counts as holding an assigned flavor and resource even if the amount is zero."""
    if queue.node is None or not queue.candidates or policy == "Never":
        return []
    cells = queue.node.cells
    wanted = tuple([cell for fr in contested if (cell := cells.get(fr)) is not None])
    candidates = _preemptible(_holders(queue, wanted), policy, preemptor)
    if gone:
        candidates = [entry for entry in candidates if entry[4] not in gone]
    return candidates if queue.lanes is None else queue.lanes.used_most_first(candidates)


def _holders(queue: Queue, wanted: tuple[Cell, ...]) -> list[CandidateEntry]:
    """Returns the candidates of the queue that hold quota in any of the cells, in order. The
    returned list is cached until the domain changes, so the caller must not change the list."""
    domain, known = queue.domain, queue.candidate_cache
    version = domain.version if domain is not None else 0
    if known is not None and known.same(domain, version, wanted):
        return known.found
    if len(wanted) == 1:
        # A workload's charge has at most one amount for each cell, so no workload is found twice.
        only = wanted[0]
        holders = [
            entry
            for entry in queue.candidates
            for charge in (entry[4].charge,)
            if charge is not None
            for cell, _ in charge.cells
            if cell is only
        ]
    else:
        holders = [entry for entry in queue.candidates if _holds_any(entry[4].charge, wanted)]
    if domain is not None:
        queue.candidate_cache = CandidateCache(domain, version, wanted, holders)
    return holders


def _preemptible(
    ranked: list[CandidateEntry], policy: str, preemptor: WorkloadInfo
) -> list[CandidateEntry]:
    """Returns the workloads of ``ranked`` that the policy allows to preempt. The list begins with
    the lowest priority, so only workloads with the preemptor's priority must be compared by age."""
    priority = preemptor.priority
    if policy == "Any":
        return ranked
    if policy == "LowerPriority":
        return ranked[: bisect_left(ranked, (priority,))]
    if policy == "LowerOrNewerEqualPriority":
        lower = bisect_left(ranked, (priority,))
        equal = ranked[lower : bisect_left(ranked, (priority + 1,))]
        newer = [entry for entry in equal if allows(policy, preemptor, entry[4])]
        return ranked[:lower] + newer
    return []


def _holds_any(held: Charge | None, cells: Collection[Cell]) -> bool:
    if held is not None:
        for cell, _ in held.cells:
            if cell in cells:
                return True
    return False


def leaving_candidates(ranked: Iterable[CandidateEntry]) -> list[CandidateEntry]:
    """Returns the candidates that are being evicted already, in order. Repeats the condition of
    `WorkloadInfo.is_leaving` in place of a call, for speed, because there are many candidates."""
    return [
        entry
        for entry in ranked
        for workload in (entry[4],)
        if workload.in_flight >= _GOING or workload.state == "Evicting"
    ]


def leaving_first(ranked: Iterable[CandidateEntry]) -> list[CandidateEntry]:
    """Returns the candidates in the given order, except that those that are being evicted already
    come first."""
    leaving: list[CandidateEntry] = []
    staying: list[CandidateEntry] = []
    for entry in ranked:
        (leaving if entry[4].is_leaving else staying).append(entry)
    return leaving + staying


def is_over_any(node: Node, contested: Iterable[FlavorResource]) -> bool:
    """Whether the node borrows any contested flavor and resource from its parent."""
    cells = node.cells
    for fr in contested:
        cell = cells.get(fr)
        if cell is not None and is_over(cell):
            return True
    return False


def borrowing_queues_below(
    cohort: Node, skip: Node, contested: Collection[FlavorResource]
) -> Iterator[Node]:
    """Yields the ClusterQueues below the cohort that borrow a contested flavor and resource, if
    every cohort between them and the cohort borrows too. Queues at or below the node ``skip`` are
    not yielded."""
    for node in cohort.members.values():
        if node is not skip and is_over_any(node, contested):
            yield node
    for below in cohort.cohorts.values():
        if below is not skip and is_over_any(below, contested):
            yield from borrowing_queues_below(below, skip, contested)
