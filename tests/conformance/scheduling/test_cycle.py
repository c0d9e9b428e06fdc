"""Kueue's tables of what happens within a cycle and from one to the next."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.meta import Condition
from admittance.events.facts import Assigned
from admittance.scheduling.cycle.cycle import _order
from admittance.scheduling.cycle.process import CycleEntry, EntryStatus, held_back
from admittance.scheduling.state.assignment import FIT, PREEMPT, Assignment
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.queue import park_workload
from admittance.scheduling.state.workload_view import Inadmissible
from admittance.workload import stored
from admittance.workload.stored import WorkloadStatus
from conformance.differences import ENTRY_ORDER
from conformance.tables import Given, cases, needs_data, read
from support.cores.stepped_scheduler import SteppedScheduler, groups


@needs_data
@pytest.mark.parametrize("case", cases("scheduler/TestResourcesToReserve"))
def test_as_much_quota_is_held_as_kueue_holds(case: dict[str, Any]) -> None:
    table = case["given"]
    name = table["clusterQueue"]["metadata"]["name"]
    given = Given(
        {"resourceFlavors": table["resourceFlavors"]}, Config(as_kueue=True, preemption=True)
    )
    given.put(table["clusterQueue"])
    given.use(name, table["cqUsage"])
    assignment = Assignment()
    assignment.mode = PREEMPT
    assignment.level = table["borrowing"]
    for quota in table["assignmentUsage"]:
        assignment.usage[given.cell(name, quota["flavor"], quota["resource"])] = quota["value"]
    if table["assignmentMode"] == "Fit":
        # A workload that fits is charged in full.
        assignment.mode = FIT
        held = {cell.fr: amount for cell, amount in assignment.usage.items()}
    else:
        held = {cell.fr: amount for cell, amount in held_back(assignment)}
    want = {
        (quota["flavor"], quota["resource"]): quota.get("value", 0)
        for quota in case["want"]["reserved"]
    }
    assert held == want


@needs_data
@pytest.mark.parametrize("case", cases("scheduler/TestEntryOrdering", ENTRY_ORDER))
def test_entries_come_in_the_order_of_kueue(case: dict[str, Any]) -> None:
    ordering = case["given"].get("workloadOrdering", {})
    stamp = ordering.get("podsReadyRequeuingTimestamp", "Eviction")
    given = Given({}, Config(as_kueue=True, preemption=True, requeuing_timestamp=stamp))
    queue = given.world.queue("cq")
    entries = []
    for raw in case["given"]["input"]:
        assignment = Assignment()
        assignment.mode = FIT
        assignment.level = raw.get("assignment", {}).get("borrowing", 0)
        entries.append(CycleEntry(queue, given.workload(raw["obj"]), (assignment, ())))
    entries.sort(key=_order)
    assert [entry.workload.key[1] for entry in entries] == case["want"]["order"]


@needs_data
@pytest.mark.parametrize("case", cases("scheduler/TestLastSchedulingContext"))
def test_the_second_cycle_continues_after_the_first_as_in_kueue(
    case: dict[str, Any],
) -> None:
    table = case["given"]
    given = Given(table, Config(as_kueue=True, preemption=True, partial_admission=True))
    known = {
        (raw["metadata"].get("namespace", ""), raw["metadata"]["name"]): stored.decode(
            msgspec.json.encode(raw)
        )
        for raw in table["workloads"]
    }
    admitted = {
        key: {place.name: place.flavors for place in workload.status.admission.pod_set_assignments}
        for key, workload in known.items()
        if workload.status.admission is not None
    }

    def cycle() -> None:
        given.now += timedelta(seconds=1)
        for decision in given.core.cycle(now=given.now):
            if not isinstance(decision, Assigned):
                continue
            key = decision.namespace, decision.name
            admitted[key] = {ps.name: ps.flavors for ps in decision.admission.pod_set_assignments}
            reserved = Condition(
                type="QuotaReserved", status="True", last_transition_time=given.now
            )
            status = WorkloadStatus(conditions=(reserved,), admission=decision.admission)
            given.revision += 1
            given.core.apply_workload(
                *key,
                msgspec.structs.replace(known[key], status=status),
                given.revision,
                now=given.now,
            )

    cycle()
    for gone in table.get("deleteWorkloads", ()):
        given.revision += 1
        given.core.apply_workload(
            gone["namespace"], gone["name"], None, given.revision, now=given.now
        )
        admitted.pop((gone["namespace"], gone["name"]), None)
    cycle()
    assert admitted == {
        tuple(key.split("/")): {
            ps["name"]: ps.get("flavors", {}) for ps in admission["podSetAssignments"]
        }
        for key, admission in case["want"]["admissionsOnSecondSchedule"].items()
    }


OUTCOMES = {
    "FailedAfterNomination": EntryStatus.SKIPPED,
    "PendingPreemption": EntryStatus.WAITING,
    "NoFit": EntryStatus.INADMISSIBLE,
    "PreemptionNoCandidates": EntryStatus.INADMISSIBLE,
    "PreemptionGated": EntryStatus.GATED,
    "": EntryStatus.INADMISSIBLE,
}


def _settled(case: dict[str, Any], strategy: str) -> SteppedScheduler:
    """One waiting workload, after a cycle that had this outcome for it."""
    table = case["given"]
    scheduler = SteppedScheduler(Config(as_kueue=True, preemption=True))
    scheduler.queue("cq", resourceGroups=groups(default="0"), queueingStrategy=strategy)
    scheduler.submit("one", "cq", "1")
    if table.get("reason") == "NamespaceMismatch":
        scheduler.queue(
            "cq",
            resourceGroups=groups(default="0"),
            queueingStrategy=strategy,
            namespaceSelector={"matchLabels": {"dep": "eng"}},
        )
        scheduler.cycle()
        return scheduler
    queue = scheduler.core._state.queues["cq"]
    member = queue.head()
    assert member is not None and queue.domain is not None
    assignment = Assignment()
    assignment.mode = PREEMPT
    last = table.get("lastAssignment", {}).get("lastTriedFlavorIdx", [])
    if any(at != -1 for of in last for at in of.values()):
        assignment.cursor = tuple({0: max(of.values())} for of in last)
    entry = CycleEntry(queue, member, (assignment, ()))
    outcome = OUTCOMES[table.get("reason", "")]
    scheduler.core._cycle.requeue(queue.domain, entry, outcome, scheduler.now)
    return scheduler


REQUEUED = [
    pytest.param(case, strategy, id=f"{strategy}: {case['name']}")
    for strategy, table in (
        ("BestEffortFIFO", "queue/TestBestEffortFIFORequeueIfNotPresent"),
        ("StrictFIFO", "queue/TestStrictFIFORequeueIfNotPresent"),
    )
    for case in read(table)
    if case["given"].get("reason") != "PreemptionFailed"  # our evictions are facts: see `undo`
]


@needs_data
@pytest.mark.parametrize(("case", "strategy"), REQUEUED)
def test_a_head_is_requeued_as_in_kueue(case: dict[str, Any], strategy: str) -> None:
    scheduler = _settled(case, strategy)
    assert (scheduler.parked() == ["one"]) is case["want"].get("inadmissible", False)
    if "sticky" in case["want"]:
        queue = scheduler.core._state.queues["cq"]
        assert (queue.preemptor is not None) is case["want"]["sticky"]


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestRequeueHashTriggerByReason"))
def test_equals_are_parked_together_when_kueue_does_so(case: dict[str, Any]) -> None:
    if case["given"].get("reason", "") == "":
        # A workload that was not nominated is set aside by itself.
        scheduler = SteppedScheduler(Config(as_kueue=True))
        scheduler.queue("cq", resourceGroups=groups(default="0"))
        scheduler.submit("one", "cq", "1")
        queue = scheduler.core._state.queues["cq"]
        member = queue.head()
        assert member is not None
        park_workload(queue, member, Inadmissible("PendingEvaluation", ""), scheduler.now)
    else:
        scheduler = _settled(case, "BestEffortFIFO")
    scheduler.submit("same", "cq", "1")
    assert ("same" in scheduler.parked()) is case["want"].get("hash", False)
