"""Kueue's tables of fair sharing's arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.quota.cell import UNLIMITED
from admittance.scheduling.fairsharing.shares import is_borrowing_on, share_of
from admittance.scheduling.state.config import Config
from conformance.tables import Given, cases, needs_data
from support.builders import an_object


def _given(case: dict[str, Any]) -> Given:
    given = case["given"]
    shares = Given({"cohorts": given.get("cohorts", [])}, Config())
    for key in ("clusterQueue", "lendingClusterQueue"):
        if key in given:
            shares.put(given[key])
    return shares


@needs_data
@pytest.mark.parametrize("case", cases("cache/TestDominantResourceShare"))
def test_shares_are_those_of_kueue(case: dict[str, Any]) -> None:
    given = _given(case)
    for usage in (case["given"]["usage"], case["given"].get("flvResQ", [])):
        given.use("cq", usage)
    tree = given.core.catalog.tree
    for want in case["want"]["shares"]:
        node = (tree.cohorts if want["kind"] == "Cohort" else tree.queues)[want["name"]]
        share = share_of(node)
        weighted = UNLIMITED if want["weightedShare"] == "unlimited" else want["weightedShare"]
        assert (share.borrowing, share.resource, share.shown) == (
            want["borrowing"],
            want["dominantResource"],
            weighted,
        ), want["name"]


def _queue(name: str, gpu: str, cpu: str) -> dict[str, Any]:
    resources = [
        {"name": "cpu", "nominalQuota": cpu},
        {"name": "example.com/gpu", "nominalQuota": gpu},
    ]
    group = {
        "coveredResources": ["cpu", "example.com/gpu"],
        "flavors": [{"name": "default", "resources": resources}],
    }
    return an_object(
        "ClusterQueue",
        name,
        {"cohortName": "cohort", "namespaceSelector": {}, "resourceGroups": [group]},
    )


@needs_data
@pytest.mark.parametrize("case", cases("cache/TestIsBorrowingOn"))
def test_borrowing_is_what_kueue_takes_for_it(case: dict[str, Any]) -> None:
    queues = [_queue("cq", "5", "2"), _queue("lending-cq", "5", "8")]
    given = Given({"clusterQueues": queues}, Config())
    given.use("cq", case["given"]["usage"])
    node = given.core.catalog.tree.queues["cq"]
    requested = [
        (quota["flavor"], quota["resource"]) for quota in case["given"].get("requestedFRs", [])
    ]
    assert share_of(node).borrowing is case["want"]["borrowing"]
    assert is_borrowing_on(node, requested) is case["want"]["borrowingOnRequested"]
