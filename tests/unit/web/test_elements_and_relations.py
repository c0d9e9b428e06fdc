"""The elements of an array, and what a workload has to do with others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.meta import ObjectMeta
from admittance.api.workload import ArrayStatus, DependencyRow
from admittance.events.placement import PlacementPart
from admittance.events.shapes import PendingPreemption, PlannedVictim
from admittance.web.views.details import elements, relations
from admittance.web.views.details.elements import ROWS, ElementsQuery
from admittance.workload.stored import StoredWorkload, WorkloadStatus

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def stored(name: str = "w", spec: dict[str, Any] | None = None, **status: Any) -> StoredWorkload:
    return StoredWorkload(
        api_version="kueue.x-k8s.io/v1beta2",
        kind="Workload",
        metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}"),
        spec=msgspec.Raw(msgspec.json.encode(spec or {})),
        status=WorkloadStatus(**status),
    )


def array(
    results: str, states: dict[str, int], indexes: str = "", created: int = 0
) -> StoredWorkload:
    spec = {"role": "array", "array": {"indexes": indexes or f"0-{len(results) - 1}"}}
    status = ArrayStatus(results=results, states=states, created=created)
    return stored("a", spec, array=status)


# Elements. ------------------------------------------------------------------------------------


def test_an_array_says_how_many_elements_are_in_which_state() -> None:
    view = elements.build(
        array("ssfdc...", {"Running": 1, "NotCreated": 1, "Pending": 1}), ElementsQuery(), {}
    )
    assert view.say == "Of its 8 elements 2 have succeeded, and 3 did not."
    counts = {count.word.text: (count.count, count.share, count.x) for count in view.counts}
    assert counts == {
        "Succeeded": ("2", 25.0, 0.0),
        "Failed": ("1", 12.5, 25.0),
        "Deleted": ("1", 12.5, 37.5),
        "Ended by the array": ("1", 12.5, 50.0),
        "Running": ("1", 12.5, 62.5),
        "Pending": ("1", 12.5, 75.0),
        "Not created yet": ("1", 12.5, 87.5),
    }


def test_only_elements_that_exist_and_have_no_result_are_read() -> None:
    workload = array("s.f.", {"Running": 1, "NotCreated": 1}, "3,5,7-8", created=3)
    assert elements.to_read(workload, ElementsQuery()) == ["a-5"]
    view = elements.build(workload, ElementsQuery(), {"a-5": "Running"})
    assert [(row.index, row.word.text, row.name and row.name.text) for row in view.rows] == [
        (3, "Succeeded", "a-3"),
        (5, "Running", "a-5"),
        (7, "Failed", "a-7"),
        (8, "Not created yet", None),
    ]


@pytest.mark.parametrize(
    ("wanted", "first", "text", "earlier", "later"),
    [
        (ElementsQuery(), 0, "1 to 50 of 10,000", "", "/workloads/ns/a?skip=50#elements"),
        (
            ElementsQuery("", 9_980),
            9_980,
            "9,981 to 10,000 of 10,000",
            "/workloads/ns/a?skip=9930#elements",
            "",
        ),
        (ElementsQuery("failed"), 9_999, "1 to 1 of 1", "", ""),
        (ElementsQuery("", 20_000), None, "none", "/workloads/ns/a?skip=19950#elements", ""),
    ],
    ids=["the first page", "the last page", "those that failed", "a page after the last one"],
)
def test_elements_come_page_by_page(
    wanted: ElementsQuery, first: int | None, text: str, earlier: str, later: str
) -> None:
    view = elements.build(array("s" * 9_999 + "f", {}), wanted, {})
    assert len(view.rows) <= ROWS
    assert (view.rows[0].index if view.rows else None) == first
    assert view.range == text
    assert view.earlier is None if not earlier else view.earlier.href == earlier
    assert view.later is None if not later else view.later.href == later
    assert (view.every is not None) == bool(wanted.kind)


# Relations. -----------------------------------------------------------------------------------


def test_dependencies_say_what_they_wait_for_and_whether_they_are_met() -> None:
    rows = (
        DependencyRow(workload="prep", uid="1", since=NOW),
        DependencyRow(workload="sweep", uid="2", condition="failed", index=3),
        DependencyRow(workload="each", uid="3", condition="started", elementwise=True),
    )
    of = relations.build(stored(dependencies=rows), "", NOW)
    assert [(row.name.text, row.text, row.word and row.word.text) for row in of.waits_for] == [
        ("prep", "to succeed", "Met at 12:00:00"),
        ("sweep", "to fail, element 3", "Not yet"),
        ("each", "to start, element by element", "Not yet"),
    ]
    assert of.waited_for is None


def test_what_waits_for_a_workload_is_named_when_it_was_looked_for() -> None:
    prep = stored("prep")
    rows = (DependencyRow(workload="prep", uid="uid-prep", condition="any"),)
    others = [stored("train", dependencies=rows), stored("other")]
    dependents = [each for each in others if relations.depends_on(each, prep.metadata.uid)]
    of = relations.build(prep, "", NOW, dependents)
    assert of.waited_for is not None
    assert [(row.name.text, row.text) for row in of.waited_for] == [
        ("train", "waits for it to end")
    ]


@pytest.mark.parametrize(
    ("issued", "plan"),
    [
        (False, "They are preempted when its checks have passed."),
        (True, "Their preemption has begun."),
    ],
)
def test_planned_victims_are_named_with_the_rule(issued: bool, plan: str) -> None:
    victim = PlannedVictim(namespace="ns", name="low", uid="1", reason="InClusterQueue")
    plans = PendingPreemption(victims=(victim,) * 3, issued=issued)
    of = relations.build(stored(pending_preemption=plans), "", NOW)
    assert of.plan == plan
    assert [(row.name.href, row.text) for row in of.victims] == [
        ("/workloads/ns/low", "InClusterQueue")
    ] * 3


@pytest.mark.parametrize(("role", "linked"), [("viewer", True), ("", True), ("user", False)])
def test_machines_are_named_with_pods_and_devices(role: str, linked: bool) -> None:
    part = PlacementPart(
        runner="gpu-1",
        id="1",
        pod_set="main",
        first=0,
        count=2,
        devices={"nvidia.com/gpu": ("2", "3")},
    )
    placement = (part, replace(part, first=2, count=1, devices={}))
    of = relations.build(stored(placement=placement), role, NOW)
    assert [(row.machine, row.pods, row.devices) for row in of.placed] == [
        ("gpu-1", "main-0 to main-1", "nvidia.com/gpu 2, 3"),
        ("gpu-1", "main-2", ""),
    ]
    assert all((row.link is not None) == linked for row in of.placed)
