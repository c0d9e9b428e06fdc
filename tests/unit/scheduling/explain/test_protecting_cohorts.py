"""Which cohorts protect workloads from a preemptor of another cohort: by direct calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from admittance.quota.cell import Quota
from admittance.quota.tree import Tree
from admittance.scheduling.explain.preemption_blockers import (
    QuotaNeed,
    _is_entitled,
    protecting_cohort,
)
from admittance.scheduling.state.config import CohortFairSharing, Config

CPU, GPU, SPOT = ("default", "cpu"), ("default", "gpu"), ("spot", "cpu")


def two_cohorts(lent: int | None = None) -> Tree:
    """Queue a lies below cohort left, and queue b below cohort right; both cohorts have a root."""
    tree = Tree()
    tree.set_cohort("root", "", {})
    tree.set_cohort("left", "root", {CPU: Quota(3)})
    tree.set_cohort("right", "root", {CPU: Quota(2), GPU: Quota(1)})
    tree.set_queue("a", "left", {CPU: Quota(2, None, lent), SPOT: Quota(1)})
    tree.set_queue("b", "right", {CPU: Quota(2), GPU: Quota(1)})
    return tree


def need_of(tree: Tree, fr: tuple[str, str], wanted: int) -> QuotaNeed:
    node = tree.queues["a"]
    queue = cast(Any, SimpleNamespace(node=node))
    return QuotaNeed(queue, cast(Any, None), node.cell(fr), wanted)


@pytest.mark.parametrize(
    ("fair", "fr", "cpu", "gpu", "cohort"),
    [
        pytest.param(False, CPU, 4, 0, "right", id="it uses its quota"),
        pytest.param(False, CPU, 5, 0, "", id="it borrows"),
        pytest.param(False, CPU, 4, 9, "right", id="it borrows something else"),
        pytest.param(False, SPOT, 5, 9, "right", id="it has nothing of that kind"),
        pytest.param(True, CPU, 4, 2, "right", id="fair sharing: it uses its quota"),
        pytest.param(True, CPU, 5, 0, "", id="fair sharing: it borrows"),
        pytest.param(True, CPU, 4, 3, "", id="fair sharing: it borrows something else"),
    ],
)
def test_a_cohort_that_does_not_borrow_protects_its_queues(
    fair: bool, fr: tuple[str, str], cpu: int, gpu: int, cohort: str
) -> None:
    tree = two_cohorts()
    queue = tree.queues["b"]
    queue.cell(CPU).charge(cpu)
    queue.cell(GPU).charge(gpu)
    config = Config(fair_sharing=CohortFairSharing() if fair else None)
    state = cast(Any, SimpleNamespace(config=config))
    above = protecting_cohort(state, queue, need_of(tree, fr, 1))
    assert (above.name if above is not None else "") == cohort


@pytest.mark.parametrize(
    ("lent", "used", "wanted", "is_entitled"),
    [
        pytest.param(None, 0, 2, True, id="quota of the queue"),
        pytest.param(None, 0, 5, True, id="quota of its cohort"),
        pytest.param(None, 0, 6, False, id="more than the cohort has"),
        pytest.param(None, 1, 4, True, id="some is used"),
        pytest.param(None, 1, 5, False, id="too much is used"),
        pytest.param(1, 0, 5, True, id="a part is not lent"),
        pytest.param(1, 0, 6, False, id="a part is not lent, and it is too little"),
    ],
)
def test_a_need_within_quota_below_the_common_cohort_is_an_entitlement(
    lent: int | None, used: int, wanted: int, is_entitled: bool
) -> None:
    tree = two_cohorts(lent)
    tree.queues["a"].cell(CPU).charge(used)
    assert _is_entitled(need_of(tree, CPU, wanted), tree.queues["b"]) is is_entitled
