"""Kueue's tables of waiting, active and parked workloads, and of what unparks them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from admittance.events.requests.queues import PendingQuery
from admittance.events.shapes import Refusal
from admittance.scheduling.cycle.cycle import flush, refusal_for
from admittance.scheduling.state.assignment import Cursor
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.equivalence import SavedCursor
from admittance.scheduling.state.queue import park_class, park_workload
from admittance.scheduling.state.workload_info import WorkloadInfo
from admittance.scheduling.state.workload_view import Inadmissible
from conformance.differences import PENDING
from conformance.tables import Given, cases, needs_data
from support.cores.stepped_scheduler import SteppedScheduler, groups

GENERIC = Inadmissible("PendingEvaluation", "was not nominated")
API = "kueue.x-k8s.io/v1beta2"
EVERYWHERE = {"namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO"}


def manifest(kind: str, name: str, spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def workload_in(given: Given, obj: dict[str, Any]) -> WorkloadInfo:
    """The workload as it stands, in a LocalQueue that leads to the one ClusterQueue."""
    meta, spec = obj["metadata"], obj["spec"]
    namespace, queue = meta.get("namespace", ""), spec.get("queueName", "q")
    if (namespace, queue) not in given.core.catalog.local_queues:
        given.put(manifest("LocalQueue", queue, {"clusterQueue": "cq"}, namespace=namespace))
    return given.workload({**obj, "spec": {**spec, "queueName": queue}})


def active(given: Given) -> list[str]:
    """The active workloads."""
    rows = given.core.pending(PendingQuery(limit=1_000)).rows
    return sorted(f"{row.namespace}/{row.name}" for row in rows if row.position and not row.parked)


def waiting(given: Given) -> list[str]:
    """The workloads that wait in a queue, parked or not."""
    rows = given.core.pending(PendingQuery(limit=1_000)).rows
    return [f"{row.namespace}/{row.name}" for row in rows if row.position]


def park(given: Given, member: WorkloadInfo) -> None:
    """Marks the workload as tried: it is not tried again until something changes."""
    assert member.queue is not None
    park_workload(member.queue, member, GENERIC, given.now)
    given.world.queue_changed(member.queue)


def flush_all(given: Given, queues: Iterable[str]) -> int:
    """Room may have come free at these queues; how many trees it changed."""
    domains = {}
    for name in queues:
        given.core.flush(name)
        domain = given.queue(name).domain
        if domain is not None:
            domains[domain.name] = domain
    for domain in domains.values():
        flush(domain, given.core.catalog, given.now)
    return len(domains)


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestClusterQueueImpl", PENDING))
def test_active_workloads_after_an_event_are_those_of_kueue(case: dict[str, Any]) -> None:
    table, want = case["given"], case["want"]
    selector = {"matchExpressions": [{"key": "dep", "operator": "In", "values": ["eng", "sales"]}]}
    queue = manifest("ClusterQueue", "cq", {**EVERYWHERE, "namespaceSelector": selector})
    spaces = {"ns1": "eng", "ns2": "sales", "ns3": "marketing", "": "eng"}
    given = Given({"now": table["now"], "clusterQueues": [queue]}, Config())
    for name, dep in spaces.items():
        given.put(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {"dep": dep}},
            }
        )
    for obj in table.get("workloadsToAdd", []):
        workload_in(given, obj)
    for raw in table.get("inadmissibleWorkloadsToRequeue", []):
        is_there = f"{raw['obj']['metadata'].get('namespace', '')}/{raw['obj']['metadata']['name']}"
        waits = is_there in active(given)
        member = workload_in(given, raw["obj"])
        if waits:
            given.world.requeue(member, given.now)  # It waits already, and so once.
        elif member.inadmissible is None:
            park(given, member)
    for raw in table.get("admissibleWorkloadsToRequeue", []):
        member = workload_in(given, raw["obj"])
        if member.is_due(given.now):
            given.world.requeue(member, given.now)
    for obj in table.get("workloadsToUpdate", []):
        workload_in(given, obj)
    for obj in table.get("workloadsToDelete", []):
        meta = obj["metadata"]
        given.revision += 1
        given.core.apply_workload(
            meta.get("namespace", ""), meta["name"], None, given.revision, now=given.now
        )
    before = len(active(given))
    if table.get("queueInadmissibleWorkloads"):
        flush_all(given, ["cq"])
    assert active(given) == want["activeWorkloads"]
    assert len(active(given)) - before == want["inadmissibleWorkloadsRequeued"]
    assert len(waiting(given)) == want["pending"]


def known(table: dict[str, Any], group: str = "localQueues") -> Given:
    """The queues of a case; a LocalQueue that leads nowhere leads to one that is not there."""
    queues = [
        {**obj, "spec": obj.get("spec") or {"clusterQueue": "nowhere"}}
        for obj in table.get(group, [])
    ]
    return Given({**table, "localQueues": queues, "workloads": []}, Config())


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestAddWorkload", PENDING))
def test_a_workload_waits_where_kueue_lets_it(case: dict[str, Any]) -> None:
    given = known(case["given"])
    obj = case["given"]["workload"]
    if "err" in case["want"]:
        _tell(given, obj)
        assert waiting(given) == []
    else:
        given.workload(obj)
        assert waiting(given) == list(case["want"]["assigned"])


def _tell(given: Given, obj: dict[str, Any]) -> None:
    """The current workload, even if the scheduler drops it afterwards."""
    try:
        given.workload(obj)
    except KeyError:
        assert "Finished" in str(obj)


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestUpdateWorkload", PENDING))
def test_an_update_takes_a_workload_to_where_it_belongs(case: dict[str, Any]) -> None:
    table = case["given"]
    given = known(table, "queues")
    for obj in table["workloads"]:
        given.workload(obj)
    given.workload(table["updatedWorkload"])
    for name, order in case["want"]["queueOrder"].items():
        rows = given.core.pending(PendingQuery(cluster_queue=name, limit=100)).rows
        ordered = sorted((row for row in rows if row.position), key=lambda row: row.position)
        assert [f"{row.namespace}/{row.name}" for row in ordered] == order


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestRequeueWorkloadStrictFIFO", PENDING))
def test_a_requeued_workload_waits_once_if_it_may(case: dict[str, Any]) -> None:
    table = case["given"]
    given = known(table)
    if table["inClient"]:
        obj = table["workload"]
        if "admission" in obj.get("status", {}):
            admission = {"clusterQueue": "cq", **obj["status"]["admission"]}
            obj = {**obj, "status": {**obj["status"], "admission": admission}}
        _tell(given, obj)
    assert (waiting(given) == ["/wl"] and not table["inQueue"]) is case["want"]["requeued"]


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestHeads", PENDING))
def test_each_active_queue_yields_its_head(case: dict[str, Any]) -> None:
    table = dict(case["given"])
    stopped = table["inactiveClusterQueues"]
    table["clusterQueues"] = [
        {**obj, "spec": {**obj["spec"], "stopPolicy": "Hold"}}
        if obj["metadata"]["name"] in stopped
        else obj
        for obj in table["clusterQueues"]
    ]
    given = Given(table, Config())
    heads = [
        queue.head()
        for domain in given.world.domains.values()
        for queue in domain.ready
        if queue.head() is not None
    ]
    assert sorted(head.key[1] for head in heads if head) == case["want"]["workloads"]
    assert sorted(waiting(given)) == sorted(case["want"]["assigned"])


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestQueueInadmissibleWorkloads", PENDING))
def test_a_change_brings_back_the_whole_tree_at_once(case: dict[str, Any]) -> None:
    table, want = case["given"], case["want"]
    given = Given({**table, "workloads": []}, Config())
    for raw in table["workloads"]:
        park(given, given.workload(raw.get("obj", raw)))
    assert active(given) == []
    assert flush_all(given, table["cqNames"]) == want["moveWorkloadsLogCount"]
    assert active(given) == sorted(key for keys in want["active"].values() for key in keys)


def a_scheduler(classes: dict[str, str]) -> SteppedScheduler:
    """Workloads of classes: each asks for another amount."""
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="0"))
    sizes = {name: n + 1 for n, name in enumerate(sorted({*classes.values(), "hash"}))}
    for name, cls in classes.items():
        scheduler.submit(name, "cq", str(sizes[cls]))
    return scheduler


def park_class_of(scheduler: SteppedScheduler, name: str, reason: str = "WaitingForQuota") -> None:
    """The workload's class found no place."""
    member = scheduler.core._state.workloads["ns", name]
    assert member.queue is not None and member.cls is not None
    park_class(member.queue, member.cls, Refusal(reason=reason, message=""), scheduler.now)


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestRecordInadmissibleHash", PENDING))
def test_a_class_is_parked_as_one(case: dict[str, Any]) -> None:
    table, want = case["given"], case["want"]
    scheduler = a_scheduler(table["heapWorkloads"])
    for name, cls in table["heapWorkloads"].items():
        if cls == table.get("hashToRecord"):
            park_class_of(scheduler, name)
            break
    assert len(scheduler.active()) == want["active"]
    assert len(scheduler.parked()) == want["inadmissible"] == want["moved"]


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestPushOrUpdateRespectsInadmissibleHashes"))
def test_a_workload_of_a_parked_class_is_parked(case: dict[str, Any]) -> None:
    table, want = case["given"], case["want"]
    scheduler = a_scheduler({cls: cls for cls in table["inadmissibleHashes"]})
    for cls in table["inadmissibleHashes"]:
        park_class_of(scheduler, cls)
    scheduler.submit("new", "cq", "1" if table["pushHash"] in table["inadmissibleHashes"] else "9")
    assert ("new" in scheduler.active()) is bool(want["active"])
    assert ("new" in scheduler.parked()) is bool(want["inadmissible"])


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestGetNoFitReason", PENDING))
def test_a_class_remembers_why(case: dict[str, Any]) -> None:
    table, want = case["given"], case["want"]
    scheduler = a_scheduler({"first": "hash"})
    if table["requeueReason"] == "NamespaceMismatch":
        member = scheduler.core._state.workloads["ns", "first"]
        assert member.queue is not None
        park_workload(member.queue, member, Inadmissible("Misconfigured", ""), scheduler.now)
    else:
        park_class_of(scheduler, "first", table["conditionReason"])
    if table["deleteFromInadmissible"]:
        scheduler.gone("first")
    scheduler.submit("second", "cq", "1")
    why = refusal_for(scheduler.core._state.workloads["ns", "second"])
    assert (why is not None) is want["ok"]
    assert why is None or why.reason == want["reason"]


@needs_data
@pytest.mark.parametrize("case", cases("queue/TestPushOrUpdateGenerationChanged"))
def test_a_changed_workload_competes_again_once_its_time_has_come(case: dict[str, Any]) -> None:
    table, want = case["given"], case["want"]
    queue = manifest("ClusterQueue", "cq", EVERYWHERE)
    given = Given({"now": table["now"], "clusterQueues": [queue]}, Config())
    new = table["updatedWorkload"]
    old = {**new, "spec": {**new["spec"], "priority": 0}}
    old.pop("status", None)
    park(given, workload_in(given, old))
    workload_in(given, new)
    assert len(active(given)) == want["activeWorkloads"]
    assert len(waiting(given)) - len(active(given)) == want["inadmissibleWorkloads"]


@needs_data
@pytest.mark.parametrize("case", cases("queue/Test_PushOrUpdate"))
def test_a_workload_that_is_pushed_twice_waits_once(case: dict[str, Any]) -> None:
    table, want = case["given"], case["want"]
    queue = manifest("ClusterQueue", "cq", EVERYWHERE)
    given = Given({"now": table["now"], "clusterQueues": [queue]}, Config())
    workload_in(given, table["workload"])
    workload_in(given, table["workload"])
    assert len(waiting(given)) == 1
    assert bool(active(given)) is ("workload" in want)
    assert len(want.get("inAdmissibleWorkloads", {})) == 1 - len(active(given))


CURSOR: Cursor = ({0: 1},)


@needs_data
@pytest.mark.parametrize(
    "case", cases("queue/TestAddOrUpdateWorkloadCarriesLastAssignment", PENDING)
)
def test_an_update_leaves_a_search_where_it_stopped(case: dict[str, Any]) -> None:
    table = case["given"]
    scheduler = a_scheduler({"one": "hash"})
    member = scheduler.core._state.workloads["ns", "one"]
    if table["inadmissible"]:
        park_class_of(scheduler, "one")
    assert member.cls is not None
    member.cursor = SavedCursor(CURSOR, 7, 3, member.cls)
    scheduler.submit("one", "cq", "2" if table["changeShape"] else "1", labels={"new": "yes"})
    assert (member.cursor is not None) is case["want"]["carried"]
