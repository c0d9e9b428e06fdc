"""What a change would do to families: each is told of as one workload, its parent."""

from __future__ import annotations

from typing import Any

from admittance.events.requests import Delete
from admittance.events.whatif import Simulate
from admittance.scheduling.state.config import Config
from admittance.whatif.simulate import simulate
from admittance.workload.limits import Limits

from towns import Town, a_job, a_queue, an_object, evictions, raws, starts, waits

LOWER = {"withinClusterQueue": "LowerPriority"}
CHECK = an_object("AdmissionCheck", "budget", {"controllerName": "example.com/check"})


def policy(mode: str = "UpgradeOnly", **constraints: Any) -> dict[str, Any]:
    return {"concurrentAdmission": {"migrationConstraints": {"mode": mode, **constraints}}}


def a_town(*objects: Any, steady: int = 2, spot: int = 2, **spec: Any) -> Town:
    """A queue whose better flavor is steady, and that has families."""
    town = Town(*objects)
    town.queue("cq", cpu={"steady": steady, "spot": spot}, **policy(), **spec)
    return town


def the_queue(steady: int = 2, spot: int = 2, **spec: Any) -> dict[str, Any]:
    return a_queue("cq", cpu={"steady": steady, "spot": spot}, **{**policy(), **spec})


def test_a_family_that_would_start_is_told_once_with_the_place_it_gets() -> None:
    town = a_town()
    town.submit("a", "cq", cpu=2)
    reply = town.simulate(a_job("x", "cq", cpu=2))
    assert (starts(reply), waits(reply), evictions(reply)) == ({"x": "spot"}, {}, {})
    assert (reply.counts.starts, reply.counts.run) == (1, 1)
    assert reply.starts[0].otherwise is None


def test_a_family_that_would_wait_is_told_once() -> None:
    town = a_town()
    town.submit("a", "cq", cpu=2)
    town.submit("b", "cq", cpu=2)
    reply = town.simulate(a_job("x", "cq", cpu=1))
    assert (starts(reply), waits(reply)) == ({}, {"x": "WaitingForQuota"})
    assert reply.waits[0].position == 1
    assert (reply.counts.waits, reply.counts.run, reply.counts.pending) == (1, 2, 0)


def test_who_runs_and_hopes_for_a_better_place_does_not_wait() -> None:
    town = a_town()
    town.submit("a", "cq", cpu=2)
    town.submit("b", "cq")
    reply = town.simulate(the_queue(spot=3))
    assert (starts(reply), waits(reply), evictions(reply)) == ({}, {}, {})
    assert (reply.counts.run, reply.counts.pending, reply.counts.off) == (2, 0, 0)


def test_room_in_a_better_flavor_moves_a_family_up() -> None:
    town = a_town()
    town.submit("a", "cq", cpu=2)
    town.submit("b", "cq")
    reply = town.simulate(the_queue(steady=3))
    assert evictions(reply) == {"b": "FlavorMigration"}
    assert starts(reply) == {"b": "steady"}
    [start], [eviction] = reply.starts, reply.evictions
    assert (start.again, start.after) == (True, 1)
    assert eviction.ran and eviction.then is not None and eviction.then.admission is not None


def test_where_nobody_moves_it_stays_where_it_is() -> None:
    town = Town()
    town.queue("cq", cpu={"steady": 2, "spot": 2}, **policy("NoMigration"))
    town.submit("a", "cq", cpu=2)
    town.submit("b", "cq")
    reply = town.simulate(the_queue(steady=4, **policy("NoMigration")))
    assert (starts(reply), evictions(reply)) == ({}, {})


def test_a_family_that_waits_for_checks_starts_once_they_are_ready() -> None:
    town = a_town(CHECK, admissionChecks=["budget"])
    reply = town.simulate(a_job("x", "cq", cpu=2))
    assert starts(reply) == {"x": "steady"}
    assert reply.starts[0].checks == ("budget",)
    town.submit("x", "cq", cpu=2)
    again = town.simulate(an_object("ResourceFlavor", "gold"))
    assert (starts(again), waits(again), again.counts.reserved) == ({}, {}, 1)


def test_a_reservation_that_a_cut_takes_is_its_familys_loss_only_if_it_was_the_last() -> None:
    town = a_town(CHECK, admissionChecks=["budget"])
    town.submit("x", "cq", cpu=2)
    one = town.simulate(the_queue(steady=1, admissionChecks=["budget"]))
    assert evictions(one) == {}
    assert starts(one) == {"x": "spot"}
    both = town.simulate(the_queue(steady=1, spot=1, admissionChecks=["budget"]))
    assert set(evictions(both)) == {"x"}
    assert not both.evictions[0].ran


def test_who_is_preempted_hears_of_the_parent_and_not_of_its_variant() -> None:
    town = a_town(preemption=LOWER)
    town.submit("a", "cq", cpu=2)
    town.submit("b", "cq", cpu=2)
    reply = town.simulate(a_job("high", "cq", cpu=2, priority=5))
    assert evictions(reply) == {"a": "Preempted"}
    assert reply.evictions[0].by == "ns/high"
    assert starts(reply) == {"high": "steady"}
    assert reply.starts[0].preempts == ("ns/a",)
    assert waits(reply) == {"a": "WaitingForQuota"}


def test_a_parent_goes_with_its_variants_and_makes_room() -> None:
    town = a_town()
    for name in "abc":
        town.submit(name, "cq", cpu=2)
    gone = Delete(kind="Workload", namespace="ns", name="b")
    reply = town.simulate(deletes=(gone,))
    assert starts(reply) == {"c": "spot"}
    assert (reply.counts.gone, reply.counts.run) == (1, 1)


def test_a_policy_that_comes_makes_families_of_those_that_wait() -> None:
    town = Town()
    town.queue("cq", cpu={"steady": 2, "spot": 2})
    for name in "abc":
        town.submit(name, "cq", cpu=2)
    reply = town.simulate(the_queue(spot=4))
    assert starts(reply) == {"c": "spot"}
    assert evictions(reply) == {}


def test_a_policy_that_goes_leaves_what_runs_alone() -> None:
    town = a_town()
    for name in "abc":
        town.submit(name, "cq", cpu=2)
    reply = town.simulate(a_queue("cq", cpu={"steady": 2, "spot": 4}))
    assert starts(reply) == {"c": "spot"}
    assert (evictions(reply), reply.counts.run) == ({}, 2)


def test_while_the_gate_is_off_the_change_is_told_to_have_no_effect() -> None:
    town = Town()
    request = Simulate(objects=raws(the_queue()))
    reply = simulate(
        town.entries(), request, Config(), now=town.copy.now, limits=Limits(families=False)
    )
    [result] = reply.results
    assert "gate ConcurrentAdmission is off" in result.warnings[0]
