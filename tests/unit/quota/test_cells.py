"""Numbers of one cell, and what a cohort tree keeps for its nodes."""

from __future__ import annotations

import pytest

from admittance.quota.cell import (
    LOWEST,
    UNLIMITED,
    Cell,
    Quota,
    borrow_level,
    is_over,
    minus,
    plus,
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
