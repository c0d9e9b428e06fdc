"""The numbers of one flavor and resource of a node in the answers: by direct calls."""

from __future__ import annotations

import pytest

from admittance.quota.cell import Quota
from admittance.quota.tree import Tree
from admittance.scheduling.explain.cohort_tree import _Amounts, _usage

CPU = ("default", "cpu")


@pytest.mark.parametrize(
    ("used", "free", "available", "borrowed"),
    [
        pytest.param(0, None, 9, 0, id="nothing is used"),
        pytest.param(4, None, 5, 0, id="its own quota"),
        pytest.param(5, None, 4, 1, id="one is borrowed"),
        pytest.param(9, None, 0, 5, id="all is used"),
        pytest.param(11, None, 0, 7, id="more is used than there is"),
        pytest.param(4, 2, 2, 0, id="a promise takes a part"),
        pytest.param(4, -1, 0, 0, id="promises take more than there is"),
        pytest.param(4, 0, 0, 0, id="promises take all"),
    ],
)
def test_usage_of_a_queue_in_a_cohort(
    used: int, free: int | None, available: int, borrowed: int
) -> None:
    tree = Tree()
    tree.set_cohort("co", "", {})
    tree.set_queue("a", "co", {CPU: Quota(4, 6, 3)})
    tree.set_queue("b", "co", {CPU: Quota(5)})
    cell = tree.queues["a"].cell(CPU)
    cell.charge(used)
    shown = _usage(cell, {} if free is None else {cell: free}, _Amounts())
    assert (shown.flavor, shown.resource, shown.nominal, shown.subtree) == ("default", "cpu", 4, 4)
    assert (shown.usage, shown.available, shown.borrowed) == (used, available, borrowed)
    assert (shown.lendable, shown.borrowing_limit, shown.lending_limit) == (3, 6, 3)


def test_usage_of_a_queue_without_a_cohort() -> None:
    tree = Tree()
    tree.set_queue("a", "", {CPU: Quota(4)})
    cell = tree.queues["a"].cell(CPU)
    cell.charge(6)
    shown = _usage(cell, {}, _Amounts())
    assert (shown.usage, shown.available, shown.borrowed, shown.lendable) == (6, 0, 0, 0)
    assert (shown.borrowing_limit, shown.lending_limit) == (None, None)
