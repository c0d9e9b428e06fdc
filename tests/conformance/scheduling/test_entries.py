"""Kueue's tables of single entries: how two compare, where a search goes on, what is kept of it;
and those of priorities."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.events.facts import Preempted
from admittance.quota.cell import FlavorResource
from admittance.quota.tree import Node
from admittance.scheduling.cycle.process import CycleEntry, EntryStatus
from admittance.scheduling.fairsharing import fair_sharing_iterator
from admittance.scheduling.fairsharing.shares import Share
from admittance.scheduling.state.assignment import FIT, PREEMPT, Assignment
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.equivalence import EquivalenceClass, SavedCursor
from admittance.scheduling.state.requests import Shapes
from admittance.scheduling.state.workload_info import Queue
from admittance.scheduling.state.workload_view import view_of
from admittance.workload import stored
from conformance.differences import ENTRIES
from conformance.tables import Given, cases, needs_data
from support.cores.stepped_scheduler import SteppedScheduler, groups


def a_head() -> tuple[SteppedScheduler, Queue, CycleEntry]:
    """The head of a queue, as it is dealt with."""
    scheduler = SteppedScheduler(Config(as_kueue=True, preemption=True))
    scheduler.queue("cq", resourceGroups=groups(default="0"))
    scheduler.submit("one", "cq", "1")
    queue = scheduler.core._state.queues["cq"]
    member = queue.head()
    assert member is not None
    assignment = Assignment()
    assignment.mode = PREEMPT
    assignment.cursor = ({0: 1},)
    return scheduler, queue, CycleEntry(queue, member, (assignment, ()))


@needs_data
@pytest.mark.parametrize("case", cases("scheduler/TestLastAssignmentOutdated", ENTRIES))
def test_a_search_continues_unless_kueue_restarts_it(case: dict[str, Any]) -> None:
    args = case["given"]["args"]
    scheduler, queue, entry = a_head()
    member, domain = entry.workload, queue.domain
    assert domain is not None and member.cls is not None
    last = args["last"]
    same = args.get("currentSchedulingHash") == last.get("schedulingHash")
    owner = member.cls if same else EquivalenceClass((0, *member.cls.key[1:]))
    then = queue.generation + domain.generation
    member.cursor = SavedCursor(({0: 1},), last["schedulingCycle"], then, owner)
    queue.generation += args.get("currentCQGeneration", 0)
    cursor = scheduler.core._cycle._cursor(domain, queue, member, args["currentSchedulingCycle"])
    assert (cursor is None) is case["want"]["result"]


@needs_data
@pytest.mark.parametrize("case", cases("scheduler/TestEntryMarkSkipped", ENTRIES))
def test_a_skipped_entry_continues_its_search(case: dict[str, Any]) -> None:
    scheduler, queue, entry = a_head()
    assert queue.domain is not None
    scheduler.core._cycle.requeue(queue.domain, entry, EntryStatus.SKIPPED, scheduler.now)
    assert (entry.workload.cursor is None) is case["want"]["lastAssignmentNil"]


@needs_data
@pytest.mark.parametrize("case", cases("scheduler/TestEntryMarkPreemptionOutcome", ENTRIES))
def test_a_preempting_entry_keeps_its_place_and_restarts_its_search(case: dict[str, Any]) -> None:
    assert case["want"]["requeueReason"] == "PendingPreemption"
    scheduler, queue, entry = a_head()
    assert queue.domain is not None
    scheduler.core._cycle.requeue(queue.domain, entry, EntryStatus.PREEMPTING, scheduler.now)
    assert (entry.workload.cursor is None) is case["want"]["lastAssignmentNil"]
    assert queue.preemptor is entry.workload


@needs_data
@pytest.mark.parametrize("case", cases("scheduler/TestRequeueAndUpdate", ENTRIES))
def test_an_entry_is_requeued_as_in_kueue(case: dict[str, Any]) -> None:
    scheduler, queue, entry = a_head()
    assert queue.domain is not None
    entry.assignment.cursor = None
    outcome = {
        "": EntryStatus.INADMISSIBLE,
        "skipped": EntryStatus.SKIPPED,
        "preemptionGated": EntryStatus.GATED,
    }[case["given"]["entry"]["status"]]
    scheduler.core._cycle.requeue(queue.domain, entry, outcome, scheduler.now)
    assert bool(scheduler.active()) is bool(case["want"]["workloads"])
    assert bool(scheduler.parked()) is bool(case["want"]["inadmissible"])


@needs_data
@pytest.mark.parametrize("case", cases("scheduler/TestEntryComparerLess", ENTRIES))
def test_two_entries_compare_by_shares_as_in_kueue(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = case["given"]
    drs = {value["key"]["workloadKey"]: value for value in table.get("drsValues", [])}
    given = Given({}, Config(as_kueue=True))
    keys = []
    for side in ("a", "b"):
        obj = table[side]["obj"]
        name = f"default/{obj['metadata']['name']}"
        shares = drs.get(name, {})

        def share(node: Node, shares: dict[str, Any] = shares) -> Share:
            ratio, weight = shares.get("unweightedRatio", 0), shares.get("fairWeight", 1)
            return Share(ratio, weight, shares.get("borrowing", False))

        def borrows(node: Node, frs: list[FlavorResource], shares: dict[str, Any] = shares) -> bool:
            lent = {(quota["flavor"], quota["resource"]) for quota in shares.get("borrowedFRs", [])}
            return bool(lent & set(frs))

        monkeypatch.setattr(fair_sharing_iterator, "share_of", share)
        monkeypatch.setattr(fair_sharing_iterator, "is_borrowing_on", borrows)
        node = Node(name, is_cohort=False)
        assignment = Assignment()
        assignment.mode = FIT
        for amount in table.get("requestedFRs", {}).get(name, []):
            assignment.usage[node.cell((amount["flavor"], amount["resource"]))] = amount["value"]
        member = given.workload({**obj, "spec": {"podSets": []}})
        keys.append(
            fair_sharing_iterator._key(
                CycleEntry(given.world.queue("cq"), member, (assignment, ())), node
            )
        )
    assert (keys[0] < keys[1]) is case["want"]["less"]


@needs_data
@pytest.mark.parametrize("case", cases("preemption/TestIssuePreemptionsSkipsDuplicate"))
def test_an_evicted_workload_is_not_preempted_again(case: dict[str, Any]) -> None:
    """The incoming workload asks for all that is left, so that it has to preempt."""
    table = dict(case["given"])
    (queue,) = table["clusterQueues"]
    group = queue["spec"]["resourceGroups"][0]
    group["flavors"][0]["resources"][0]["nominalQuota"] = "2"
    table["clusterQueues"] = [{**queue, "spec": {**queue["spec"], "resourceGroups": [group]}}]
    lq = {"kind": "LocalQueue", "apiVersion": queue["apiVersion"], "metadata": {"name": "lq"}}
    table["localQueues"] = [{**lq, "spec": {"clusterQueue": table["targetCQ"]}}]
    incoming = {**table["incoming"], "spec": {**table["incoming"]["spec"], "queueName": "lq"}}
    given = Given(table, Config(as_kueue=True, preemption=True))
    given.workload(incoming)
    preemptions = []
    for _ in range(2):
        preemptions.append(
            [
                decision
                for decision in given.core.cycle(now=given.now)
                if isinstance(decision, Preempted)
            ]
        )
    assert [(f"/{preemption.name}", preemption.reason) for preemption in preemptions[0]] == [
        (target["workload"], target["reason"]) for target in case["want"]["observedTargets"]
    ]
    assert len(preemptions[1]) == case["want"]["statusPatchesSecondCall"]


@needs_data
@pytest.mark.parametrize("case", cases("flavorassigner/TestAssignment_RequiresBorrowing"))
def test_a_level_above_the_queue_is_borrowing(case: dict[str, Any]) -> None:
    assignment = Assignment()
    assignment.level = case["given"].get("borrowing", 0)
    assert (assignment.level > 0) is case["want"]["result"]


def _priority(obj: dict[str, Any]) -> int:
    """The effective priority of a workload."""
    meta = {"name": "w", "namespace": "ns", **obj.get("metadata", {})}
    return Given({}, Config()).workload({"spec": {}, **obj, "metadata": meta}).priority


@needs_data
@pytest.mark.parametrize("case", cases("priority/TestPriority"))
def test_a_workload_without_priority_has_0(case: dict[str, Any]) -> None:
    assert _priority(case["given"]["workload"]) == case["want"]["want"]


@needs_data
@pytest.mark.parametrize("case", cases("priority/TestEffectivePriority", ENTRIES))
def test_the_effective_priority_is_that_of_kueue(case: dict[str, Any]) -> None:
    assert _priority(case["given"]["workload"]) == case["want"]["priority"]


@needs_data
@pytest.mark.parametrize("case", cases("preemption/TestPriorityInfo", ENTRIES))
def test_the_priority_that_preemption_looks_at_is_that_of_kueue(case: dict[str, Any]) -> None:
    assert _priority(case["given"]["wl"]) == case["want"]["effective"]


@needs_data
@pytest.mark.parametrize("case", cases("priority/TestPriorityBoost", ENTRIES))
def test_a_boost_counts_as_in_kueue(case: dict[str, Any]) -> None:
    given = case["given"]["workload"]
    assert _priority(given) - (given.get("spec", {}).get("priority") or 0) == case["want"]["boost"]


@needs_data
@pytest.mark.parametrize("case", cases("flavorassigner/TestAssignment_TotalRequestsFor"))
def test_a_workload_requests_as_much_as_in_kueue(case: dict[str, Any]) -> None:
    places = case["given"]["fields"]["podSets"]
    obj = case["given"]["args"]["wl"]["obj"]
    facts = view_of(stored.decode(msgspec.json.encode(obj)), Shapes(), Config())
    scaled = facts.needs.shape.scaled([place["count"] for place in places])
    total: dict[tuple[str, str], int] = {}
    for place, amounts in zip(places, scaled.totals, strict=True):
        for resource, much in amounts:
            if resource in place["flavors"]:
                key = place["flavors"][resource]["name"], resource
                total[key] = total.get(key, 0) + much
    want = case["want"]["totalRequests"]
    assert total == {(quota["flavor"], quota["resource"]): quota.get("value", 0) for quota in want}
