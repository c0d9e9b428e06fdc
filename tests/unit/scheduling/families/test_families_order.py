"""Where variants stand in a queue: where their parent would, side by side, the best first."""

from __future__ import annotations

import pytest

from admittance.events.requests import PendingQuery, Queues
from support.cores.family_story import FamilyStory, full
from support.cores.scheduling_story import groups


def test_siblings_are_adjacent_in_the_queue_best_first() -> None:
    story = FamilyStory()
    story.families()
    full(story)
    story.family("uid-b")
    story.submit("c", "cq")
    story.family("a")
    story.submit("b", "cq")
    story.family("d")
    assert story.tried() == [
        *("a-best", "a-mid", "a-worst"),
        "b",
        "c",
        *("d-best", "d-mid", "d-worst"),
        *("uid-b-best", "uid-b-mid", "uid-b-worst"),
    ]


def test_a_swap_of_the_queues_flavors_swaps_siblings() -> None:
    story = FamilyStory()
    story.families()
    full(story)
    story.family("a")
    story.families(flavors={"worst": "4", "best": "4", "mid": "4"})
    assert story.tried() == ["a-worst", "a-best", "a-mid"]
    story.finish("r-best")
    story.finish("r-worst")
    assert story.settle()[0] == "a-worst"


def test_variants_go_by_the_age_of_their_parent() -> None:
    story = FamilyStory()
    story.families()
    full(story)
    story.family("young", age=5)
    story.family("old", age=50)
    story.submit("between", "cq", age=20)
    assert story.tried() == [
        *("old-best", "old-mid", "old-worst"),
        "between",
        *("young-best", "young-mid", "young-worst"),
    ]


@pytest.mark.parametrize("parent_first", [True, False])
def test_family_members_are_linked_in_any_order_of_arrival(parent_first: bool) -> None:
    story = FamilyStory()
    story.families()
    full(story)
    story.submit("other", "cq", age=10)
    story.family("a", age=20, parent_first=parent_first)
    assert story.tried() == ["a-best", "a-mid", "a-worst", "other"]
    story.finish("r-mid")
    assert "a-mid" in story.settle()


def test_a_variant_without_its_parent_is_never_tried() -> None:
    story = FamilyStory()
    story.follows = False
    story.families()
    story.family("a")
    story.gone("a")
    assert story.settle() == []
    story._put_parent("a", "cq", "4", 0, 0)
    assert story.settle()[0] == "a-best"


def test_a_family_counts_as_one_that_waits() -> None:
    story = FamilyStory()
    story.families()
    full(story)
    story.family("a", age=30)
    story.submit("r", "cq", age=20)
    story.family("b", age=10)
    story.settle()
    (status,) = story.core.queues(Queues(cluster_queue="cq")).cluster_queues
    assert (status.pending, status.parked, status.reserving, status.admitted) == (3, 3, 3, 3)
    (local,) = story.core.queues(Queues(local_queues=True)).local_queues
    assert (local.pending, local.parked, local.admitted) == (3, 3, 3)
    rows = story.core.pending(PendingQuery()).rows
    assert [(row.name, row.position) for row in rows] == [("a", 1), ("r", 2), ("b", 3)]
    assert story.core.pending(PendingQuery(skip=1, limit=1)).rows[0].name == "r"
    assert story.core.pending(PendingQuery()).total == 3
    assert story.core.pending(PendingQuery(local_queue="cq"), "ns").rows == rows
    assert [story.why(one).position for one in ("a", "a-mid", "r", "b", "b-worst")] == [
        1,
        1,
        2,
        3,
        3,
    ]


def test_an_admitted_family_counts_as_running_while_variants_wait() -> None:
    story = FamilyStory()
    story.families(checks={"best": ["slow"]})
    story.check("slow")
    full(story, best="4")
    story.family("a")
    story.settle()
    story.finish("r-best")
    story.settle()
    assert story.admitted("a") == "mid"
    assert story.admission("a-best") is not None
    (status,) = story.core.queues(Queues(cluster_queue="cq")).cluster_queues
    assert (status.pending, status.reserving, status.admitted) == (0, 1, 1)
    assert story.core.pending(PendingQuery()).rows == ()


def test_a_row_of_a_family_lists_every_variant() -> None:
    story = FamilyStory()
    story.families()
    full(story)
    story.family("a")
    story.settle()
    (row,) = story.core.pending(PendingQuery()).rows
    assert row.reason == "WaitingForQuota"
    assert [one.split(":")[0] for one in row.message.split("; ")] == ["best", "mid", "worst"]
    assert row.flavors == ("best", "mid", "worst")


def test_parents_in_a_local_queue_without_target_wait_there_once() -> None:
    story = FamilyStory()
    story.families()
    story.family("a")
    story.delete("ClusterQueue", "cq")
    rows = story.core.pending(PendingQuery()).rows
    assert [(row.name, row.position) for row in rows] == [("a", 0)]
    story.families()
    assert "a-best" in story.settle()


def test_the_family_with_the_older_parent_goes_first() -> None:
    story = FamilyStory()
    story.families("one", cohort="c", flavors={"best": "0"})
    story.families("two", cohort="c", flavors={"best": "0"})
    story.put("Cohort", "c", {"resourceGroups": groups(best="4")})
    story.family("young", "one", age=1)
    story.family("old", "two", age=2)
    assert story.cycle() == ["old-best"]
