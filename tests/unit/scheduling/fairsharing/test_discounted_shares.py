"""Usage that does not count in shares: it is passed up only beyond guaranteed quota."""

from __future__ import annotations

import pytest

from admittance.quota.cell import Cell, Quota
from admittance.quota.tree import Tree
from admittance.scheduling.fairsharing.shares import share_of, uncounted_usage

GPU = ("default", "gpu")


def a_tree(guaranteed: int) -> Tree:
    """Queue ``a`` uses 8 GPUs, 4 of them its own; cohort ``co`` is below ``root`` with 10 more."""
    tree = Tree()
    tree.set_cohort("root", "", {GPU: Quota(10)})
    tree.set_cohort("co", "root", {})
    tree.set_queue("a", "co", {GPU: Quota(4, lend=4 - guaranteed)})
    tree.queues["a"].cell(GPU).charge(8)
    return tree


def cells(tree: Tree) -> tuple[Cell, Cell, Cell]:
    queue = tree.queues["a"].cell(GPU)
    assert queue.parent is not None
    assert queue.parent.parent is not None
    return queue, queue.parent, queue.parent.parent


@pytest.mark.parametrize(
    ("discount", "guaranteed", "uncounted", "ratios"),
    [
        pytest.param(0, 0, (0, 0), (286, 286), id="all usage counts"),
        pytest.param(1, 0, (1, 1), (215, 215), id="a part does not count"),
        pytest.param(6, 0, (6, 6), (0, 0), id="more than the queue borrows"),
        pytest.param(1, 4, (1, 1), (300, 300), id="beyond guaranteed quota"),
        pytest.param(6, 4, (6, 4), (0, 0), id="only what exceeds guaranteed quota is passed up"),
    ],
)
def test_shares_leave_out_uncounted_usage(
    discount: int, guaranteed: int, uncounted: tuple[int, int], ratios: tuple[int, int]
) -> None:
    tree = a_tree(guaranteed)
    queue, cohort, root = cells(tree)
    if discount:
        queue.add_discount(discount)
    assert (uncounted_usage(queue), uncounted_usage(cohort)) == uncounted
    assert (share_of(tree.queues["a"]).shown, share_of(tree.cohorts["co"]).shown) == ratios
    assert [cell.has_discount for cell in (queue, cohort, root)] == [discount > 0] * 3
    queue.add_discount(-discount)
    assert [cell.has_discount for cell in (queue, cohort, root)] == [False] * 3


def test_a_queue_takes_its_uncounted_usage_to_another_cohort() -> None:
    tree = a_tree(0)
    queue, cohort, _ = cells(tree)
    queue.add_discount(2)
    tree.set_queue("a", "other", {GPU: Quota(4)})
    assert not cohort.has_discount
    assert uncounted_usage(tree.cohorts["other"].cell(GPU)) == 2
