"""Kueue's tables of families: what its variant controller does, and what its scheduler leaves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from admittance.api.reading.manifest import decode_object
from admittance.events.subjects import WorkloadName
from admittance.family import to_open
from admittance.variants.known_families import FamilyQueues
from admittance.workload.conditions import Type, is_true
from admittance.workload.family_info import sibling
from admittance.workload.stored import head
from conformance.differences import FAMILIES
from conformance.families import (
    LABEL,
    Reconciled,
    a_system,
    admitted_on,
    all_workloads,
    as_family,
    as_stored,
    cycle,
    refused,
    wanted,
    with_families,
)
from conformance.tables import cases, needs_data, read, time_of
from support.builders import an_object

pytestmark = needs_data

TABLE = "concurrentadmission/TestReconcile"
CYCLES = "scheduler/TestScheduleConcurrentAdmission"


def differences(case: dict[str, Any]) -> dict[str, Any]:
    """By flavor ("" is the parent) what we make of it and what Kueue does; what happened, too."""
    played = Reconciled(case["given"])
    ours, theirs = played.family(), wanted(case["want"])
    if "" not in theirs:
        ours.pop("", None)
    differences: dict[str, Any] = {
        tag: (ours.get(tag), theirs.get(tag))
        for tag in {*ours, *theirs}
        if ours.get(tag) != theirs.get(tag)
    }
    events = Counter(event["reason"] for event in case["want"].get("events", ()))
    if played.variant_events() != events:
        differences["events"] = (played.variant_events(), events)
    return differences


@pytest.mark.scenario("D3", "D5", "D7", "D21", "D22")
@pytest.mark.parametrize("case", cases(TABLE, FAMILIES))
def test_a_family_has_the_state_that_it_has_in_kueue(case: dict[str, Any]) -> None:
    assert differences(case) == {}


@pytest.mark.parametrize("case", [param for param in cases(TABLE) if param.id in FAMILIES])
def test_listed_differences_do_differ(case: dict[str, Any]) -> None:
    assert differences(case)


def test_nearly_all_cases_are_answered_as_in_kueue() -> None:
    names = [case["name"] for case in read(TABLE)]
    assert set(FAMILIES) <= set(names)
    assert (len(names), len(FAMILIES)) == (31, 4)


@pytest.mark.parametrize("case", cases("concurrentadmission/TestFirstCandidateVariant"))
def test_the_gate_opens_for_the_sibling_that_kueue_picks(case: dict[str, Any]) -> None:
    given = case["given"]
    siblings = [
        sibling(refused(as_stored(given[which])), place)
        for place, which in enumerate(("first", "second"))
    ]
    assert to_open(siblings, None, time_of(given["now"])) == case["want"].get("candidate", "")


@pytest.mark.parametrize("case", cases("concurrentadmission/TestClusterQueueFlavorsChanged"))
def test_which_changes_of_a_queue_concern_its_families(case: dict[str, Any]) -> None:
    old, new = (
        decode_object(with_families(case["given"][which])).manifest for which in ("old", "new")
    )
    queues = FamilyQueues()
    family = WorkloadName("ns", "parent")
    local = an_object("LocalQueue", "lq", {"clusterQueue": old.metadata.name}, namespace="ns")
    queues.apply("LocalQueue", "ns", "lq", decode_object(local).manifest)
    queues.apply("ClusterQueue", "", old.metadata.name, old)
    queues.join(family, "lq")
    concerned = list(queues.apply("ClusterQueue", "", new.metadata.name, new))
    assert concerned == ([family] if case["want"]["result"] else [])


@pytest.mark.parametrize("case", cases("concurrentadmission/TestParentsForClusterQueue"))
def test_a_queue_concerns_the_families_that_kueue_finds(case: dict[str, Any]) -> None:
    given = case["given"]
    queues = FamilyQueues()
    for raw in given.get("localQueues") or ():
        local = decode_object(raw).manifest
        queues.apply("LocalQueue", local.metadata.namespace, local.metadata.name, local)
    for raw in given.get("workloads") or ():
        workload = as_stored(raw)
        meta = workload.metadata
        if LABEL in meta.labels:
            queues.join(WorkloadName(meta.namespace, meta.name), head(workload).queue_name)
    queue = an_object("ClusterQueue", given["clusterQueue"], {})
    concerned = queues.apply(
        "ClusterQueue", "", given["clusterQueue"], decode_object(with_families(queue)).manifest
    )
    want = {
        (request["namespace"], request["name"]) for request in case["want"].get("requests") or ()
    }
    assert set(concerned) == want


@pytest.mark.scenario("D6", "D7")
@pytest.mark.parametrize("case", cases(CYCLES))
def test_a_cycle_leaves_the_siblings_as_in_kueue(case: dict[str, Any]) -> None:
    given, want = case["given"], case["want"]
    family = as_family(given)
    queues = [with_families(queue) for queue in given["clusterQueues"]]
    objects = [*given["namespaces"], *given["resourceFlavors"], *queues, *given["localQueues"]]
    system = a_system(objects, family, time_of(given.get("now")))
    cycle(system)
    variants = [workload for workload in all_workloads(system) if head(workload).role == "variant"]
    held = {
        f"{variant.metadata.namespace}/{variant.metadata.name}": admitted_on(
            variant.status.admission
        )
        for variant in variants
        if variant.status.admission is not None
    }
    assert held == {
        name: [
            flavor for pods in admission["podSetAssignments"] for flavor in pods["flavors"].values()
        ]
        for name, admission in want["assignments"].items()
    }
    evicted = {variant.metadata.name for variant in variants if is_true(variant, Type.EVICTED)}
    assert evicted == {
        event["key"]["name"]
        for event in want["observedEvents"]
        if event["reason"] == "EvictedDueToFlavorMigration"
    }
    left = {
        f"{variant.metadata.namespace}/{variant.metadata.name}"
        for variant in variants
        if variant.status.admission is None
    }
    assert left == {name for names in want["left"].values() for name in names}
