"""Kueue's tables of flavor assignment: one scan, with an oracle that answers what the case says."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from admittance.quota.cell import Cell
from admittance.scheduling.cycle.flavor_assigner import _better, assign, examine
from admittance.scheduling.cycle.nominate import most_of
from admittance.scheduling.cycle.refusals import refusal_of
from admittance.scheduling.state.assignment import Assignment, FlavorAssignmentMode
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.requests import Shapes
from admittance.scheduling.state.workload_info import WorkloadInfo
from conformance.differences import ASSIGN
from conformance.tables import Given, cases, needs_data, read
from support.builders import an_object

MODES = {
    "noFit": FlavorAssignmentMode.NO_FIT,
    "noPreemptionCandidates": FlavorAssignmentMode.NO_CANDIDATES,
    "preempt": FlavorAssignmentMode.PREEMPT,
    "reclaim": FlavorAssignmentMode.RECLAIM,
    "fit": FlavorAssignmentMode.FIT,
}
FORESEEN = {
    "NoCandidates": FlavorAssignmentMode.NO_CANDIDATES,
    "Preempt": FlavorAssignmentMode.PREEMPT,
    "Reclaim": FlavorAssignmentMode.RECLAIM,
}


def external(mode: int) -> str:
    """The mode as the tables have it: how others would have to go makes no difference."""
    return {FlavorAssignmentMode.NO_FIT: "NoFit", FlavorAssignmentMode.FIT: "Fit"}.get(
        FlavorAssignmentMode(mode), "Preempt"
    )


class Scan:
    """The case's workload assigned in the case's queue."""

    def __init__(self, given: dict[str, Any]) -> None:
        fair = CohortFairSharing() if given.get("enableFairSharing") else None
        self.given = Given({}, Config(as_kueue=True, preemption=True, fair_sharing=fair))
        first = given["clusterQueue"]
        self.name = first["metadata"]["name"]
        for obj in (*given.get("resourceFlavors", ()), *given.get("cohorts", ()), first):
            self.given.put(obj)
        others = [*given.get("otherClusterQueues", ()), *given.get("siblingCQs", ())]
        if "secondaryClusterQueue" in given:
            others.append(given["secondaryClusterQueue"])
        for obj in others:
            self.given.put(obj)
        for key in ("clusterQueueUsage", "testClusterQueueUsage", "cqUsage"):
            self.given.use(self.name, given.get(key, []))
        for key in ("secondaryClusterQueueUsage", "otherClusterQueueUsage"):
            if others:
                self.given.use(others[0]["metadata"]["name"], given.get(key, []))
        for queue, usage in given.get("siblingCQUsage", {}).items():
            self.given.use(queue, usage)
        for obj in given.get("deletedResourceFlavors", ()):
            name = obj["metadata"]["name"]
            self.given.revision += 1
            self.given.core.apply_object("ResourceFlavor", "", name, None, self.given.revision)
        self.member = self._workload(given)
        self.answers = {
            (result["flavor"], result["resource"]): (
                FORESEEN[result["preemptionPossibility"]],
                result.get("borrowingAfterSimulation", 0),
            )
            for result in given.get("simulationResult", ())
        }

    def _workload(self, given: dict[str, Any]) -> WorkloadInfo:
        workload = given.get("workload") or an_object(
            "Workload",
            "wl",
            {"podSets": given["wlPods"]},
            namespace="ns",
            status={"reclaimablePods": given.get("wlReclaimablePods", [])},
        )
        return self.given.workload(workload)

    @property
    def plan(self) -> FlavorPlan:
        """The queue, ready for assigning."""
        plan = self.given.queue(self.name).plan
        assert plan is not None
        return plan

    def oracle(self, cell: Cell, amount: int) -> tuple[int, int]:
        """The preemptions that the case expects."""
        return self.answers.get(cell.fr, (FlavorAssignmentMode.PREEMPT, 0))

    def run(self) -> Assignment:
        """The scan."""
        assert self.member.shape is not None
        return assign(self.plan, self.member.shape, oracle=self.oracle)


def flavors_of(scan: Scan, assignment: Assignment) -> list[dict[str, tuple[str, str, int]]]:
    """Per pod set, resource to flavor, mode, and where the scan stopped."""
    answer: list[dict[str, tuple[str, str, int]]] = []
    for index, place in enumerate(assignment.places):
        row = {}
        for resource, flavor in place.flavors.items():
            at = scan.plan.groups[resource].at
            stop = assignment.cursor[index].get(at, -1) if assignment.cursor is not None else -1
            mode = "Preempt" if (flavor, resource) in assignment.contested else "Fit"
            row[resource] = (flavor, mode, stop)
        answer.append(row)
    return answer


FULL = [
    pytest.param(case, id=f"{table}: {case['name']}")
    for table in ("TestAssignFlavors", "TestDeletedFlavors")
    for case in read(f"flavorassigner/{table}")
    if (table, case["name"]) not in ASSIGN
]


@needs_data
@pytest.mark.parametrize("case", FULL)
def test_flavors_are_assigned_as_kueue_assigns_them(case: dict[str, Any]) -> None:
    scan = Scan(case["given"])
    assignment = scan.run()
    want = case["want"]["assignment"]
    assert external(assignment.mode) == case["want"]["repMode"]
    assert flavors_of(scan, assignment) == [
        {
            resource: (of["name"], of["mode"], of.get("triedFlavorIdx", 0))
            for resource, of in ps["flavors"].items()
        }
        for ps in want["podSets"]
        if ps.get("flavors")
    ]
    assert {cell.fr: much for cell, much in assignment.usage.items()} == {
        (quota["flavor"], quota["resource"]): quota.get("value", 0)
        for quota in want["usage"]["quota"]["assigned"]
    }
    if assignment.mode != FlavorAssignmentMode.NO_FIT:
        assert assignment.level == want.get("borrowing", 0)
    else:
        assert refusal_of(assignment).reason == want["noFitReason"]


@needs_data
@pytest.mark.parametrize(
    "case", [*cases("flavorassigner/TestHierarchical"),
             *cases("flavorassigner/TestReclaimBeforePriorityPreemption")]
)  # fmt: skip
def test_the_flavor_is_the_one_that_kueue_takes(case: dict[str, Any]) -> None:
    assignment = Scan(case["given"]).run()
    assert external(assignment.mode) == case["want"]["mode"]
    (place,) = assignment.places
    assert place.flavors == case["want"]["flavors"]


@needs_data
@pytest.mark.parametrize("case", cases("flavorassigner/TestAssignFlavorsWithAllowedFlavors"))
def test_allowed_flavors_are_those_of_kueue(case: dict[str, Any]) -> None:
    assignment = Scan(case["given"]).run()
    assert external(assignment.mode) == case["want"]["repMode"]
    if assignment.mode == FlavorAssignmentMode.FIT:
        assert assignment.places[0].flavors == {"cpu": case["want"]["flavor"]}


REASONS = cases(
    "flavorassigner/TestIsNoFitDueToCapacityAndLimits",
    {name: why for (table, name), why in ASSIGN.items() if table.startswith("TestIsNoFit")},
)


@needs_data
@pytest.mark.parametrize("case", REASONS)
def test_the_reason_of_a_flavor_is_that_of_kueue(case: dict[str, Any]) -> None:
    scan = Scan(case["given"])
    assignment = scan.run()
    want = case["want"]
    assert (
        refusal_of(assignment).reason if assignment.mode == FlavorAssignmentMode.NO_FIT else None
    ) == want.get("noFitReason")
    assert scan.member.shape is not None
    verdicts = examine(scan.plan, scan.member.shape)
    for flavor, reason in want["flavorAttempts"].items():
        reasons = {
            obstacle.reason
            for verdict in verdicts
            if verdict.option.flavor == flavor
            for obstacle in verdict.obstacles
        }
        assert reason in reasons if reason else not reasons, flavor


@needs_data
@pytest.mark.parametrize("case", cases("flavorassigner/TestIsPreferred"))
def test_the_better_flavor_is_the_one_that_kueue_prefers(case: dict[str, Any]) -> None:
    config = case["given"].get("config", {})
    plan = FlavorPlan(
        queue="cq",
        groups={},
        covers_pods=False,
        borrow_next=config.get("whenCanBorrow") == "TryNextFlavor",
        preempt_next=config.get("whenCanPreempt") == "TryNextFlavor",
        preemption_first=config.get("preference") == "PreemptionOverBorrowing",
    )
    a, b = (
        (MODES[granted["preemptionMode"]], granted.get("borrowingLevel", 0))
        for granted in (case["given"]["a"], case["given"]["b"])
    )
    assert _better(plan, *a, *b) is case["want"].get("preferred", False)


@needs_data
@pytest.mark.parametrize("case", cases("flavorassigner/TestSearch"))
def test_as_many_pods_are_found_as_kueue_finds(case: dict[str, Any]) -> None:
    limit = case["given"]["countLimit"]
    spec = {"podSets": case["given"]["podSets"]}
    shape = Shapes().needs(msgspec.Raw(json.dumps(spec).encode())).shape
    counts = [(ps.count, ps.min_count) for ps in shape.pod_sets]
    most = most_of(counts, lambda tried: sum(tried) if sum(tried) <= limit else None)
    want = case["want"]
    assert most == (want.get("count", 0) if want.get("found") else None)
