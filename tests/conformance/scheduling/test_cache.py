"""Kueue's tables of quota arithmetic and of what makes a ClusterQueue active."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from admittance.api.fields.units import amount
from admittance.api.reading.manifest import decode_object
from admittance.events.requests.queues import Queues, QueueStatus
from admittance.quota.catalog import Catalog
from admittance.quota.cell import available, potential
from admittance.scheduling.state.config import Config
from conformance.differences import CACHE as CACHE_CASES
from conformance.tables import Given, cases, needs_data

INACTIVE = {"type": "Active", "status": "False", "reason": "ByTest", "message": ""}
"""The Active condition that a controller sets on a check that it cannot answer."""


def _cases(table: str, without: Mapping[str, object] = {}) -> list[Any]:
    return cases(f"cache/{table}", without)


def _catalog(given: dict[str, Any]) -> Catalog:
    catalog = Catalog()
    for group in ("resourceFlavors", "admissionChecks", "cohorts", "clusterQueues"):
        for obj in given.get(group, ()):
            manifest = decode_object(obj).manifest
            catalog.apply(manifest.kind, "", manifest.metadata.name, manifest, 1)
    return catalog


def _terminate(catalog: Catalog, name: str) -> None:
    queue = catalog.cluster_queues[name]
    leaving = datetime(2026, 1, 1, tzinfo=UTC)
    meta = msgspec.structs.replace(queue.metadata, deletion_timestamp=leaving)
    catalog.apply("ClusterQueue", "", name, msgspec.structs.replace(queue, metadata=meta), 2)


@needs_data
@pytest.mark.parametrize("case", _cases("TestAvailable"))
def test_available_and_potential_are_as_kueue_has_them(case: dict[str, Any]) -> None:
    catalog = _catalog(case["given"])
    for queue, usage in case["given"].get("usage", {}).items():
        for entry in usage:
            cell = catalog.tree.queues[queue].cell((entry["flavor"], entry["resource"]))
            cell.charge(entry["value"])
    for what, number in (("available", available), ("potentiallyAvailable", potential)):
        for queue, amounts in case["want"][what].items():
            for row in amounts:
                cell = catalog.tree.queues[queue].cell((row["flavor"], row["resource"]))
                assert max(0, number(cell)) == row.get("value", 0), f"{what} of {queue}, {cell.fr}"


@needs_data
@pytest.mark.parametrize("case", _cases("TestClusterQueueReadiness", CACHE_CASES))
def test_a_queue_is_active_as_kueue_has_it(case: dict[str, Any]) -> None:
    given = case["given"]
    catalog = _catalog(given)
    name = given["clusterQueueName"]
    if given.get("terminate"):
        _terminate(catalog, name)
    activity = catalog.activity(name)
    want = case["want"]
    assert activity == (want["active"], want["reason"], want["message"])


@needs_data
@pytest.mark.parametrize("case", _cases("TestClusterQueueUpdateWithAdmissionCheck", CACHE_CASES))
def test_a_queue_is_active_with_its_checks_as_kueue_has_it(case: dict[str, Any]) -> None:
    given = case["given"]
    checks = [
        {
            "apiVersion": given["cq"]["apiVersion"],
            "kind": "AdmissionCheck",
            "metadata": {"name": name},
            "spec": {"controllerName": check["controller"]},
            "status": {"conditions": [] if check.get("active") else [INACTIVE]},
        }
        for name, check in given["admissionChecks"].items()
    ]
    catalog = _catalog({"admissionChecks": checks, "clusterQueues": [given["cq"]]})
    name = given["cq"]["metadata"]["name"]
    if given["cqStatus"] == "terminating":
        _terminate(catalog, name)
    want = case["want"]
    activity = catalog.activity(name)
    assert activity == (want["status"] == "active", want["reason"], want["message"])


@needs_data
@pytest.mark.parametrize("case", _cases("TestClusterQueueUpdate"))
def test_searches_restart_when_quotas_change_and_only_then(case: dict[str, Any]) -> None:
    given = Given({**case["given"], "clusterQueues": [case["given"]["cq"]]}, Config())
    domain = given.queue(case["given"]["cq"]["metadata"]["name"]).domain
    assert domain is not None
    before = domain.generation
    given.put(case["given"]["newcq"])
    assert domain.generation - before == case["want"]["lastAssignmentGeneration"] - 1


def _usage(status: QueueStatus, what: str) -> dict[tuple[str, str], int]:
    return {
        (usage.flavor, usage.resource): getattr(usage, what)
        for usage in status.usage
        if getattr(usage, what)
    }


def _wanted(rows: list[dict[str, Any]], what: str = "total") -> dict[tuple[str, str], int]:
    counted = {
        (row["name"], resource["name"]): amount(resource["name"], resource.get(what, "0"))
        for row in rows
        for resource in row["resources"]
    }
    return {key: much for key, much in counted.items() if much}


@needs_data
@pytest.mark.parametrize("case", _cases("TestClusterQueueUsage"))
def test_a_queue_reports_usage_as_kueue_does(case: dict[str, Any]) -> None:
    table, want = case["given"], case["want"]
    given = Given({**table, "clusterQueues": [table["clusterQueue"]]}, Config())
    query = Queues(cluster_queue=table["clusterQueue"]["metadata"]["name"])
    (status,) = given.core.queues(query).cluster_queues
    assert status.reserving == want.get("reservingWorkloads", 0)
    assert status.admitted == want.get("admittedWorkloads", 0)
    assert _usage(status, "reserved") == _wanted(want["reservedResources"])
    assert _usage(status, "borrowed") == _wanted(want["reservedResources"], "borrowed")
    assert _usage(status, "admitted") == _wanted(want["usedResources"])


@needs_data
@pytest.mark.parametrize("case", _cases("TestLocalQueueUsage"))
def test_a_local_queue_reports_usage_as_kueue_does(case: dict[str, Any]) -> None:
    table = case["given"]
    known = [table["cq"]] if "cq" in table else []
    queues = {"clusterQueues": known, "localQueues": [table["localQueue"]]}
    given = Given({**queues, "now": table["now"], "workloads": table.get("wls", [])}, Config())
    (status,) = given.core.queues(Queues(local_queues=True)).local_queues
    assert _usage(status, "reserved") == _wanted(case["want"].get("usage", []))
