"""Kueue's tables of preemption: the victims of one workload with a given assignment."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.quota.cell import Cell
from admittance.scheduling.fairsharing.shares import share_of
from admittance.scheduling.preemption import fair_sharing
from admittance.scheduling.preemption.candidates import allows, leaving_first
from admittance.scheduling.preemption.classical import search
from admittance.scheduling.preemption.fair_sharing import Targets
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.scheduling.state.workload_info import WorkloadInfo
from conformance.differences import ORDERING, POLICIES
from conformance.tables import Given, cases, needs_data, read


def asked(
    given: Given, case: dict[str, Any], member: WorkloadInfo
) -> tuple[dict[Cell, int], dict[tuple[str, str], None]]:
    """The quota of the case's assignment, and the resources that victims must release."""
    assert member.shape is not None
    need: dict[Cell, int] = {}
    contested: dict[tuple[str, str], None] = {}
    totals = {
        ps.name: dict(amounts)
        for ps, amounts in zip(member.shape.pod_sets, member.shape.totals, strict=True)
    }
    for ps in case["given"]["assignment"]["podSets"]:
        for resource, of in ps.get("flavors", {}).items():
            cell = given.cell(case["given"]["targetCQ"], of["name"], resource)
            need[cell] = need.get(cell, 0) + totals[ps["name"]].get(resource, 0)
            if of["mode"] == "Preempt":
                contested[cell.fr] = None
    return need, contested


CASES = [
    pytest.param(case, id=f"{table}: {case['name']}")
    for table in ("TestPreemption", "TestHierarchicalPreemptions")
    for case in read(f"preemption/{table}")
]


@needs_data
@pytest.mark.parametrize("case", CASES)
def test_victims_are_those_that_kueue_selects(case: dict[str, Any]) -> None:
    given = Given(case["given"], Config(as_kueue=True, preemption=True))
    member = given.workload(case["given"]["incoming"])
    need, contested = asked(given, case, member)
    before = given.usage()
    queue = given.queue(case["given"]["targetCQ"])
    victims = search(given.world.queues, queue, member, need, contested)
    assert given.usage() == before, "the search leaves the picture as it was"
    targets = sorted(
        (f"{victim.workload.key[0]}/{victim.workload.key[1]}", victim.reason) for victim in victims
    )
    want = case["want"].get("observedTargets", [])
    assert targets == sorted((target["workload"], target["reason"]) for target in want)


def holding(obj: dict[str, Any], queue: str) -> dict[str, Any]:
    """The workload with quota of the queue: the tables leave it out where it makes no difference,
    but a workload without quota is not a candidate here."""
    status = obj.get("status", {})
    if "admission" in status:
        return obj
    reserved = {"type": "QuotaReserved", "status": "True"}
    conditions = [*status.get("conditions", ()), reserved]
    admission = {"clusterQueue": queue}
    return {**obj, "status": {**status, "admission": admission, "conditions": conditions}}


@needs_data
@pytest.mark.parametrize("case", cases("preemption/TestCandidatesOrdering", ORDERING))
def test_candidates_come_in_the_order_of_kueue(case: dict[str, Any]) -> None:
    given = Given({"now": case["given"]["now"]}, Config(as_kueue=True, preemption=True))
    own = case["given"]["preemptorClusterQueue"]
    members = [
        given.workload(holding(candidate["obj"], candidate.get("clusterQueue", own)))
        for candidate in case["given"]["candidates"]
    ]
    others, mine = (
        sorted(
            member.candidate
            for member in members
            if member.candidate is not None
            and member.charge is not None
            and (member.charge.queue.name == own) is is_own
        )
        for is_own in (False, True)
    )
    assert [entry[4].key[1] for entry in leaving_first([*others, *mine])] == case["want"][
        "candidates"
    ]


@needs_data
@pytest.mark.parametrize("case", cases("preemption/TestSatisfiesPreemptionPolicy", POLICIES))
def test_a_policy_allows_the_victims_that_kueue_allows(case: dict[str, Any]) -> None:
    given = Given({"now": case["given"]["now"]}, Config(as_kueue=True, preemption=True))
    preemptor, other = (given.workload(case["given"][role]) for role in ("preemptor", "candidate"))
    assert allows(case["given"]["policy"], preemptor, other) is case["want"].get("result", False)


@needs_data
@pytest.mark.parametrize("case", cases("preemption/TestFairPreemptions"))
def test_fair_sharing_selects_the_victims_that_kueue_selects(case: dict[str, Any]) -> None:
    table = case["given"]
    sharing = (
        CohortFairSharing(strategies=tuple(table["strategies"])) if "strategies" in table else None
    )
    config = Config(as_kueue=True, preemption=True, fair_sharing=sharing or CohortFairSharing())
    given = Given(table, config)
    # One case has an incoming workload that holds quota already; no process knows of that.
    member = given.workload({**table["incoming"], "status": {}})
    assert member.shape is not None and config.fair_sharing is not None
    flavor = table.get("assignmentFlavor", "default")
    cell = given.cell(table["targetCQ"], flavor, "cpu")
    need = {cell: sum(dict(amounts)["cpu"] for amounts in member.shape.totals)}
    before = given.usage()
    victims = fair_sharing.search(
        given.world.queues,
        given.queue(table["targetCQ"]),
        member,
        need,
        {cell.fr: None},
        config.fair_sharing.strategies,
    )
    assert given.usage() == before, "the search leaves the picture as it was"
    targets = [
        f"{victim.workload.key[0]}/{victim.workload.key[1]}:{victim.reason}" for victim in victims
    ]
    assert sorted(targets) == sorted(case["want"].get("preempted", []))


@needs_data
@pytest.mark.parametrize("case", cases("preemption/TestMakeClusterQueueOrdering"))
def test_queues_are_taken_from_in_the_order_of_kueue(case: dict[str, Any]) -> None:
    table = case["given"]
    given = Given(table, Config(as_kueue=True, preemption=True, fair_sharing=CohortFairSharing()))
    nodes = given.core.catalog.tree.queues
    candidates = {nodes[name]: list(given.queue(name).candidates) for name in table["candidateCQs"]}
    targets = Targets(nodes[table["preemptorCQ"]], candidates, share_of)
    actions = iter(table.get("actions", []))
    order = []
    for node in targets:
        order.append(node.name)
        if next(actions, "pop") == "drop":
            targets.drop(node)
        else:
            targets.pop(node)
    assert order == case["want"].get("order", [])
