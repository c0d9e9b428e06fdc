"""The search for victims without fair sharing: by direct calls, with three queues of 2 cpu and 2
gpu."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import reasons
from admittance.scheduling.preemption.classical import search
from support.cores.three_queues import CPU, GPU, ThreeQueues, preemptor

OWN = reasons.IN_CLUSTER_QUEUE
RECLAIM = reasons.IN_COHORT_RECLAMATION
BORROW = reasons.IN_COHORT_RECLAIM_WHILE_BORROWING
LOWER: dict[str, Any] = {"within": "LowerPriority", "reclaim": "LowerPriority"}
ANY: dict[str, Any] = {"within": "LowerPriority", "reclaim": "Any"}
BORROWS: dict[str, Any] = {**ANY, "borrow": True}

Holding = tuple[str, int, int]
"""Queue, cpu and priority of a workload, which is named by its queue and its place."""


def victims(
    holdings: list[Holding], need: int, policy: dict[str, Any], *, priority: int = 1,
    leaving: tuple[str, ...] = (), gpu: int = 0, gone: tuple[str, ...] = (),
) -> dict[str, str]:  # fmt: skip
    """The victims for a workload of the queue ``here``, each with its rule."""
    town = ThreeQueues(**policy)
    known = {}
    for number, (queue, amount, rank) in enumerate(holdings):
        name = f"{queue}-{number}"
        known[name] = town.holds(name, queue, amount, priority=rank, age=50 - number)
        if name in leaving:
            known[name].state = "Evicting"
    wanted = {town.cell("here"): need}
    if gpu:
        wanted[town.cell("here", GPU)] = gpu
    before = [town.cell(name).usage for name in town.queues]
    found = search(
        town.queues, town.queues["here"], preemptor(priority), wanted, [CPU],
        {known[name] for name in gone},
    )  # fmt: skip
    assert [town.cell(name).usage for name in town.queues] == before, "usage is restored"
    return {victim.workload.key[1]: victim.reason for victim in found}


FULL: list[Holding] = [("near", 2, 0), ("near", 2, 0), ("far", 2, 0)]


@pytest.mark.parametrize(
    ("holdings", "need", "policy", "more", "found"),
    [
        pytest.param([("here", 2, 0), ("near", 2, 0), ("far", 2, 0)], 1, ANY, {},
                     {"here-0": OWN}, id="of its own queue"),
        pytest.param([("here", 2, 1), ("near", 2, 0), ("far", 2, 0)], 1, ANY, {}, {},
                     id="the others use no more than their quota"),
        pytest.param(FULL, 2, ANY, {}, {"near-1": RECLAIM}, id="the newest that borrows"),
        pytest.param(FULL, 2, ANY, {"gone": ("near-1",)}, {"near-0": RECLAIM},
                     id="another one in place of a victim of another workload"),
        pytest.param(FULL, 2, ANY, {"leaving": ("near-0",)}, {"near-0": RECLAIM},
                     id="the one that leaves already"),
        pytest.param([("near", 2, 5), ("near", 2, 0), ("far", 2, 0)], 2, ANY, {},
                     {"near-1": RECLAIM}, id="the lowest priority"),
        pytest.param([("near", 4, 5), ("far", 2, 0)], 2, ANY, {}, {"near-0": RECLAIM},
                     id="Any takes a higher priority"),
        pytest.param([("near", 4, 5), ("far", 2, 0)], 2, LOWER, {}, {},
                     id="LowerPriority takes no higher priority"),
        pytest.param([("near", 2, 0)], 3, ANY, {}, {}, id="nothing is short"),
        # More than nominal.
        pytest.param([("near", 3, 0), ("far", 3, 0)], 3, ANY, {}, {},
                     id="above nominal without borrowWithinCohort"),
        pytest.param([("near", 3, 0), ("far", 3, 0)], 3, BORROWS, {}, {"far-1": BORROW},
                     id="above nominal with it"),
        pytest.param([("near", 3, 1), ("far", 3, 0)], 3, BORROWS, {}, {"far-1": BORROW},
                     id="an equal priority is not preempted while borrowing"),
        pytest.param([("near", 3, 1), ("far", 3, 1)], 3, BORROWS, {}, {},
                     id="nor are two of them"),
        pytest.param([("near", 3, 0), ("far", 3, -1)], 3, {**BORROWS, "threshold": 0}, {},
                     {"far-1": BORROW}, id="up to the threshold, the lowest first"),
        pytest.param([("near", 3, 0), ("far", 2, 0)], 3, {**BORROWS, "threshold": 0}, {},
                     {"near-0": BORROW}, id="exactly at the threshold"),
        pytest.param([("near", 3, 0), ("far", 2, 0)], 3, {**BORROWS, "threshold": -1}, {}, {},
                     id="above the threshold"),
        # Its own queue must give first.
        pytest.param([("here", 1, 0), ("near", 3, 0), ("far", 2, 0)], 2, ANY, {},
                     {"near-1": RECLAIM, "here-0": OWN}, id="within nominal with its own victim"),
        pytest.param([("here", 1, 1), ("near", 3, 0), ("far", 2, 0)], 2, ANY, {}, {},
                     id="its own queue gives nothing"),
        pytest.param([("here", 1, 0), ("near", 3, 0), ("far", 1, 0)], 2, ANY, {},
                     {"here-0": OWN}, id="its own victim is enough"),
        pytest.param([("here", 1, 0), ("near", 3, 0), ("far", 2, 0)], 2, ANY,
                     {"leaving": ("here-0",)}, {"near-1": RECLAIM, "here-0": OWN},
                     id="its own victim leaves already"),
        pytest.param([("here", 1, 0), ("here", 1, 0), ("near", 4, 0)], 2, ANY, {},
                     {"here-1": OWN, "here-0": OWN}, id="its queue is full, so it gives alone"),
        pytest.param([("here", 2, 0), ("near", 3, 0), ("far", 1, 0)], 2, BORROWS, {},
                     {"near-1": BORROW}, id="while borrowing others go first"),
        # Entitled cohorts.
        pytest.param([("here", 1, 1), ("far", 5, 5)], 3, ANY, {}, {"far-1": RECLAIM},
                     id="its cohort has the quota, and a queue outside of it borrows"),
        pytest.param([("here", 1, 1), ("near", 1, 0), ("far", 4, 0)], 3, ANY, {}, {},
                     id="its cohort has less than that"),
        pytest.param([("near", 3, 0), ("far", 3, 0)], 2, ANY, {}, {"far-1": RECLAIM},
                     id="both borrow"),
        # Several resources.
        pytest.param(FULL, 2, ANY, {"gpu": 2}, {"near-1": RECLAIM}, id="another resource is free"),
        pytest.param(FULL, 2, ANY, {"gpu": 7}, {}, id="another resource is not there"),
    ],
)  # fmt: skip
def test_the_fewest_victims_are_found_by_the_rules(
    holdings: list[Holding],
    need: int,
    policy: dict[str, Any],
    more: dict[str, Any],
    found: dict[str, str],
) -> None:
    assert victims(holdings, need, policy, **more) == found


def test_a_queue_gives_only_while_it_borrows() -> None:
    held: list[Holding] = [("near", 1, 0), ("near", 1, 0), ("near", 1, 0), ("far", 3, 0)]
    assert victims(held, 2, ANY) == {"far-3": RECLAIM}
    held = [("near", 1, 0), ("near", 1, 0), ("near", 1, 0), ("far", 1, 0), ("far", 2, 9)]
    assert victims(held, 2, ANY) == {"near-2": RECLAIM, "far-3": RECLAIM}, "one of each"
    assert victims(held, 3, BORROWS) == {}, "near keeps two, and far keeps two"
