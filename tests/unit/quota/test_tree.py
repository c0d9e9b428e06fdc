"""Quota in cohort trees: docs/spec/scheduling.md#2, and the edge cases 1 to 4 of its section 9."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from admittance.quota.cell import (
    LOWEST,
    UNLIMITED,
    Cell,
    Quota,
    available,
    borrow_level,
    minus,
    plus,
    potential,
    times,
)
from admittance.quota.tree import Tree

FR = ("default", "cpu")
OTHER = ("spot", "cpu")


def cell(tree: Tree, queue: str) -> Cell:
    return tree.queues[queue].cell(FR)


def quota(nominal: int, borrow: int | None = None, lend: int | None = None) -> dict[
    tuple[str, str], Quota
]:  # fmt: skip
    return {FR: Quota(nominal, borrow, lend)}


def case_1() -> Tree:
    tree = Tree()
    tree.set_cohort("co", "", quota(10))
    tree.set_queue("a", "co", quota(10))
    tree.set_queue("b", "co", quota(10, borrow=2))
    tree.set_queue("c", "co", quota(10, lend=5))
    for name, usage in (("a", 20), ("b", 10), ("c", 6)):
        cell(tree, name).charge(usage)
    return tree


def case_2() -> Tree:
    tree = Tree()
    tree.set_cohort("root", "", {})
    tree.set_cohort("left", "root", quota(10))
    tree.set_cohort("right", "root", quota(10))
    tree.set_queue("a", "left", quota(10))
    tree.set_queue("b", "right", quota(10, lend=0))
    cell(tree, "a").charge(10)
    cell(tree, "b").charge(5)
    return tree


def case_3() -> Tree:
    tree = Tree()
    tree.set_cohort("co", "", quota(10))
    tree.set_queue("a", "co", quota(10))
    tree.set_queue("b", "co", quota(10, borrow=0, lend=0))
    cell(tree, "a").charge(31)
    return tree


def case_4() -> Tree:
    tree = Tree()
    tree.set_cohort("root", "", {})
    tree.set_cohort("left", "root", quota(10, borrow=5))
    tree.set_cohort("right", "root", quota(10))
    tree.set_queue("a", "left", quota(10))
    tree.set_queue("b", "left", quota(10, borrow=5))
    tree.set_queue("c", "right", quota(10))
    return tree


@pytest.mark.parametrize(
    ("build", "now", "most"),
    [
        pytest.param(
            case_1, {"a": 4, "b": 2, "c": 4}, {"a": 35, "b": 12, "c": 40},
            id="1 limits on borrowing and lending below a cohort with own quota",
        ),
        pytest.param(
            case_2, {"a": 20, "b": 25}, {"a": 30, "b": 40},
            id="2 a queue that lends nothing keeps its own on top of what others have",
        ),
        pytest.param(
            case_3, {"a": -11, "b": -1}, {},
            id="3 the debt of a tree eats into private capacity",
        ),
        pytest.param(
            case_4, {"a": 35, "b": 15, "c": 50}, {},
            id="4 a limit on a cohort binds the queues below it",
        ),
    ],
)  # fmt: skip
def test_available_and_potential(
    build: Callable[[], Tree], now: Mapping[str, int], most: Mapping[str, int]
) -> None:
    tree = build()
    assert {name: available(cell(tree, name)) for name in now} == now
    assert {name: potential(cell(tree, name)) for name in most} == most


@pytest.mark.parametrize("build", [case_1, case_2, case_3, case_4])
def test_charging_and_taking_away_are_exact_inverses(build: Callable[[], Tree]) -> None:
    tree = build()
    cells = [c for n in (*tree.queues.values(), *tree.cohorts.values()) for c in n.cells.values()]
    before = [c.usage for c in cells]
    names = list(tree.queues)
    for n, amount in enumerate((7, 13, 1, 40)):
        cell(tree, names[n % len(names)]).charge(amount)
    for n, amount in enumerate((7, 13, 1, 40)):
        cell(tree, names[n % len(names)]).charge(-amount)
    assert [c.usage for c in cells] == before


def test_a_level_says_how_far_up_the_tree_one_must_go() -> None:
    tree = case_4()
    assert borrow_level(cell(tree, "a"), 10) == (0, True)
    assert borrow_level(cell(tree, "a"), 30) == (1, True)
    assert borrow_level(cell(tree, "a"), 31) == (2, False)
    tree.set_queue("alone", "", quota(10))
    assert borrow_level(cell(tree, "alone"), 99) == (0, False)


def test_a_level_counts_the_guaranteed_quota_of_the_queue_once() -> None:
    tree = Tree()
    tree.set_cohort("co", "root", {})
    tree.set_queue("a", "co", quota(10, lend=0))
    tree.set_queue("b", "co", quota(5))
    cell(tree, "a").charge(6)
    assert borrow_level(cell(tree, "a"), 4) == (0, True)
    assert borrow_level(cell(tree, "a"), 9) == (1, True)
    assert borrow_level(cell(tree, "a"), 10) == (2, False)
    tree.set_cohort("root", "top", quota(5))
    tree.set_cohort("co", "root", quota(20, lend=0))
    assert borrow_level(cell(tree, "a"), 30) == (2, True), "co lends its 20 to no other cohort"


def test_inactive_queues_do_not_count_in_heights() -> None:
    tree = Tree()
    tree.set_queue("a", "co", quota(10))
    assert tree.cohorts["co"].height == 1
    tree.set_active("a", active=False)
    assert tree.cohorts["co"].height == 0
    tree.set_cohort("co", "root", {})
    assert tree.cohorts["root"].height == 1
    tree.set_active("a", active=True)
    assert tree.cohorts["root"].height == 2


def test_an_edit_moves_nothing_beside_its_path() -> None:
    tree = case_2()
    left, right = tree.cohorts["left"].cell(FR), tree.cohorts["right"].cell(FR)
    before = right.subtree
    tree.set_queue("a", "left", quota(25))
    assert (left.subtree, right.subtree) == (35, before)
    assert tree.cohorts["root"].cell(FR).subtree == 45


def test_a_queue_takes_its_usage_to_another_cohort() -> None:
    tree = case_2()
    tree.set_queue("a", "right", quota(10))
    assert tree.cohorts["left"].cell(FR).usage == 0
    assert tree.cohorts["right"].cell(FR).usage == 10


def test_cohorts_without_references_are_forgotten_with_their_flavors() -> None:
    tree = Tree()
    tree.set_queue("a", "co", {FR: Quota(1), OTHER: Quota(1)})
    tree.set_queue("b", "co", quota(1))
    tree.set_queue("a", "", {FR: Quota(1)})
    assert set(tree.cohorts["co"].cells) == {FR}
    tree.drop_queue("b")
    assert tree.cohorts == {}


def test_deleting_a_cohort_with_children_leaves_an_implicit_root() -> None:
    tree = case_2()
    tree.drop_cohort("left")
    assert tree.queues["a"].root().name == "left"
    assert available(cell(tree, "a")) == 0


@pytest.mark.parametrize("order", [("x", "y", "z"), ("z", "x", "y"), ("y", "z", "x")])
def test_a_cycle_is_found_and_mended_in_any_order_of_edits(order: tuple[str, ...]) -> None:
    tree = Tree()
    parents = {"x": "y", "y": "z", "z": "x"}
    tree.set_queue("q", "y", quota(10))
    for name in order:
        tree.set_cohort(name, parents[name], quota(1))
    assert tree.in_cycle(tree.queues["q"])
    assert tree.queues["q"].root().name == "x"
    tree.set_cohort("z", "", quota(1))
    assert not tree.in_cycle(tree.queues["q"])
    assert tree.queues["q"].root().name == "z"
    assert potential(cell(tree, "q")) == 13


def test_a_cohort_that_is_its_own_parent_is_a_cycle() -> None:
    tree = Tree()
    tree.set_cohort("x", "x", {})
    tree.set_queue("q", "x", quota(1))
    assert tree.in_cycle(tree.queues["q"])
    tree.drop_cohort("x")
    assert not tree.in_cycle(tree.queues["q"])


@pytest.mark.parametrize(
    ("got", "want"),
    [
        pytest.param(plus(UNLIMITED, 5), UNLIMITED, id="unlimited and anything is unlimited"),
        pytest.param(plus(UNLIMITED, -5), UNLIMITED, id="unlimited less a debt is unlimited"),
        pytest.param(minus(UNLIMITED, UNLIMITED), 0, id="unlimited less unlimited is nothing"),
        pytest.param(minus(5, UNLIMITED), LOWEST, id="a number less unlimited is the lowest"),
        pytest.param(minus(UNLIMITED, 5), UNLIMITED, id="unlimited less a number is unlimited"),
        pytest.param(times(2**62, 4), UNLIMITED, id="a product stops at 64 bits"),
    ],
)
def test_amounts_saturate(got: int, want: int) -> None:
    assert got == want


def test_unlimited_quota_stays_unlimited_at_any_usage() -> None:
    tree = Tree()
    tree.set_queue("a", "co", quota(UNLIMITED))
    tree.set_queue("b", "co", quota(5))
    cell(tree, "b").charge(1_000)
    assert available(cell(tree, "b")) == UNLIMITED
    tree.set_queue("a", "co", quota(10))
    assert available(cell(tree, "b")) == -985


# What follows from an edit. -----------------------------------------------------------------


def a_tree(left: int | None = None) -> Tree:
    """Queues a and b in the cohort left below root; ``left``: what the cohort lends."""
    tree = Tree()
    tree.set_cohort("root", "", {FR: Quota(1)})
    tree.set_cohort("left", "root", {FR: Quota(2, None, left)})
    for name in ("a", "b"):
        tree.set_queue(name, "left", {FR: Quota(3)})
    return tree


def at(tree: Tree, name: str) -> Cell:
    return (tree.queues.get(name) or tree.cohorts[name]).cells[FR]


def test_an_edit_moves_quota_and_spilled_usage_to_all_nodes_above() -> None:
    tree = a_tree()
    at(tree, "a").charge(5)
    tree.set_queue("a", "left", {FR: Quota(10, None, 4)})
    assert [at(tree, name).subtree for name in ("a", "left", "root")] == [10, 9, 10]
    assert [at(tree, name).usage for name in ("a", "left", "root")] == [5, 0, 0]
    tree.set_queue("a", "left", {FR: Quota(10, None, 8)})
    assert [at(tree, name).subtree for name in ("a", "left", "root")] == [10, 13, 14]
    assert [at(tree, name).usage for name in ("a", "left", "root")] == [5, 3, 3]
    tree.set_cohort("left", "root", {FR: Quota(0, None, 9)})
    assert [at(tree, name).subtree for name in ("left", "root")] == [11, 10]
    assert [at(tree, name).usage for name in ("left", "root")] == [3, 1]


def test_a_node_leaves_the_numbers_that_it_found() -> None:
    tree = a_tree(left=5)
    assert [at(tree, name).subtree for name in ("left", "root")] == [8, 6]
    at(tree, "a").charge(7)
    assert [at(tree, name).usage for name in ("left", "root")] == [7, 4]
    gone = tree.drop_queue("a")
    assert gone is not None and gone.parent is None
    assert [at(tree, name).subtree for name in ("left", "root")] == [5, 6]
    assert [at(tree, name).usage for name in ("left", "root")] == [0, 0]
    tree.drop_queue("b")
    assert [at(tree, name).subtree for name in ("left", "root")] == [2, 3]


@pytest.mark.parametrize(
    ("nominal", "lend", "guaranteed", "lent"),
    [
        (4, None, 0, 4),
        (4, 0, 4, 0),
        (4, 3, 1, 3),
        (4, 4, 0, 4),
        (4, 9, 0, 4),
        (0, 0, 0, 0),
        (UNLIMITED, None, 0, UNLIMITED),
        (UNLIMITED, 5, UNLIMITED, 0),
        (UNLIMITED, UNLIMITED, 0, UNLIMITED),
    ],
)
def test_what_is_not_lent_is_guaranteed(
    nominal: int, lend: int | None, guaranteed: int, lent: int
) -> None:
    cell = Tree().set_queue("cq", "co", {FR: Quota(nominal, None, lend)}).cells[FR]
    assert (cell.guaranteed, cell.lent()) == (guaranteed, lent)
    assert cell.parent is not None
    assert cell.parent.subtree == lent


def test_each_edit_raises_the_edition_of_its_root_alone() -> None:
    tree = a_tree()
    tree.set_queue("alone", "", {FR: Quota(1)})
    root, alone = tree.cohorts["root"], tree.queues["alone"]
    before = root.edition, alone.edition
    tree.set_queue("a", "left", {FR: Quota(4)})
    assert root.edition > before[0]
    assert alone.edition == before[1]


def test_a_cohort_counts_its_active_queues() -> None:
    tree = a_tree()
    left = tree.cohorts["left"]
    assert left.active_members == 2
    tree.set_active("a", active=False)
    assert left.active_members == 1
    tree.drop_queue("a")
    assert left.active_members == 1
    tree.drop_queue("b")
    assert left.active_members == 0


def test_a_flavor_is_listed_by_each_manifest_below_once() -> None:
    tree = a_tree()
    tree.set_cohort("left", "root", {})
    tree.set_cohort("root", "", {})
    left, root = at(tree, "left"), at(tree, "root")
    assert (left.listed_below, root.listed_below, root.children) == (2, 1, 1)
    tree.set_queue("a", "left", {})
    assert (left.listed_below, root.listed_below) == (1, 1)
    tree.set_queue("a", "left", {FR: Quota(1)})
    assert (left.listed_below, root.listed_below) == (2, 1)
    at(tree, "a").charge(1)
    tree.set_queue("a", "left", {})
    tree.drop_queue("b")
    assert (left.is_listed, root.is_listed) == (False, False)
    assert left.usage == 1, "usage of a flavor that no manifest names"


def test_a_new_node_has_weight_one_and_no_height() -> None:
    node = Tree().set_queue("cq", "", {})
    assert (node.weight, node.height, node.edition > 0, node.active_members) == (1.0, 0, True, 0)
