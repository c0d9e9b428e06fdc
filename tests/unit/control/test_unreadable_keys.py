"""Invalid values that were written into the bucket by hand."""

from __future__ import annotations

import pytest

from admittance.control.controller import Controller


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("workload.ns.w", b"{broken", id="a workload that is not JSON"),
        pytest.param("workload.ns.w", b'{"status": 3}', id="a workload of another shape"),
        pytest.param("clusterqueue.cq", b"\xff", id="a queue that is not text"),
        pytest.param(
            "clusterqueue.cq", b'{"kind": "ClusterQueue"}', id="a queue without a version"
        ),
    ],
)
def test_an_unreadable_value_counts_as_absent_and_is_reported(key: str, value: bytes) -> None:
    controller = Controller(b"secret")
    controller.load(key, value, 7, {})
    assert list(controller.unreadable) == [key]
    assert controller.settle_load(0) == []
    if key.startswith("workload"):
        # A new submission overwrites it.
        known = controller.workloads.get(key)
        assert (known.workload, known.revision) == (None, 7)
    else:
        assert controller.objects.get(key) is None
        assert controller.objects.expected(key) == 7
