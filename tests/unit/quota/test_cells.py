"""Numbers of one cell, and what a cohort tree keeps for its nodes."""

from __future__ import annotations

import pytest

from admittance.quota.cell import (
    LOWEST,
    UNLIMITED,
    Cell,
    Quota,
    available,
    borrow_level,
    is_over,
    minus,
    plus,
    times,
)
from admittance.quota.tree import Tree

CPU = ("default", "cpu")
GPU = ("default", "gpu")


def a_cell(nominal: int, lend: int | None, used: int) -> Cell:
    tree = Tree()
    cell = tree.set_queue("cq", "co", {CPU: Quota(nominal, lend=lend)}).cell(CPU)
    cell.charge(used)
    return cell


@pytest.mark.parametrize(
    ("nominal", "lend", "used", "free", "spill", "over"),
    [
        pytest.param(10, None, 3, 0, 3, False, id="lends everything"),
        pytest.param(10, 4, 5, 1, 0, False, id="one is left of its guaranteed quota"),
        pytest.param(10, 4, 6, 0, 0, False, id="nothing is left of it"),
        pytest.param(10, 4, 7, 0, 1, False, id="one more than guaranteed"),
        pytest.param(10, 0, 10, 0, 0, False, id="lends nothing, and uses everything"),
        pytest.param(10, 0, 11, 0, 1, True, id="borrows one"),
        pytest.param(UNLIMITED, None, UNLIMITED, 0, UNLIMITED, False, id="unlimited"),
    ],
)
def test_guaranteed_quota_is_used_before_anything_is_passed_up(
    nominal: int, lend: int | None, used: int, free: int, spill: int, over: bool
) -> None:
    cell = a_cell(nominal, lend, used)
    assert (cell.local_free(), cell.spill(), is_over(cell)) == (free, spill, over)
    assert cell.parent is not None
    assert cell.parent.usage == spill


@pytest.mark.parametrize(
    ("total", "want"),
    [
        (plus(5, UNLIMITED), UNLIMITED),
        (plus(UNLIMITED - 1, 1), UNLIMITED),
        (plus(UNLIMITED - 1, 2), UNLIMITED),
        (plus(LOWEST, -1), LOWEST),
        (plus(LOWEST + 1, -1), LOWEST),
        (minus(LOWEST, 1), LOWEST),
        (minus(1, 2), -1),
    ],
)
def test_sums_stop_at_64_bits(total: int, want: int) -> None:
    assert total == want


def test_a_level_counts_the_guaranteed_quota_of_each_cohort() -> None:
    tree = Tree()
    tree.set_cohort("root", "", {CPU: Quota(3)})
    tree.set_cohort("mid", "root", {CPU: Quota(5, lend=0)})
    cell = tree.set_queue("a", "mid", {CPU: Quota(1)}).cell(CPU)
    levels = [borrow_level(cell, amount) for amount in (1, 6, 9, 10)]
    assert levels == [(0, True), (1, True), (2, False), (2, False)]


def test_a_cell_is_listed_while_a_manifest_at_or_below_its_node_names_it() -> None:
    tree = Tree()
    queue = tree.set_queue("a", "co", {CPU: Quota(1)})
    above = tree.cohorts["co"].cells
    assert (queue.cell(CPU).is_listed, above[CPU].is_listed) == (True, True)
    queue.cell(CPU).charge(1)
    tree.set_queue("a", "co", {GPU: Quota(1)})
    assert (queue.cell(CPU).is_listed, above[CPU].is_listed) == (False, False)
    assert above[GPU].is_listed


def test_a_deleted_cohort_loses_weight_and_quota_and_keeps_its_queues() -> None:
    tree = Tree()
    tree.set_cohort("co", "root", {CPU: Quota(5)})
    tree.cohorts["co"].weight = 3.0
    tree.set_queue("a", "co", {CPU: Quota(1)})
    tree.drop_cohort("co")
    cohort = tree.cohorts["co"]
    assert (cohort.explicit, cohort.weight, cohort.parent) == (False, 1.0, None)
    assert [queue.name for queue in cohort.queues()] == ["a"]
    assert cohort.cells[CPU].subtree == 1


def test_a_node_yields_all_queues_below_it() -> None:
    tree = Tree()
    tree.set_cohort("left", "root", {})
    for name, cohort in (("a", "left"), ("b", "root"), ("c", "left")):
        tree.set_queue(name, cohort, {})
    names = {
        name: [queue.name for queue in tree.cohorts[name].queues()] for name in ("root", "left")
    }
    assert names == {"root": ["b", "a", "c"], "left": ["a", "c"]}
    assert [queue.name for queue in tree.queues["a"].queues()] == ["a"]


def test_only_active_queues_count_once_in_the_members_of_a_cohort() -> None:
    tree = Tree()
    for name in ("a", "b"):
        tree.set_queue(name, "co", {})
    cohort = tree.cohorts["co"]
    members = [cohort.active_members]
    for active in (False, False, True, True, False):
        tree.set_active("a", active=active)
        members.append(cohort.active_members)
    tree.set_active("gone", active=True)
    tree.set_queue("a", "other", {})
    tree.set_queue("b", "other", {})
    assert members == [2, 1, 1, 2, 2, 1]
    assert tree.cohorts["other"].active_members == 1


def test_every_change_of_a_quota_has_an_edition_of_its_tree() -> None:
    tree = Tree()
    editions = set()
    for nominal in (1, 2, 1, 3):
        node = tree.set_queue("a", "co", {CPU: Quota(nominal)})
        editions.add(node.root().edition)
    assert len(editions) == 4


# Arithmetic. --------------------------------------------------------------------------------

MOST = UNLIMITED - 1


@pytest.mark.parametrize(
    ("a", "b", "total", "difference"),
    [
        (2, 3, 5, -1),
        (UNLIMITED, 1, UNLIMITED, UNLIMITED),
        (UNLIMITED, -1, UNLIMITED, UNLIMITED),
        (-1, UNLIMITED, UNLIMITED, LOWEST),
        (1, UNLIMITED, UNLIMITED, LOWEST),
        (UNLIMITED, UNLIMITED, UNLIMITED, 0),
        (MOST, 1, UNLIMITED, MOST - 1),
        (MOST, 2, UNLIMITED, MOST - 2),
        (LOWEST, -1, LOWEST, LOWEST + 1),
        (LOWEST, 1, LOWEST + 1, LOWEST),
    ],
)
def test_sums_and_differences_are_limited(a: int, b: int, total: int, difference: int) -> None:
    assert (plus(a, b), minus(a, b)) == (total, difference)


@pytest.mark.parametrize(
    ("amount", "count", "product"),
    [
        (3, 4, 12),
        (0, 4, 0),
        (3, 0, 0),
        (MOST, 2, UNLIMITED),
        (LOWEST, 2, LOWEST),
        (2**62, 1, 2**62),
    ],
)
def test_products_are_limited(amount: int, count: int, product: int) -> None:
    assert times(amount, count) == product


def test_the_limits_are_those_of_64_bits() -> None:
    assert (LOWEST, UNLIMITED) == (-9_223_372_036_854_775_808, 9_223_372_036_854_775_807)


# Usage that does not count in shares. -------------------------------------------------------


def test_a_discount_is_known_at_all_nodes_above_until_the_last_one_ends() -> None:
    tree = Tree()
    tree.set_cohort("root", "", {})
    tree.set_cohort("left", "root", {})
    one, two = (tree.set_queue(name, "left", {CPU: Quota(1)}).cell(CPU) for name in ("one", "two"))
    other = tree.set_queue("other", "root", {CPU: Quota(1)}).cell(CPU)
    left = tree.cohorts["left"].cell(CPU)
    root = tree.cohorts["root"].cell(CPU)
    assert not any(cell.has_discount for cell in (one, two, other, left, root))
    one.add_discount(3)
    assert (one.discount, list(left.discounted_children or ())) == (3, [one])
    assert [cell.has_discount for cell in (one, two, other, left, root)] == [
        True, False, False, True, True,
    ]  # fmt: skip
    assert list(root.discounted_children or ()) == [left]
    two.add_discount(1)
    one.add_discount(-2)
    assert (one.discount, len(left.discounted_children or ())) == (1, 2)
    one.add_discount(-1)
    assert [cell.has_discount for cell in (one, two, left, root)] == [False, True, True, True]
    two.add_discount(-1)
    assert not any(cell.has_discount for cell in (one, two, left, root))
    other.add_discount(2)
    assert (left.has_discount, root.has_discount) == (False, True)


def test_a_discount_moves_with_its_queue() -> None:
    tree = Tree()
    for name in ("here", "there"):
        tree.set_cohort(name, "", {})
        tree.set_queue(f"in-{name}", name, {CPU: Quota(1)})
    cell = tree.set_queue("cq", "here", {CPU: Quota(1)}).cell(CPU)
    cell.add_discount(2)
    here, there = (tree.cohorts[name].cell(CPU) for name in ("here", "there"))
    assert (here.has_discount, there.has_discount) == (True, False)
    tree.set_queue("cq", "there", {CPU: Quota(1)})
    assert (here.has_discount, there.has_discount) == (False, True)
    assert list(there.discounted_children or ()) == [cell]


def test_the_root_of_a_cell_is_at_the_top_of_its_tree() -> None:
    tree = Tree()
    tree.set_cohort("root", "", {})
    tree.set_cohort("left", "root", {})
    cell = tree.set_queue("cq", "left", {CPU: Quota(1)}).cell(CPU)
    assert cell.root() is tree.cohorts["root"].cell(CPU)
    assert cell.root().root() is cell.root()


@pytest.mark.parametrize(
    ("nominal", "borrow", "used", "free"),
    [
        pytest.param(4, None, 0, 14, id="its own quota and that of the cohort"),
        pytest.param(4, 3, 0, 7, id="its own and its limit"),
        pytest.param(4, 0, 1, 3, id="no limit left"),
        pytest.param(4, 3, 6, 1, id="one of its limit is left"),
        pytest.param(4, 3, 7, 0, id="its limit is used"),
        pytest.param(4, 3, 9, -2, id="its limit is exceeded"),
        pytest.param(4, 99, 0, 14, id="the limit is larger than what there is"),
    ],
)
def test_a_borrowing_limit_counts_from_the_nominal_quota(
    nominal: int, borrow: int | None, used: int, free: int
) -> None:
    tree = Tree()
    tree.set_cohort("co", "", {CPU: Quota(10)})
    cell = tree.set_queue("cq", "co", {CPU: Quota(nominal, borrow)}).cell(CPU)
    cell.charge(used)
    assert available(cell) == free


def test_a_part_of_the_quota_that_is_not_lent_is_outside_of_the_limit() -> None:
    tree = Tree()
    tree.set_cohort("co", "", {CPU: Quota(10)})
    cell = tree.set_queue("cq", "co", {CPU: Quota(5, 1, 2)}).cell(CPU)
    assert (cell.guaranteed, available(cell)) == (3, 6)
    cell.charge(2)
    assert available(cell) == 4
    cell.charge(2)
    assert (cell.spill(), available(cell)) == (1, 2)
