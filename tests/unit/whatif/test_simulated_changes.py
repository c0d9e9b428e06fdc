"""The effects of a change, compared with what happens without the change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.api.checks import MACHINES_CHECK, MACHINES_CONTROLLER, PREEMPTS_AFTER_CHECK
from admittance.events.requests.manifests import Delete
from support.builders import an_object
from support.stored.system import (
    StoredSystem,
    a_job,
    a_local,
    a_queue,
    evictions,
    starts,
    waits,
)

LOWER = {"withinClusterQueue": "LowerPriority"}
RECLAIM = {"reclaimWithinCohort": "Any"}
NO_MACHINE = "no machine can start it: no runner has announced a machine"
CHECK = an_object("AdmissionCheck", "budget", {"controllerName": "example.com/check"})


def a_town(**spec: Any) -> StoredSystem:
    """One queue of two, a and b run, c and d wait."""
    town = StoredSystem()
    town.queue("cq", cpu={"spot": 2}, **spec)
    for name in "abcd":
        town.submit(name, "cq")
    return town


# Quotas. ------------------------------------------------------------------------------------


def test_raising_a_quota_starts_pending_workloads_in_order() -> None:
    reply = a_town().simulate(a_queue("cq", cpu={"spot": 3}))
    assert (starts(reply), waits(reply), evictions(reply)) == ({"c": "spot"}, {}, {})
    [start] = reply.starts
    assert start.after == 0
    assert start.otherwise is not None
    assert (start.otherwise.phase, start.otherwise.position) == ("Pending", 1)
    assert start.otherwise.reason == "WaitingForQuota"
    assert (reply.counts.run, reply.counts.pending) == (2, 1)
    assert [(result.name, result.outcome) for result in reply.results] == [("cq", "changed")]


def test_a_manifest_that_changes_nothing_makes_no_difference() -> None:
    town = a_town()
    reply = town.simulate(a_queue("cq", cpu={"spot": 2}), a_local("cq"))
    assert (reply.starts, reply.waits, reply.evictions) == ((), (), ())
    assert {result.outcome for result in reply.results} == {"unchanged"}
    assert (reply.counts.run, reply.counts.pending) == (2, 2)


def test_a_workload_that_no_machine_can_start_gets_a_warning() -> None:
    spec = {
        "controllerName": MACHINES_CONTROLLER,
        "preemptionPolicy": PREEMPTS_AFTER_CHECK,
        "onFlavors": ["spot"],
    }
    reply = a_town().simulate(an_object("AdmissionCheck", MACHINES_CHECK, spec), a_job("j", "cq"))
    assert [(result.name, result.warnings) for result in reply.results] == [
        ("machines", ()),
        ("j", (f"{NO_MACHINE}; it waits for another machine",)),
    ]


def test_lowering_a_quota_stops_no_job_and_warns() -> None:
    reply = a_town().simulate(a_queue("cq", cpu={"spot": 1}))
    assert (starts(reply), evictions(reply)) == ({}, {})
    [warning] = reply.warnings
    assert "ClusterQueue cq would use 2 of cpu in flavor spot, more than its limit of 1" in warning
    assert (reply.counts.run, reply.counts.pending) == (2, 2)


def test_lowering_a_quota_revokes_the_newest_reservations_first() -> None:
    town = StoredSystem(CHECK)
    town.queue("cq", cpu={"spot": 2}, admissionChecks=["budget"])
    town.submit("a", "cq")
    town.submit("b", "cq")
    reply = town.simulate(a_queue("cq", cpu={"spot": 1}, admissionChecks=["budget"]))
    assert evictions(reply) == {"b": "QuotaChanged"}
    [eviction] = reply.evictions
    assert not eviction.ran
    assert eviction.then is not None and eviction.then.position == 1
    assert waits(reply) == {"b": "WaitingForQuota"}
    assert reply.counts.reserved == 1


def test_a_quota_cut_evicts_running_jobs_if_the_queue_says_so() -> None:
    town = a_town(onQuotaCut="evict")
    reply = town.simulate(a_queue("cq", cpu={"spot": 1}, onQuotaCut="evict"))
    assert evictions(reply) == {"b": "QuotaChanged"}
    assert reply.evictions[0].ran
    assert reply.warnings == ()


def test_a_new_flavor_starts_pending_workloads_in_it() -> None:
    reply = a_town().simulate(a_queue("cq", cpu={"spot": 2, "steady": 1}))
    assert starts(reply) == {"c": "steady"}


def test_a_missing_flavor_makes_its_queue_inactive() -> None:
    reply = a_town().simulate(a_queue("cq", cpu={"spot": 2, "gold": 4}))
    assert starts(reply) == {}
    assert waits(reply) == {"c": "FlavorNotFound", "d": "FlavorNotFound"}
    assert "ClusterQueue cq becomes inactive" in reply.warnings[0]


def test_a_submission_to_an_inactive_queue_gets_a_warning() -> None:
    town = a_town()
    town.apply(a_queue("cq", cpu={"gold": 4}))
    reply = town.simulate(a_job("new", "cq"))
    assert waits(reply) == {"new": "FlavorNotFound"}
    [warning] = reply.warnings
    assert warning.startswith("ClusterQueue cq is inactive: Can't admit new workloads: references")
    # Nothing is said about the queue if nothing new waits there.
    assert town.simulate(an_object("ResourceFlavor", "other", {})).warnings == ()


# Stopping queues. ---------------------------------------------------------------------------


def test_hold_keeps_running_jobs_and_holds_the_others() -> None:
    reply = a_town().simulate(a_queue("cq", cpu={"spot": 4}, stopPolicy="Hold"))
    assert (starts(reply), evictions(reply)) == ({}, {})
    assert waits(reply) == {"c": "Stopped", "d": "Stopped"}
    assert reply.counts.run == 2
    assert "becomes inactive" in reply.warnings[0]


def test_hold_and_drain_evicts_running_jobs() -> None:
    reply = a_town().simulate(a_queue("cq", cpu={"spot": 4}, stopPolicy="HoldAndDrain"))
    assert evictions(reply) == {"a": "ClusterQueueStopped", "b": "ClusterQueueStopped"}
    assert set(waits(reply)) == set("abcd")
    assert reply.counts.run == 0


def test_resuming_a_queue_starts_its_held_workloads() -> None:
    town = StoredSystem()
    town.queue("cq", cpu={"spot": 2}, stopPolicy="Hold")
    town.submit("a", "cq")
    reply = town.simulate(a_queue("cq", cpu={"spot": 2}))
    assert starts(reply) == {"a": "spot"}
    assert reply.warnings == ()


def test_a_stopped_local_queue_drains_its_own_workloads_only() -> None:
    town = StoredSystem(a_queue("cq", cpu={"spot": 2}), a_local("one", "cq"), a_local("two", "cq"))
    town.submit("a", "one")
    town.submit("b", "two")
    town.submit("c", "two")
    reply = town.simulate(a_local("one", "cq", stopPolicy="HoldAndDrain"))
    assert evictions(reply) == {"a": "LocalQueueStopped"}
    assert starts(reply) == {"c": "spot"}
    assert reply.starts[0].after == 1


# Preemption. --------------------------------------------------------------------------------


def test_a_preemptor_starts_when_its_victim_has_stopped() -> None:
    town = StoredSystem()
    town.queue("cq", cpu={"spot": 2}, preemption=LOWER)
    town.submit("old", "cq")
    town.submit("new", "cq")
    reply = town.simulate(a_job("high", "cq", priority=10))
    assert evictions(reply) == {"new": "Preempted"}
    [eviction] = reply.evictions
    assert (eviction.rule, eviction.by, eviction.after) == ("InClusterQueue", "ns/high", 0)
    assert eviction.ran
    assert eviction.then is not None and eviction.then.reason == "WaitingForQuota"
    [start] = reply.starts
    assert (start.name, start.after, start.preempts) == ("high", 1, ("ns/new",))
    assert start.otherwise is None
    assert waits(reply) == {"new": "WaitingForQuota"}
    assert [(result.name, result.outcome) for result in reply.results] == [("high", "created")]


def test_a_victim_starts_again_in_another_flavor() -> None:
    town = StoredSystem()
    town.queue("cq", cpu={"spot": 2}, preemption=LOWER)
    town.submit("low", "cq", cpu=2)
    wider = a_queue(
        "cq",
        cpu={"spot": 2, "steady": 2},
        preemption=LOWER,
        flavorFungibility={"whenCanPreempt": "MayStopSearch"},
    )
    reply = town.simulate(wider, a_job("high", "cq", cpu=2, priority=1))
    assert evictions(reply) == {"low": "Preempted"}
    assert starts(reply) == {"high": "spot", "low": "steady"}
    again = {start.name: start.again for start in reply.starts}
    assert again == {"high": False, "low": True}
    [eviction] = reply.evictions
    assert eviction.then is not None and eviction.then.admission is not None
    assert waits(reply) == {}


def test_a_queue_that_joins_a_cohort_borrows_there() -> None:
    town = StoredSystem()
    town.queue("rich", "team", cpu={"spot": 4})
    town.queue("poor", cpu={"spot": 1})
    town.submit("a", "poor")
    town.submit("b", "poor")
    reply = town.simulate(a_queue("poor", "team", cpu={"spot": 1}))
    assert starts(reply) == {"b": "spot"}
    assert reply.counts.run == 1


def test_a_queue_that_joins_a_cohort_reclaims_its_quota() -> None:
    town = StoredSystem()
    town.queue("mine", cpu={"spot": 0}, preemption=RECLAIM)
    town.queue("lender", "team", cpu={"spot": 2})
    town.queue("borrower", "team", cpu={"spot": 0})
    town.submit("guest", "borrower", cpu=2)
    town.submit("waits", "mine", cpu=1)
    reply = town.simulate(
        a_queue("mine", "team", cpu={"spot": 1}, preemption=RECLAIM),
        a_queue("lender", "team", cpu={"spot": 1}),
    )
    assert evictions(reply) == {"guest": "Preempted"}
    assert reply.evictions[0].rule == "InCohortReclamation"
    assert starts(reply) == {"waits": "spot"}
    assert waits(reply) == {"guest": "WaitingForQuota"}


# Checks. ------------------------------------------------------------------------------------


def test_a_workload_with_a_check_reserves_quota_and_waits() -> None:
    town = StoredSystem(CHECK)
    town.queue("cq", cpu={"spot": 1}, admissionChecks=["budget"])
    town.submit("a", "cq")
    town.ready("a", "budget")
    reply = town.simulate(
        a_queue("cq", cpu={"spot": 2}, admissionChecks=["budget"]), a_job("b", "cq")
    )
    assert starts(reply) == {"b": "spot"}
    assert reply.starts[0].checks == ("budget",)


def test_without_its_check_a_reservation_is_admitted() -> None:
    town = StoredSystem(CHECK)
    town.queue("cq", cpu={"spot": 1}, admissionChecks=["budget"])
    town.submit("a", "cq")
    reply = town.simulate(a_queue("cq", cpu={"spot": 1}))
    assert starts(reply) == {"a": "spot"}
    [start] = reply.starts
    assert start.checks == ()
    assert start.otherwise is not None and start.otherwise.phase == "QuotaReserved"


# Workloads and deletions. -------------------------------------------------------------------


def test_a_new_workload_that_does_not_fit_waits_with_numbers() -> None:
    reply = a_town().simulate(a_job("e", "cq", cpu=2))
    [wait] = reply.waits
    assert (wait.name, wait.position, wait.reason) == ("e", 3, "WaitingForQuota")
    assert wait.otherwise is None
    assert [(s.flavor, s.resource, s.requested, s.available) for s in wait.shortfalls] == [
        ("spot", "cpu", 2000, 0)
    ]


def test_workloads_that_waited_before_are_not_listed_again() -> None:
    reply = a_town().simulate(a_queue("cq", cpu={"spot": 3}), a_job("e", "cq", priority=1))
    assert starts(reply) == {"e": "spot"}
    assert waits(reply) == {}
    assert reply.counts.pending == 2


def test_a_workload_with_a_used_name_would_be_refused() -> None:
    reply = a_town().simulate(a_job("a", "cq", cpu=2))
    [result] = reply.results
    assert result.outcome == "refused"
    assert "AlreadyExists" in result.warnings[0]


def test_deleting_a_workload_starts_the_next() -> None:
    reply = a_town().simulate(deletes=(Delete(kind="Workload", namespace="ns", name="a"),))
    assert evictions(reply) == {"a": "Deleted"}
    assert reply.evictions[0].then is None
    assert starts(reply) == {"c": "spot"}
    assert reply.counts.gone == 1


def test_deleting_a_local_queue_leaves_its_workloads_waiting_for_it() -> None:
    reply = a_town().simulate(deletes=(Delete(kind="LocalQueue", namespace="ns", name="cq"),))
    assert set(waits(reply)) == {"c", "d"}
    assert [(result.kind, result.outcome) for result in reply.results] == [
        ("LocalQueue", "deleted")
    ]


def test_an_object_in_use_would_be_deleted_later() -> None:
    reply = a_town().simulate(deletes=(Delete(kind="ResourceFlavor", name="spot"),))
    assert reply.error == ""
    [result] = reply.results
    assert result.outcome == "terminating"
    assert result.warnings == ("it is deleted once nothing uses it: ClusterQueue cq",)


def test_a_terminating_queue_admits_no_workload() -> None:
    bigger = a_town().simulate(a_queue("cq", cpu={"spot": 100}))
    assert starts(bigger)
    reply = a_town().simulate(
        a_queue("cq", cpu={"spot": 100}), deletes=(Delete(kind="ClusterQueue", name="cq"),)
    )
    assert [result.outcome for result in reply.results][-1] == "terminating"
    assert starts(reply) == {}
    assert reply.evictions == ()


def test_a_cluster_queue_can_be_simulated_with_new_workloads() -> None:
    town = StoredSystem()
    reply = town.simulate(
        a_queue("cq", cpu={"spot": 1}), a_local("cq"), a_job("a", "cq"), a_job("b", "cq")
    )
    assert starts(reply) == {"a": "spot"}
    assert waits(reply) == {"b": "WaitingForQuota"}


def test_a_job_is_simulated_as_a_workload() -> None:
    town = a_town()
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "labels": {"kueue.x-k8s.io/queue-name": "cq"},
        },
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}],
                }
            }
        },
    }
    assert waits(town.simulate(job)) == {"j": "WaitingForQuota"}


# What happens anyway. -----------------------------------------------------------------------


def test_events_without_the_change_are_not_listed() -> None:
    town = a_town()
    # Quota has been freed, and no scheduler has decided yet.
    quiet = StoredSystem()
    quiet.copy = town.copy
    entries = [entry for entry in town.entries() if not entry.key.startswith("workload.ns.a")]
    quiet.entries = lambda: entries  # type: ignore[method-assign]
    reply = quiet.simulate(a_queue("cq", cpu={"spot": 3}))
    assert starts(reply) == {"d": "spot"}
    assert reply.counts.run == 2


@pytest.mark.parametrize(("limit", "rows"), [(1, 1), (2, 2), (2**63, 2)])
def test_lists_are_cut_at_the_limit_and_counts_are_not(limit: int, rows: int) -> None:
    reply = a_town().simulate(a_queue("cq", cpu={"spot": 4}), limit=limit)
    assert len(reply.starts) == rows
    assert reply.counts.starts == 2


# Bad input. ---------------------------------------------------------------------------------


def test_all_mistakes_are_listed_and_nothing_is_simulated() -> None:
    bad = a_queue("cq", cpu={"spot": -1})
    unknown = an_object("ClusterQueue", "other", {"nominal": 3})
    reply = a_town().simulate(bad, unknown)
    assert reply.error
    assert any("object 1" in line and "nominalQuota" in line for line in reply.problems)
    assert any("object 2" in line and "spec.nominal" in line for line in reply.problems)
    assert reply.counts.starts == 0


@pytest.mark.parametrize(
    ("delete", "said"),
    [
        pytest.param(Delete(kind="", name="x"), "needs kind", id="no kind"),
        pytest.param(Delete(kind="ClusterQueue", name=""), "needs kind", id="no name"),
        pytest.param(Delete(kind="Workload", name="a"), "and namespace", id="no namespace"),
        pytest.param(Delete(kind="Cohort", name="x"), "Cohort x not found", id="not there"),
        pytest.param(Delete(kind="nonsense", name="x"), "nonsense x not found", id="no such kind"),
    ],
)
def test_an_invalid_deletion_is_a_mistake(delete: Delete, said: str) -> None:
    assert said in a_town().simulate(deletes=(delete,)).error


def test_a_workload_without_a_name_is_a_mistake() -> None:
    nameless = a_job("x", "cq")
    del nameless["metadata"]["name"]
    assert a_town().simulate(nameless).problems == ("object 1: metadata.name: must be set",)


def test_an_immutable_field_has_the_error_text_of_apply() -> None:
    town = StoredSystem(CHECK)
    other = an_object("AdmissionCheck", "budget", {"controllerName": "example.com/other"})
    reply = town.simulate(other)
    assert any("AdmissionCheck budget" in line for line in reply.problems)


def test_a_request_for_one_namespace_changes_nothing_else() -> None:
    reply = a_town().simulate(a_queue("cq", cpu={"spot": 3}), namespace="ns")
    assert reply.problems == ("object 1: is not in the namespace ns",)


def test_a_request_for_one_namespace_lists_only_its_workloads() -> None:
    town = StoredSystem()
    town.queue("cq", cpu={"spot": 1}, preemption=LOWER)
    town.apply(an_object("LocalQueue", "cq", {"clusterQueue": "cq"}, "other"))
    town.submit("low", "cq")
    high = a_job("high", "cq", priority=1)
    high["metadata"]["namespace"] = "other"
    reply = town.simulate(high, namespace="other")
    assert starts(reply) == {"high": "spot"}
    assert (evictions(reply), reply.counts.evictions) == ({}, 1)


@pytest.mark.parametrize("kind", ["Workload", "Job", "ClusterQueue", "AdmissionCheck"])
@pytest.mark.parametrize(
    "rest",
    [
        pytest.param({"apiVersion": "apps/v1", "metadata": {"name": "x"}}, id="a foreign group"),
        pytest.param({"apiVersion": 7}, id="a version that is a number"),
        pytest.param({}, id="no version"),
        pytest.param({"apiVersion": "batch/v1", "metadata": [], "spec": "x"}, id="other shapes"),
    ],
)
def test_hostile_objects_are_refused_or_simulated(kind: str, rest: dict[str, Any]) -> None:
    reply = a_town().simulate({"kind": kind, **rest})
    is_foreign = rest.get("apiVersion") == "apps/v1"
    assert bool(reply.error) is not is_foreign, reply


def test_a_simulated_preemptor_waits_for_workloads_to_run_for_their_time() -> None:
    town = a_town(preemption={**LOWER, "minRunSeconds": 60})
    reply = town.simulate(a_job("high", "cq", 2, 5))
    assert (waits(reply), evictions(reply)) == ({"high": "WaitingForQuota"}, {})
    town.copy.now += timedelta(seconds=60)
    reply = town.simulate(a_job("high", "cq", 2, 5))
    assert evictions(reply) == {"a": "Preempted", "b": "Preempted"}
