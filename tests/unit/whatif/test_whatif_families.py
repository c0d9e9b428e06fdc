"""The effects of a change on families: the answer names each family by its parent."""

from __future__ import annotations

from typing import Any

from admittance.events.requests.manifests import Delete
from admittance.events.requests.whatif import Simulate
from admittance.scheduling.state.config import Config
from admittance.whatif.simulate import simulate
from admittance.workload.limits import Limits
from support.builders import an_object
from support.stored.system import (
    StoredSystem,
    a_job,
    a_queue,
    evictions,
    raws,
    starts,
    waits,
)

LOWER = {"withinClusterQueue": "LowerPriority"}
CHECK = an_object("AdmissionCheck", "budget", {"controllerName": "example.com/check"})


def policy(mode: str = "UpgradeOnly", **constraints: Any) -> dict[str, Any]:
    return {"concurrentAdmission": {"migrationConstraints": {"mode": mode, **constraints}}}


def a_town(*objects: Any, steady: int = 2, spot: int = 2, **spec: Any) -> StoredSystem:
    """A queue with families; the better flavor is named steady."""
    town = StoredSystem(*objects)
    town.queue("cq", cpu={"steady": steady, "spot": spot}, **policy(), **spec)
    return town


def the_queue(steady: int = 2, spot: int = 2, **spec: Any) -> dict[str, Any]:
    return a_queue("cq", cpu={"steady": steady, "spot": spot}, **{**policy(), **spec})


def test_a_family_that_would_start_is_listed_once_with_its_flavor() -> None:
    town = a_town()
    town.submit("a", "cq", cpu=2)
    reply = town.simulate(a_job("x", "cq", cpu=2))
    assert (starts(reply), waits(reply), evictions(reply)) == ({"x": "spot"}, {}, {})
    assert (reply.counts.starts, reply.counts.run) == (1, 1)
    assert reply.starts[0].otherwise is None


def test_a_family_that_would_wait_is_listed_once() -> None:
    town = a_town()
    town.submit("a", "cq", cpu=2)
    town.submit("b", "cq", cpu=2)
    reply = town.simulate(a_job("x", "cq", cpu=1))
    assert (starts(reply), waits(reply)) == ({}, {"x": "WaitingForQuota"})
    assert reply.waits[0].position == 1
    assert (reply.counts.waits, reply.counts.run, reply.counts.pending) == (1, 2, 0)


def test_free_quota_in_a_better_flavor_migrates_a_family() -> None:
    town = a_town()
    town.submit("a", "cq", cpu=2)
    town.submit("b", "cq")
    reply = town.simulate(the_queue(steady=3))
    assert evictions(reply) == {"b": "FlavorMigration"}
    assert starts(reply) == {"b": "steady"}
    [start], [eviction] = reply.starts, reply.evictions
    assert (start.again, start.after) == (True, 1)
    assert eviction.ran and eviction.then is not None and eviction.then.admission is not None


def test_a_family_loses_its_quota_with_its_last_reservation() -> None:
    town = a_town(CHECK, admissionChecks=["budget"])
    town.submit("x", "cq", cpu=2)
    result = town.simulate(the_queue(steady=1, admissionChecks=["budget"]))
    assert evictions(result) == {}
    assert starts(result) == {"x": "spot"}
    both = town.simulate(the_queue(steady=1, spot=1, admissionChecks=["budget"]))
    assert set(evictions(both)) == {"x"}
    assert not both.evictions[0].ran


def test_a_victim_names_the_parent_of_the_preempting_variant() -> None:
    town = a_town(preemption=LOWER)
    town.submit("a", "cq", cpu=2)
    town.submit("b", "cq", cpu=2)
    reply = town.simulate(a_job("high", "cq", cpu=2, priority=5))
    assert evictions(reply) == {"a": "Preempted"}
    assert reply.evictions[0].by == "ns/high"
    assert starts(reply) == {"high": "steady"}
    assert reply.starts[0].preempts == ("ns/a",)
    assert waits(reply) == {"a": "WaitingForQuota"}


def test_a_deleted_parent_frees_the_quota_of_its_variants() -> None:
    town = a_town()
    for name in "abc":
        town.submit(name, "cq", cpu=2)
    gone = Delete(kind="Workload", namespace="ns", name="b")
    reply = town.simulate(deletes=(gone,))
    assert starts(reply) == {"c": "spot"}
    assert (reply.counts.gone, reply.counts.run) == (1, 1)


def test_a_new_policy_makes_pending_workloads_families() -> None:
    town = StoredSystem()
    town.queue("cq", cpu={"steady": 2, "spot": 2})
    for name in "abc":
        town.submit(name, "cq", cpu=2)
    reply = town.simulate(the_queue(spot=4))
    assert starts(reply) == {"c": "spot"}
    assert evictions(reply) == {}


def test_a_removed_policy_keeps_running_jobs() -> None:
    town = a_town()
    for name in "abc":
        town.submit(name, "cq", cpu=2)
    reply = town.simulate(a_queue("cq", cpu={"steady": 2, "spot": 4}))
    assert starts(reply) == {"c": "spot"}
    assert (evictions(reply), reply.counts.run) == ({}, 2)


def test_a_warning_says_that_the_feature_gate_is_off() -> None:
    town = StoredSystem()
    request = Simulate(objects=raws(the_queue()))
    reply = simulate(
        town.entries(), request, Config(), now=town.copy.now, limits=Limits(families=False)
    )
    [result] = reply.results
    assert "gate ConcurrentAdmission is off" in result.warnings[0]
