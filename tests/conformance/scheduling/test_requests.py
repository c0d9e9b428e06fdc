"""Kueue's table of what a workload asks for in all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from admittance.api.pod_requests import ResourceTransformation
from admittance.scheduling.state.requests import Shapes
from conformance.tables import cases, needs_data

pytestmark = needs_data


@pytest.mark.parametrize("case", cases("workload/TestNewInfo"))
def test_a_pending_workload_requests_what_kueue_counts(case: dict[str, Any]) -> None:
    given = case["given"]
    workload = given["workload"]
    if workload.get("status", {}).get("admission"):
        pytest.skip("what an admitted workload holds is in its status")
    options = given.get("infoOptions") or {}
    transformations = [
        ResourceTransformation(
            option["input"],
            option.get("strategy", "Retain") != "Replace",
            option.get("multiplyBy", ""),
            tuple(option["outputs"].items()),
        )
        for option in options.get("resourceTransformations", {}).values()
    ]
    shapes = Shapes(options.get("excludedResourcePrefixes", ()), transformations)
    shape = shapes.needs(json.dumps(workload["spec"]).encode()).shape
    gone = {
        pods["name"]: pods["count"]
        for pods in workload.get("status", {}).get("reclaimablePods", ())
    }
    if gone and "off" not in case["name"]:
        shape = shapes.reduced(shape, gone)
    totals = [dict(total) for total in shape.totals]
    assert totals == [total.get("requests", {}) for total in case["want"]["info"]["totalRequests"]]
