"""The candidates of a search for victims without fair sharing, and their order.

Source: `docs/spec/scheduling.md#6.1, #6.3`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from admittance.quota.cell import Cell, FlavorResource, is_over
from admittance.quota.tree import Node
from admittance.scheduling.preemption.room import Need
from admittance.scheduling.preemption.victims import candidates_of, leaving_of, lenders_below
from admittance.scheduling.state.workload_info import CandidateEntry, Queue, WorkloadInfo


class Lists(NamedTuple):
    """Candidates whose cohort owes it to the preemptor, those that only a policy gives up, and
    those of its own queue; each in order. ``commons``: of every queue that they are of, but for
    the preemptor's, the cohort that both share."""

    entitled: list[CandidateEntry]
    others: list[CandidateEntry]
    own: list[CandidateEntry]
    commons: dict[Queue, Node]

    def in_order(self) -> list[tuple[list[CandidateEntry], bool, bool]]:
        """Those on their way out already first, and otherwise list by list; and whether those of
        each list are of other queues, and whether these owe it to the preemptor."""
        kinds = ((self.entitled, True, True), (self.others, True, False), (self.own, False, False))
        leaving: list[tuple[list[CandidateEntry], bool, bool]] = []
        staying: list[tuple[list[CandidateEntry], bool, bool]] = []
        for ranked, elsewhere, owed in kinds:
            going = leaving_of(ranked)
            rest = ranked
            if going:
                leaving.append((going, elsewhere, owed))
                rest = [entry for entry in ranked if not entry[4].is_leaving]
            staying.append((rest, elsewhere, owed))
        return leaving + staying


class Offer(NamedTuple):
    """What a policy gives up of one other queue; ``owed``: the cohort that it shares with the
    preemptor, ``cohort``, owes it."""

    queue: Queue
    cohort: Node
    owed: bool
    ranked: list[CandidateEntry]


def offers(
    queues: Mapping[str, Queue],
    queue: Queue,
    preemptor: WorkloadInfo,
    need: Need,
    contested: Collection[FlavorResource],
    gone: Collection[WorkloadInfo],
) -> Iterator[Offer]:
    """Of every other queue that takes more than its own, those that the policy gives up: from the
    nearest cohort to the root. The state must not be moved while this is read."""
    assert queue.plan is not None and queue.node is not None
    policy = queue.plan.policy
    if policy.reclaim == "Never":
        return
    below = queue.node
    for cohort, owed in _rights(below, need):
        for node in lenders_below(cohort, below, contested):
            other = queues.get(node.name)
            if other is None or not other.activity.active:
                continue
            found = candidates_of(other, policy.reclaim, preemptor, contested, gone)
            if found:
                yield Offer(other, cohort, owed, found)
        below = cohort


def is_owed(queue: Queue, need: Need) -> bool:
    """Some cohort owes it to the queue, so that others have to give it back."""
    assert queue.node is not None
    return any(owed for _, owed in _rights(queue.node, need))


def _rights(node: Node, need: Need) -> Iterator[tuple[Node, bool]]:
    """The cohorts above the node up to the root, and whether what is asked for is owed there."""
    cohort = node.parent
    has_right = all(not is_over(cell, amount) for cell, amount in need.items())
    rest = _above(list(need.items()))
    while cohort is not None:
        yield cohort, has_right
        if not has_right:
            has_right = all(not is_over(cell, amount) for cell, amount in rest)
        rest = _above(rest)
        cohort = cohort.parent


def lists_of(own: list[CandidateEntry], offered: Iterable[Offer]) -> Lists:
    """The lists of a search from what is offered."""
    entitled: list[CandidateEntry] = []
    others: list[CandidateEntry] = []
    commons: dict[Queue, Node] = {}
    by_usage = False
    for other, cohort, owed, found in offered:
        by_usage = by_usage or other.lanes is not None
        commons[other] = cohort
        (entitled if owed else others).extend(found)
    if len(commons) > 1:
        for candidates in (entitled, others):
            candidates.sort()
            if by_usage:
                used_most_first(candidates)
    return Lists(entitled, others, own, commons)


def way_to(node: Node, common: Node, contested: Collection[FlavorResource]) -> list[list[Cell]]:
    """The contested cells of the node and its cohorts below the common one."""
    way: list[list[Cell]] = []
    here: Node | None = node
    while here is not None and here is not common:
        way.append([cell for fr in contested if (cell := here.cells.get(fr)) is not None])
        here = here.parent
    return way


def used_most_first(candidates: list[CandidateEntry]) -> None:
    """Usage only counts among those of one queue: the places that they have in the order of all
    are theirs, and there those of LocalQueues that used more come first."""
    places: dict[Queue, list[int]] = {}
    for at, entry in enumerate(candidates):
        held = entry[4].charge
        if held is not None and held.queue.lanes is not None:
            places.setdefault(held.queue, []).append(at)
    for queue, found in places.items():
        assert queue.lanes is not None
        of = [candidates[at] for at in found]
        for at, entry in zip(found, queue.lanes.used_most_first(of), strict=True):
            candidates[at] = entry


def _above(amounts: list[tuple[Cell, int]]) -> list[tuple[Cell, int]]:
    """What of the amounts has to come from the parents."""
    return [
        (cell.parent, max(0, amount - cell.local_free()))
        for cell, amount in amounts
        if cell.parent is not None
    ]
