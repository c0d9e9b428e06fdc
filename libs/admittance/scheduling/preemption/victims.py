"""The possible victims of a preemptor, and their order.

Source: `docs/spec/scheduling.md#6.1, #6.2`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from admittance.quota.cell import Cell, FlavorResource, is_over
from admittance.quota.tree import Node
from admittance.scheduling.state.workload_info import (
    CandidateCache,
    CandidateEntry,
    Charge,
    InFlight,
    Queue,
    WorkloadInfo,
)

IN_CLUSTER_QUEUE: Final = "InClusterQueue"
RECLAMATION: Final = "InCohortReclamation"
RECLAIM_WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"
FAIR_SHARING: Final = "InCohortFairSharing"

_GOING: Final[int] = InFlight.PREEMPTED


def allows(policy: str, preemptor: WorkloadInfo, other: WorkloadInfo) -> bool:
    """The policy lets the preemptor take quota from the other, by priority and age alone."""
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
    gone: Collection[WorkloadInfo] = (),
) -> list[CandidateEntry]:
    """Those of one queue that the policy gives up and that hold something contested, in order:
    where usage counts, those of LocalQueues that used more first. ``gone``: whom not to take into
    account.

    Judged by the assigned flavor: holding an amount of nothing counts.
    """
    if queue.node is None or not queue.candidates or policy == "Never":
        return []
    cells = queue.node.cells
    wanted = tuple([cell for fr in contested if (cell := cells.get(fr)) is not None])
    found = _given_up(_holders(queue, wanted), policy, preemptor)
    if gone:
        found = [entry for entry in found if entry[4] not in gone]
    return found if queue.lanes is None else queue.lanes.used_most_first(found)


def _holders(queue: Queue, wanted: tuple[Cell, ...]) -> list[CandidateEntry]:
    """By rank, those of the queue that hold any of the cells: found once for all heads of a domain
    that ask before anything moves there. Not to be changed."""
    domain, known = queue.domain, queue.candidate_cache
    version = domain.version if domain is not None else 0
    if known is not None and known.same(domain, version, wanted):
        return known.found
    if len(wanted) == 1:
        # A charge names each cell once.
        only = wanted[0]
        found = [
            entry
            for entry in queue.candidates
            for charge in (entry[4].charge,)
            if charge is not None
            for cell, _ in charge.cells
            if cell is only
        ]
    else:
        found = [entry for entry in queue.candidates if _holds_any(entry[4].charge, wanted)]
    if domain is not None:
        queue.candidate_cache = CandidateCache(domain, version, wanted, found)
    return found


def _given_up(
    ranked: list[CandidateEntry], policy: str, preemptor: WorkloadInfo
) -> list[CandidateEntry]:
    """By rank. Those of lower priority come first, and then those of the same, so that nobody has
    to be asked but where age decides."""
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


def leaving_of(ranked: Iterable[CandidateEntry]) -> list[CandidateEntry]:
    """Those on their way out already, in order: `WorkloadInfo.is_leaving`, asked of very many."""
    return [
        entry
        for entry in ranked
        for workload in (entry[4],)
        if workload.in_flight >= _GOING or workload.state == "Evicting"
    ]


def leaving_first(ranked: Iterable[CandidateEntry]) -> list[CandidateEntry]:
    """In order, but those on their way out already before all others."""
    leaving: list[CandidateEntry] = []
    staying: list[CandidateEntry] = []
    for entry in ranked:
        (leaving if entry[4].is_leaving else staying).append(entry)
    return leaving + staying


def is_over_any(node: Node, contested: Iterable[FlavorResource]) -> bool:
    """The node takes from its parent in something contested."""
    cells = node.cells
    for fr in contested:
        cell = cells.get(fr)
        if cell is not None and is_over(cell):
            return True
    return False


def lenders_below(
    cohort: Node, skip: Node, contested: Collection[FlavorResource]
) -> Iterator[Node]:
    """The ClusterQueues below the cohort, but for those at or below skip, that take more of
    something contested than they have, and so does every cohort in between."""
    for node in cohort.members.values():
        if node is not skip and is_over_any(node, contested):
            yield node
    for below in cohort.cohorts.values():
        if below is not skip and is_over_any(below, contested):
            yield from lenders_below(below, skip, contested)


def hold(candidates: Iterable[CandidateEntry], fr: FlavorResource, amount: int) -> bool:
    """These hold at least so much of the flavor and resource together."""
    for entry in candidates:
        held = entry[4].charge
        if held is not None:
            for cell, much in held.cells:
                if cell.fr == fr:
                    amount -= much
            if amount <= 0:
                return True
    return amount <= 0
