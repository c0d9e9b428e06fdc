"""Kueue's tables of quota arithmetic and of what makes a ClusterQueue active."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.api.manifest import decode_object
from admittance.quota.catalog import Catalog
from admittance.quota.cell import available, potential

CACHE = Path(__file__).parents[3] / "shared" / "conformance" / "cache"
MISSING = "the conformance data is not beside this tree"


def _cases(table: str) -> list[Any]:
    path = CACHE / f"{table}.json"
    if not path.is_file():
        return []
    return [pytest.param(one, id=one["name"]) for one in json.loads(path.read_text())["cases"]]


def _catalog(given: dict[str, Any]) -> Catalog:
    catalog = Catalog()
    for group in ("resourceFlavors", "admissionChecks", "cohorts", "clusterQueues"):
        for obj in given.get(group, ()):
            manifest = decode_object(obj).manifest
            catalog.apply(manifest.kind, "", manifest.metadata.name, manifest, 1)
    return catalog


@pytest.mark.skipif(not CACHE.is_dir(), reason=MISSING)
@pytest.mark.parametrize("case", _cases("TestAvailable"))
def test_available_and_potential_are_as_kueue_has_them(case: dict[str, Any]) -> None:
    catalog = _catalog(case["given"])
    for queue, usage in case["given"].get("usage", {}).items():
        for one in usage:
            cell = catalog.tree.queues[queue].cell((one["flavor"], one["resource"]))
            cell.charge(one["value"])
    for what, number in (("available", available), ("potentiallyAvailable", potential)):
        for queue, amounts in case["want"][what].items():
            for one in amounts:
                cell = catalog.tree.queues[queue].cell((one["flavor"], one["resource"]))
                assert max(0, number(cell)) == one.get("value", 0), f"{what} of {queue}, {cell.fr}"


@pytest.mark.skipif(not CACHE.is_dir(), reason=MISSING)
@pytest.mark.parametrize("case", _cases("TestClusterQueueReadiness"))
def test_a_queue_is_active_as_kueue_has_it(case: dict[str, Any]) -> None:
    if case["name"] == "check inactive":
        pytest.skip("on our bus a check of which nobody has heard anything counts as active")
    given = case["given"]
    catalog = _catalog(given)
    name = given["clusterQueueName"]
    if given.get("terminate"):
        queue = catalog.cluster_queues[name]
        leaving = datetime(2026, 1, 1, tzinfo=UTC)
        meta = msgspec.structs.replace(queue.metadata, deletion_timestamp=leaving)
        queue = msgspec.structs.replace(queue, metadata=meta)
        catalog.apply("ClusterQueue", "", name, queue, 2)
    activity = catalog.activity(name)
    want = case["want"]
    assert activity == (want["active"], want["reason"], want["message"])
