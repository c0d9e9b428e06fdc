"""Variants stand in a queue at the place of their parent, side by side, the best first."""

from __future__ import annotations

import pytest

from admittance.events.requests.queues import PendingQuery, Queues
from support.cores.families.family_scheduler import FamilyScheduler, full
from support.cores.stepped_scheduler import groups


def test_a_variant_has_the_place_of_its_parent_among_all_workloads() -> None:
    """The variant was created a second after its parent, and the regular workload between them."""
    scheduler = FamilyScheduler()
    scheduler.family_queue(flavors={"best": "4"})
    scheduler.submit("w", "cq", "4", age=99.5)
    scheduler.family("a", age=100)
    assert scheduler.settle() == ["a-best"]


def test_a_worse_variant_has_its_turn_when_the_better_one_is_deleted() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(
        flavors={"best": "4", "mid": "4"}, preemption={"withinClusterQueue": "LowerPriority"}
    )
    scheduler.submit("r", "cq", "4", priority=-1)
    scheduler.settle()
    scheduler.family("a")
    assert scheduler.settle() == [], "the better variant needs preemption and is tried first"
    scheduler.gone("a-best")
    assert scheduler.settle() == ["a-mid"]


@pytest.mark.scenario("D26")
def test_siblings_are_adjacent_in_the_queue_best_first() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    full(scheduler)
    scheduler.family("uid-b")
    scheduler.submit("c", "cq")
    scheduler.family("a")
    scheduler.submit("b", "cq")
    scheduler.family("d")
    assert scheduler.tried() == [
        *("a-best", "a-mid", "a-worst"),
        "b",
        "c",
        *("d-best", "d-mid", "d-worst"),
        *("uid-b-best", "uid-b-mid", "uid-b-worst"),
    ]


@pytest.mark.scenario("D26")
def test_a_swap_of_the_queues_flavors_swaps_siblings() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    full(scheduler)
    scheduler.family("a")
    scheduler.family_queue(flavors={"worst": "4", "best": "4", "mid": "4"})
    assert scheduler.tried() == ["a-worst", "a-best", "a-mid"]
    scheduler.finish("r-best")
    scheduler.finish("r-worst")
    assert scheduler.settle()[0] == "a-worst"


def test_a_variant_without_its_parent_is_never_tried() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    scheduler.family("a")
    scheduler.gone("a")
    assert scheduler.settle() == []
    scheduler._put_parent("a", "cq", [(1, {"cpu": "4"})], 0, 0)
    assert scheduler.settle()[0] == "a-best"


def test_a_family_counts_as_one_that_waits() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    full(scheduler)
    scheduler.family("a", age=30)
    scheduler.submit("r", "cq", age=20)
    scheduler.family("b", age=10)
    scheduler.settle()
    (status,) = scheduler.core.queues(Queues(cluster_queue="cq")).cluster_queues
    assert (status.pending, status.parked, status.reserving, status.admitted) == (3, 3, 3, 3)
    (local,) = scheduler.core.queues(Queues(local_queues=True)).local_queues
    assert (local.pending, local.parked, local.admitted) == (3, 3, 3)
    rows = scheduler.core.pending(PendingQuery()).rows
    assert [(row.name, row.position) for row in rows] == [("a", 1), ("r", 2), ("b", 3)]
    assert scheduler.core.pending(PendingQuery(skip=1, limit=1)).rows[0].name == "r"
    assert scheduler.core.pending(PendingQuery()).total == 3
    assert scheduler.core.pending(PendingQuery(local_queue="cq"), "ns").rows == rows
    assert [scheduler.why(name).position for name in ("a", "a-mid", "r", "b", "b-worst")] == [
        1,
        1,
        2,
        3,
        3,
    ]


def test_parents_in_a_local_queue_without_target_wait_there_once() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    scheduler.family("a")
    scheduler.delete("ClusterQueue", "cq")
    rows = scheduler.core.pending(PendingQuery()).rows
    assert [(row.name, row.position) for row in rows] == [("a", 0)]
    scheduler.family_queue()
    assert "a-best" in scheduler.settle()


def test_the_family_with_the_older_parent_goes_first() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue("one", cohort="c", flavors={"best": "0"})
    scheduler.family_queue("two", cohort="c", flavors={"best": "0"})
    scheduler.put("Cohort", "c", {"resourceGroups": groups(best="4")})
    scheduler.family("young", "one", age=1)
    scheduler.family("old", "two", age=2)
    assert scheduler.cycle() == ["old-best"]
