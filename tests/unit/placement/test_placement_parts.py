"""Parts of an assignment: what a verdict may carry."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.events.placement import (
    PLACEMENT_BYTES_MAX,
    PlacementPart,
    placement_error,
    runners_of,
)

GPU = "nvidia.com/gpu"


def part(runner: str, first: int, count: int, *gpus: str, **more: Any) -> PlacementPart:
    fields = {"id": f"id-{runner}", "pod_set": "main", **more}
    devices = {GPU: gpus} if gpus else {}
    return PlacementPart(runner=runner, first=first, count=count, devices=devices, **fields)


def test_a_part_has_its_names_in_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(part("gpu-1", 0, 2, "a", "b"))) == {
        "runner": "gpu-1",
        "id": "id-gpu-1",
        "podSet": "main",
        "first": 0,
        "count": 2,
        "devices": {GPU: ["a", "b"]},
    }


def test_runners_are_numbered_in_the_order_of_their_parts() -> None:
    parts = (part("b", 0, 1), part("a", 1, 1), part("b", 0, 1, pod_set="other"))
    assert runners_of(parts) == ("id-b", "id-a")


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([part("a", 0, 3)], id="one_runner"),
        pytest.param([part("b", 2, 1, "x"), part("a", 0, 2, "x", "y")], id="two_runners"),
    ],
)
def test_parts_with_each_pod_once_are_an_assignment(parts: list[PlacementPart]) -> None:
    assert placement_error(parts, {"main": 3}) == ""


def test_a_workload_without_pods_has_one_part_of_0_pods() -> None:
    assert placement_error([part("a", 0, 0)], {"main": 0}) == ""


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        pytest.param([part("a", 0, 2)], "2 of 3 pods of pod set 'main' are assigned", id="gap"),
        pytest.param(
            [part("a", 0, 2), part("b", 1, 2)], "pod 1 of pod set 'main' does not", id="pod_twice"
        ),
        pytest.param(
            [part("a", 0, 3, pod_set="no")], "the workload has no such pod set", id="pod_set"
        ),
        pytest.param([part("a", 0, 0), part("a", 0, 3)], "0 pods from 0", id="no_pods"),
        pytest.param([part("a", -1, 3)], "3 pods from -1 on are no pods", id="negative_index"),
        pytest.param([part("", 0, 3)], "the runner's name must have 1 to 253", id="no_name"),
        pytest.param([part("a", 0, 3, id="x" * 65)], "the runner's id must have", id="long_id"),
        pytest.param([part("a", 0, 3, "x", "y")], "2 units of nvidia.com/gpu are no", id="shares"),
        pytest.param(
            [part("a", 0, 2, "x", "y"), part("a", 2, 1, "y")],
            "nvidia.com/gpu y of one runner is assigned twice",
            id="unit_twice",
        ),
        pytest.param(
            [part("a", 0, 3, *("x" * 129 for _ in range(3)))], "must have 1 to 128", id="long_unit"
        ),
        pytest.param([part("a", n, 1) for n in range(5000)], "5,000 parts, 4,096", id="parts"),
        pytest.param(
            [part("a", 0, 3, *(f"{n:0100}" for n in range(3000)))],
            f"{PLACEMENT_BYTES_MAX:,} are allowed",
            id="bytes",
        ),
    ],
)
def test_an_assignment_is_refused_with_a_sentence(parts: list[PlacementPart], error: str) -> None:
    assert error in placement_error(parts, {"main": 3})
