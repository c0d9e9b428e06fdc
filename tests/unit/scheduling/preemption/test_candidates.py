"""Which workloads may be preempted, and in which order: by direct calls."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.quota.cell import Quota
from admittance.quota.tree import Tree
from admittance.scheduling.preemption.candidates import (
    CandidateLists,
    allows,
    borrowing_queues_below,
    candidate_lists,
    candidates_in_cohort,
    candidates_of,
    is_entitled,
    is_over_any,
    leaving_candidates,
    leaving_first,
    path_below,
)
from admittance.scheduling.state.equivalence import RefusalQueue
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import Queue
from support.cores.three_queues import (
    ACTIVE,
    CPU,
    GPU,
    STOPPED,
    ThreeQueues,
    preemptor,
)


def names(entries: Any) -> list[str]:
    return [entry[4].key[1] for entry in entries]


# One queue. ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        ("Never", []),
        ("LowerPriority", ["lower"]),
        ("LowerOrNewerEqualPriority", ["lower", "newer"]),
        ("Any", ["lower", "newer", "same", "older", "higher"]),
    ],
)
def test_a_policy_allows_by_priority_and_then_by_age(policy: str, allowed: list[str]) -> None:
    town = ThreeQueues()
    for name, priority, age in (
        ("higher", 2, 1), ("older", 1, 99), ("same", 1, 50), ("newer", 1, 1), ("lower", 0, 99)
    ):  # fmt: skip
        town.holds(name, "here", 1, priority=priority, age=age)
    mine = preemptor()
    found = candidates_of(town.queues["here"], policy, mine, [CPU])
    assert names(found) == allowed
    every = candidates_of(town.queues["here"], "Any", mine, [CPU])
    assert [entry[4].key[1] for entry in every if allows(policy, mine, entry[4])] == allowed


def test_candidates_are_ordered_by_priority_and_newest_reservation() -> None:
    town = ThreeQueues()
    for name, priority, age in (("a", 1, 1), ("b", 0, 1), ("c", 0, 2), ("d", 0, 1)):
        town.holds(name, "here", 1, priority=priority, age=age)
    assert names(candidates_of(town.queues["here"], "Any", preemptor(), [CPU])) == [
        "b", "d", "c", "a",
    ]  # fmt: skip


def test_candidates_hold_a_contested_flavor_even_nothing_of_it() -> None:
    town = ThreeQueues()
    town.holds("cpu", "here", 1)
    town.holds("none", "here", 0)
    town.holds("gpu", "here", 1, fr=GPU)
    here, mine = town.queues["here"], preemptor()
    assert names(candidates_of(here, "Any", mine, [CPU])) == ["cpu", "none"]
    assert names(candidates_of(here, "Any", mine, [GPU])) == ["gpu"]
    assert names(candidates_of(here, "Any", mine, [CPU, GPU])) == ["cpu", "gpu", "none"]
    assert names(candidates_of(here, "Any", mine, [("spot", "cpu")])) == []
    assert names(candidates_of(here, "Any", mine, [CPU, ("spot", "cpu")])) == ["cpu", "none"]
    cpu = next(entry[4] for entry in here.candidates if entry[4].uid == "cpu")
    assert names(candidates_of(here, "Any", mine, [CPU], {cpu})) == ["none"]
    here.node = None
    assert candidates_of(here, "Any", mine, [CPU]) == []


def test_known_candidates_are_searched_anew_when_the_domain_changes() -> None:
    town = ThreeQueues()
    town.holds("first", "here", 1)
    here, mine = town.queues["here"], preemptor()
    assert names(candidates_of(here, "Any", mine, [CPU])) == ["first"]
    assert names(candidates_of(here, "Any", mine, [GPU])) == []
    town.holds("second", "here", 1, fr=GPU)
    assert names(candidates_of(here, "Any", mine, [GPU])) == ["second"]
    town.holds("third", "here", 1)
    assert names(candidates_of(here, "Any", mine, [CPU])) == ["first", "third"]
    here.domain = None
    here.candidates.clear()
    town.holds("alone", "here", 1)
    assert names(candidates_of(here, "Any", mine, [CPU])) == ["alone"]


def test_workloads_that_leave_come_first() -> None:
    town = ThreeQueues()
    for name in "abcde":
        town.holds(name, "here", 1)
    a, b, c, d, e = (entry[4] for entry in town.queues["here"].candidates)
    b.state = "Evicting"
    d.in_flight = InFlight.PREEMPTED
    e.in_flight = InFlight.MIGRATED
    c.in_flight = InFlight.PLANNED
    ranked = list(town.queues["here"].candidates)
    assert names(leaving_candidates(ranked)) == ["b", "d", "e"]
    assert names(leaving_first(ranked)) == ["b", "d", "e", "a", "c"]
    assert a.is_leaving is False


# The cohort. --------------------------------------------------------------------------------


def found_in_cohort(
    town: ThreeQueues, need: int, fr: Any = CPU, **more: Any
) -> list[tuple[str, bool]]:
    """The queues with candidates and whether they owe quota, for a workload of ``here``."""
    cell = town.cell("here", fr)
    found = candidates_in_cohort(
        town.queues, town.queues["here"], preemptor(), {cell: need}, [fr], more.get("gone", ())
    )
    return [(other.queue.name, other.owed) for other in found]


@pytest.mark.parametrize(
    ("used", "need", "found"),
    [
        pytest.param({"near": 2}, 1, [], id="within nominal"),
        pytest.param({"near": 3}, 1, [("near", True)], id="it borrows, and the need is nominal"),
        pytest.param({"near": 3}, 3, [("near", False)], id="the need is above nominal"),
        pytest.param({"far": 3}, 3, [("far", True)], id="the cohort left has enough of its own"),
        pytest.param({"far": 3}, 5, [("far", False)], id="the need is above that of the cohort"),
        pytest.param(
            {"near": 3, "far": 3}, 2, [("near", True), ("far", True)], id="the nearest first"
        ),
        pytest.param({"here": 3, "near": 3}, 1, [("near", False)], id="it borrows itself"),
    ],
)
def test_queues_that_borrow_have_candidates(
    used: dict[str, int], need: int, found: list[tuple[str, bool]]
) -> None:
    town = ThreeQueues(reclaim="Any")
    for name, amount in used.items():
        town.holds(name, name, amount)
    assert found_in_cohort(town, need) == found


def test_only_queues_that_may_be_preempted_are_asked() -> None:
    town = ThreeQueues(reclaim="LowerPriority")
    low = town.holds("low", "near", 3)
    town.holds("high", "far", 3, priority=1)
    assert found_in_cohort(town, 1) == [("near", True)], "the other one has no lower priority"
    assert found_in_cohort(town, 1, gone={low}) == []
    assert found_in_cohort(town, 1, fr=GPU) == []
    town.queues["near"].activity = STOPPED
    assert found_in_cohort(town, 1) == []
    town.queues["near"].activity = ACTIVE
    del town.queues["near"]
    assert found_in_cohort(town, 1) == []
    never = ThreeQueues(reclaim="Never")
    never.holds("low", "near", 3)
    assert found_in_cohort(never, 1) == []


@pytest.mark.parametrize(
    ("need", "borrowed", "expected"), [(2, 0, True), (3, 0, True), (4, 0, True), (5, 0, False),
                                       (3, 2, False), (2, 2, True)],
)  # fmt: skip
def test_a_cohort_with_enough_of_its_own_is_entitled(
    need: int, borrowed: int, expected: bool
) -> None:
    town = ThreeQueues()
    town.holds("near", "near", borrowed)
    assert is_entitled(town.queues["here"], {town.cell("here"): need}) is expected


def test_a_queue_alone_is_entitled_to_nothing() -> None:
    node = Tree().set_queue("alone", "", {CPU: Quota(2)})
    queue = Queue("alone", RefusalQueue(), node=node)
    assert not is_entitled(queue, {node.cell(CPU): 1})


def test_queues_below_a_cohort_are_asked_while_each_cohort_borrows() -> None:
    town = ThreeQueues()
    town.holds("far", "far", 3)
    root = town.node("far").root()
    left = town.node("here").parent
    assert left is not None
    found = [node.name for node in borrowing_queues_below(root, left, [CPU])]
    assert found == ["far"]
    right = town.node("far").parent
    assert right is not None
    assert list(borrowing_queues_below(root, right, [CPU])) == [], "left borrows nothing"
    assert [node.name for node in borrowing_queues_below(right, town.node("here"), [CPU])] == [
        "far"
    ]
    assert list(borrowing_queues_below(right, town.node("far"), [CPU])) == []
    assert list(borrowing_queues_below(root, left, [GPU])) == []
    assert (is_over_any(town.node("far"), [GPU, CPU]), is_over_any(town.node("far"), [GPU])) == (
        True, False,
    )  # fmt: skip
    assert not is_over_any(town.node("far"), [("spot", "cpu")])


def test_the_way_to_a_cohort_has_the_cells_below_it() -> None:
    town = ThreeQueues()
    node = town.node("far")
    root = node.root()
    assert node.parent is not None
    way = path_below(node, root, [CPU, ("spot", "cpu")])
    assert way == [[node.cells[CPU]], [node.parent.cells[CPU]]]
    assert path_below(root, root, [CPU]) == []
    assert len(path_below(node, town.node("here"), [CPU])) == 3, "it is on no way, up to the root"


# Lists. -------------------------------------------------------------------------------------


def test_lists_of_several_queues_are_sorted_together() -> None:
    town = ThreeQueues(reclaim="Any")
    town.holds("near-1", "near", 1, priority=1)
    town.holds("near-0", "near", 2)
    town.holds("far-2", "far", 1, priority=2)
    town.holds("far-0", "far", 2, age=9)
    own = town.holds("own", "here", 0, priority=-1)
    offered = list(
        candidates_in_cohort(
            town.queues, town.queues["here"], preemptor(), {town.cell("here"): 3}, [CPU], ()
        )
    )
    lists = candidate_lists([own.candidate] if own.candidate else [], offered)
    assert names(lists.own) == ["own"]
    assert names(lists.entitled) == []
    assert names(lists.others) == ["near-0", "far-0", "near-1", "far-2"]
    assert {queue.name: cohort.name for queue, cohort in lists.commons.items()} == {
        "near": "left", "far": "root",
    }  # fmt: skip
    assert candidate_lists([], []) == CandidateLists([], [], [], {})


def test_candidates_that_leave_come_before_all_that_stay() -> None:
    town = ThreeQueues()
    entries = {}
    for name, queue in (("e", "far"), ("e-going", "far"), ("o", "near"), ("o-going", "near"),
                        ("w", "here"), ("w-going", "here")):  # fmt: skip
        workload = town.holds(name, queue, 1)
        if name.endswith("going"):
            workload.state = "Evicting"
        entries[name] = workload.candidate
    lists = CandidateLists(
        [entries["e"], entries["e-going"]], [entries["o"], entries["o-going"]],  # type: ignore[list-item]
        [entries["w"], entries["w-going"]], {},  # type: ignore[list-item]
    )  # fmt: skip
    assert [(names(ranked), elsewhere, owed) for ranked, elsewhere, owed in lists.in_order()] == [
        (["e-going"], True, True),
        (["o-going"], True, False),
        (["w-going"], False, False),
        (["e"], True, True),
        (["o"], True, False),
        (["w"], False, False),
    ]


def test_all_amounts_must_be_there_for_a_right_to_them() -> None:
    town = ThreeQueues(reclaim="Any")
    town.holds("far", "far", 3)
    here = town.queues["here"]
    for gpu, expected in ((2, True), (4, True), (5, False)):
        need = {town.cell("here"): 2, town.cell("here", GPU): gpu}
        assert is_entitled(here, need) is expected
        found = candidates_in_cohort(town.queues, here, preemptor(), need, [CPU], ())
        assert [(other.queue.name, other.owed) for other in found] == [("far", expected)]


def test_quota_that_a_queue_does_not_lend_is_not_asked_of_its_cohort() -> None:
    tree = Tree()
    tree.set_cohort("root", "", {CPU: Quota(9)})
    tree.set_cohort("left", "root", {CPU: Quota(1)})
    node = tree.set_queue("here", "left", {CPU: Quota(3, None, 1)})
    queue = Queue("here", RefusalQueue(), node=node)
    cell = node.cell(CPU)
    assert is_entitled(queue, {cell: 4}), "two of its own, and two of the cohort left"
    assert not is_entitled(queue, {cell: 5})
    cell.charge(1)
    assert is_entitled(queue, {cell: 3})
    assert not is_entitled(queue, {cell: 4})


class LargestFirst:
    """Lanes in which workloads come by their names, the last one first."""

    def used_most_first(self, found: list[Any]) -> list[Any]:
        return sorted(found, key=lambda entry: entry[3], reverse=True)


def test_with_usages_of_local_queues_the_candidates_of_a_queue_change_places() -> None:
    town = ThreeQueues(reclaim="Any")
    for name, queue, priority in (
        ("a", "near", 0), ("b", "far", 1), ("c", "near", 2), ("d", "far", 3)
    ):  # fmt: skip
        town.holds(name, queue, 2, priority=priority)

    def offered() -> list[str]:
        found = candidates_in_cohort(
            town.queues, town.queues["here"], preemptor(), {town.cell("here"): 3}, [CPU], ()
        )
        return names(candidate_lists([], found).others)

    assert offered() == ["a", "b", "c", "d"]
    lanes: Any = LargestFirst()
    town.queues["near"].lanes = lanes
    assert names(candidates_of(town.queues["near"], "Any", preemptor(), [CPU])) == ["c", "a"]
    assert offered() == ["c", "b", "a", "d"], "those of the queue far keep theirs"
    town.queues["far"].lanes = lanes
    assert offered() == ["c", "d", "a", "b"]


def test_the_candidates_of_one_queue_keep_their_order() -> None:
    town = ThreeQueues(reclaim="Any")
    town.holds("a", "near", 2)
    town.holds("c", "near", 2)
    lanes: Any = LargestFirst()
    town.queues["near"].lanes = lanes
    found = candidates_in_cohort(
        town.queues, town.queues["here"], preemptor(), {town.cell("here"): 3}, [CPU], ()
    )
    assert names(candidate_lists([], found).others) == ["c", "a"]
