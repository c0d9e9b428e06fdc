"""Shares of ClusterQueues and cohorts, and what a cohort can lend: by direct calls."""

from __future__ import annotations

import pytest

from admittance.quota.cell import UNLIMITED, Quota
from admittance.quota.tree import Tree
from admittance.scheduling.fairsharing.shares import (
    Share,
    is_borrowing_on,
    lendable_of,
    share_of,
)

CPU = ("default", "cpu")
GPU = ("default", "gpu")
SPOT = ("spot", "cpu")


@pytest.mark.parametrize(
    ("share", "standing", "shown"),
    [
        pytest.param(Share(0.0, 1.0, False), (0, 0.0), 0, id="borrows nothing"),
        pytest.param(Share(0.0, 0.0, False), (0, 0.0), 0, id="borrows nothing with weight 0"),
        pytest.param(Share(100.0, 1.0, True), (0, 100.0), 100, id="weight 1"),
        pytest.param(Share(100.0, 2.0, True), (0, 50.0), 50, id="weight 2"),
        pytest.param(Share(100.0, 3.0, True), (0, 100.0 / 3), 34, id="rounded up"),
        pytest.param(Share(100.0, 0.0, True), (1, 100.0), UNLIMITED, id="weight 0"),
    ],
)
def test_a_share_is_weighted(share: Share, standing: tuple[int, float], shown: int) -> None:
    assert (share.standing, share.shown) == (standing, shown)


def a_tree() -> Tree:
    """Queues a and b of cohort co, which is below root; b lends 3 of 8 cpus and names no gpu."""
    tree = Tree()
    tree.set_cohort("root", "", {CPU: Quota(2), SPOT: Quota(4)})
    tree.set_cohort("co", "root", {CPU: Quota(0)})
    tree.set_queue("a", "co", {CPU: Quota(4), GPU: Quota(2), SPOT: Quota(0)})
    tree.set_queue("b", "co", {CPU: Quota(8, None, 3)})
    tree.set_queue("alone", "", {CPU: Quota(4)})
    return tree


def test_a_cohort_can_lend_all_that_may_be_used_in_it() -> None:
    tree = a_tree()
    assert lendable_of(tree.cohorts["root"]) == {"cpu": 13, "gpu": 2}
    assert lendable_of(tree.cohorts["co"]) == {"cpu": 13, "gpu": 2}
    before = lendable_of(tree.cohorts["co"])
    assert lendable_of(tree.cohorts["co"]) is before
    tree.set_queue("b", "co", {CPU: Quota(8)})
    assert lendable_of(tree.cohorts["co"]) == {"cpu": 18, "gpu": 2}


def test_a_flavor_that_another_branch_has_can_be_lent_as_far_as_it_lends() -> None:
    tree = Tree()
    tree.set_cohort("root", "", {})
    tree.set_cohort("left", "root", {})
    tree.set_cohort("right", "root", {})
    tree.set_queue("a", "left", {CPU: Quota(3)})
    tree.set_queue("b", "right", {GPU: Quota(2, None, 1)})
    for name in ("root", "left", "right"):
        assert lendable_of(tree.cohorts[name]) == {"cpu": 3, "gpu": 1}, name


@pytest.mark.parametrize(
    ("used", "ratio", "borrowing", "resource"),
    [
        pytest.param({}, 0.0, False, "", id="nothing"),
        pytest.param({CPU: 4, GPU: 2}, 0.0, False, "", id="its own quota"),
        pytest.param({CPU: 5}, 1000 / 13, True, "cpu", id="one borrowed"),
        pytest.param({CPU: 5, SPOT: 2}, 3000 / 13, True, "cpu", id="of two flavors"),
        pytest.param({CPU: 5, GPU: 3}, 500.0, True, "gpu", id="the dominant resource"),
    ],
)
def test_a_share_is_what_is_borrowed_of_what_can_be_lent(
    used: dict[tuple[str, str], int], ratio: float, borrowing: bool, resource: str
) -> None:
    tree = a_tree()
    node = tree.queues["a"]
    for fr, amount in used.items():
        node.cell(fr).charge(amount)
    assert share_of(node) == Share(ratio, 1.0, borrowing, resource)
    assert is_borrowing_on(node, [CPU, SPOT, GPU]) is borrowing
    assert is_borrowing_on(node, [GPU]) is (used.get(GPU, 0) > 2)


def test_a_node_without_a_cohort_borrows_nothing() -> None:
    node = a_tree().queues["alone"]
    node.cell(CPU).charge(5)
    assert share_of(node) == Share(0.0, 1.0, False)
    assert not is_borrowing_on(node, [CPU])
    assert not is_borrowing_on(node, [])


def test_of_equal_shares_the_first_resource_by_name_is_dominant() -> None:
    tree = Tree()
    tree.set_cohort("co", "", {GPU: Quota(2), CPU: Quota(2)})
    tree.set_queue("a", "co", {GPU: Quota(0), CPU: Quota(0)})
    node = tree.queues["a"]
    node.cell(GPU).charge(1)
    node.cell(CPU).charge(1)
    assert list(node.cells) == [GPU, CPU]
    assert share_of(node) == Share(500.0, 1.0, True, "cpu")
