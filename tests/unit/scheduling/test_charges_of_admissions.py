"""What a stored admission charges, without its reclaimable pods: by direct calls."""

from __future__ import annotations

import pytest

from admittance.events.shapes import Admission, PodSetAssignment
from admittance.quota.tree import Tree
from admittance.scheduling.state.assignment import charges_of
from admittance.scheduling.state.requests import PodSetRequests, RequestShape


@pytest.mark.parametrize(
    ("count", "amount", "whole", "gone", "charged"),
    [
        pytest.param(3, "10", 3, None, 10_000, id="all"),
        pytest.param(3, "10", 3, 0, 10_000, id="none is reclaimable"),
        pytest.param(3, "10", 3, 1, 6666, id="one of three"),
        pytest.param(3, "10", 5, 1, 10_000, id="one that was not admitted"),
        pytest.param(3, "10", 5, 3, 6666, id="one that was admitted"),
        pytest.param(3, "10", 3, 4, 0, id="more than there are"),
        pytest.param(0, "10", 3, 1, 10_000, id="no pod"),
        pytest.param(3, "wrong", 3, None, None, id="no quantity"),
    ],
)
def test_reclaimable_pods_are_not_charged(
    count: int, amount: str, whole: int, gone: int | None, charged: int | None
) -> None:
    place = PodSetAssignment(
        name="main", flavors={"cpu": "default"}, resource_usage={"cpu": amount}, count=count
    )
    shape = RequestShape((PodSetRequests("main", whole, None, (), (), (), ()),), None)
    node = Tree().set_queue("cq", "", {})
    found = charges_of(
        node,
        Admission(cluster_queue="cq", pod_set_assignments=(place, place)),
        shape,
        () if gone is None else [("main", gone)],
    )
    cell = node.cell(("default", "cpu"))
    assert found == ([] if charged is None else [(cell, 2 * charged)])
