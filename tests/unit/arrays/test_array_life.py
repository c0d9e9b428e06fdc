"""An array from its submission to its end, and what stops, fails or vanishes in the middle.
docs/spec/arrays.md#2, docs/spec/arrays.md#4."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.api.workload import ARRAY_GATE, GATED_BY
from admittance.arrays.core import ArrayActs
from admittance.events import facts
from admittance.events.base import Fact
from admittance.workload.conditions import Type, find
from admittance.workload.phase import Phase
from support.builders import a_manifest
from support.cores.array_cores import ArrayCores, array_manifest


def test_elements_start_in_order_and_the_array_keeps_their_results() -> None:
    cores = ArrayCores()
    cores.array(parallelism=2)
    cores.control()
    assert cores.line() == "ppggg"
    cores.run()
    assert (cores.line(), cores.phase("a")) == ("rrggg", Phase.ADMITTED)
    cores.run(finish=["a-0"])
    assert cores.line() == "srrgg"
    cores.run(fail=["a-2"])
    assert cores.line() == "srfrg"
    cores.run(finish=["a-1", "a-3"])
    assert cores.line() == "ssfsr"
    cores.run(finish=["a-4"])
    assert (cores.line(), cores.phase("a")) == ("ssfss", Phase.FINISHED)
    finished = find(cores.stored("a"), Type.FINISHED)
    assert finished is not None
    assert (finished.reason, finished.message) == ("Failed", "5 elements: 4 succeeded, 1 failed")
    assert cores.counts().states == {}


def test_an_array_whose_elements_succeed_succeeds() -> None:
    cores = ArrayCores()
    cores.array(indexes="3,7")
    cores.run()
    cores.run(finish=["a-3", "a-7"])
    finished = find(cores.stored("a"), Type.FINISHED)
    assert finished is not None
    assert (finished.reason, finished.message) == ("Succeeded", "2 elements: 2 succeeded")


def test_an_element_has_the_place_the_variables_and_the_user_of_its_array() -> None:
    cores = ArrayCores()
    manifest = array_manifest("a", "10-20:5", parallelism=2)
    manifest["metadata"] |= {
        "labels": {"team": "x"},
        "annotations": {"note": "y", "admittance.dev/ttl-seconds-after-finished": "60"},
    }
    container = manifest["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container["env"] = [
        {"name": "MINE", "value": "1"},
        {"name": "ADMITTANCE_ARRAY_MIN", "value": "-1"},
    ]
    cores.submit_manifest(manifest)
    cores.now += timedelta(minutes=5)
    cores.control()
    element, array = cores.stored("a-20"), cores.stored("a")
    meta = element.metadata
    created = array.metadata.creation_timestamp
    assert created is not None
    assert meta.creation_timestamp == created + timedelta(microseconds=2)
    assert meta.labels == {
        "team": "x",
        "admittance.dev/array": "a",
        "admittance.dev/array-index": "20",
    }
    assert meta.annotations == {"note": "y", GATED_BY: ARRAY_GATE}
    [owner] = meta.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Workload", "a", array.metadata.uid)
    assert (
        b'"env":[{"name":"ADMITTANCE_ARRAY_INDEX","value":"20"},'
        b'{"name":"ADMITTANCE_ARRAY_COUNT","value":"3"},'
        b'{"name":"ADMITTANCE_ARRAY_MIN","value":"10"},'
        b'{"name":"ADMITTANCE_ARRAY_MAX","value":"20"},{"name":"MINE","value":"1"}]'
    ) in bytes(element.spec)
    assert b'"array"' not in bytes(element.spec)
    assert b'"role"' not in bytes(element.spec)


def test_late_elements_keep_their_place_before_younger_workloads() -> None:
    cores = ArrayCores(cpu=1)
    cores.array(indexes="0-1", parallelism=1)
    cores.run()
    cores.submit("younger", "q")
    cores.run(finish=["a-0"])
    assert (cores.line(size=2), cores.phase("younger")) == ("sr", Phase.PENDING)


def test_an_array_takes_no_quota_and_no_checks() -> None:
    cores = ArrayCores(cpu=3)
    cores.check("c")
    cores.queue("q", admissionChecksStrategy={"admissionChecks": [{"name": "c"}]})
    cores.array(indexes="0")
    cores.control()
    assert cores.stored("a").status.admission_checks == ()
    assert [row.name for row in cores.stored("a-0").status.admission_checks] == ["c"]


# What stops in the middle. --------------------------------------------------------------


def test_a_leader_begins_after_the_array_and_before_any_element() -> None:
    cores = ArrayCores()
    cores.array(parallelism=1)
    cores.restart_controller()
    cores.run()
    assert cores.line() == "rgggg"


@pytest.mark.parametrize("stored", [1, 3, 5])
def test_a_leader_goes_on_between_elements(stored: int) -> None:
    cores = ArrayCores()
    cores.array(parallelism=1)
    orders = cores.arrays.orders(cores.now)
    cores.apply_facts(*orders[:stored])
    cores.restart_controller()
    cores.control()
    assert cores.line() == "pgggg"
    submitted = [f.name for f in cores.published_acts if isinstance(f, facts.Submitted)]
    assert submitted == [f"a-{index}" for index in range(stored, 5)]


def test_two_leaders_create_each_element_once_and_open_no_gate_too_many() -> None:
    cores = ArrayCores()
    cores.array(parallelism=2)
    stale = ArrayActs()
    key = "workload.ns.a"
    known = cores.controller.workloads.get(key)
    stale.apply(key, known.workload, known.revision, cores.now)
    late = stale.orders(cores.now)
    cores.run()
    replies = cores.apply_facts(*late)
    assert {reply.reason for reply in replies} == {"Unchanged"}
    before = [cores.stored(f"a-{index}").metadata.uid for index in range(5)]
    cores.run(finish=["a-0"])
    # The stale leader has seen everything up to now, and acts once more when all has changed.
    for index in range(5):
        state = cores.stored(f"a-{index}")
        stale.apply(f"workload.ns.a-{index}", state, cores.revision, cores.now)
    late = stale.orders(cores.now)
    cores.run(finish=["a-1"])
    cores.apply_facts(*late)
    cores.run()
    assert cores.line() == "ssrrg"
    assert [cores.stored(f"a-{index}").metadata.uid for index in range(5)] == before


def test_a_deleted_element_counts_as_failed_and_is_not_created_again() -> None:
    cores = ArrayCores()
    cores.array(parallelism=2)
    cores.run()
    cores.publish(facts.Deleted, "a-0")
    cores.publish(facts.Deleted, "a-3")
    cores.run()
    assert cores.line() == "drrdg"
    cores.restart_controller()
    cores.run(finish=["a-1", "a-2"])
    cores.run(finish=["a-4"])
    assert (cores.line(), cores.phase("a")) == ("dssds", Phase.FINISHED)


def test_an_element_that_was_deleted_while_no_leader_watched_is_not_created_again() -> None:
    cores = ArrayCores()
    cores.array()
    cores.run()
    cores.publish(facts.Deleted, "a-2")
    cores.restart_controller()
    cores.run()
    assert cores.line() == "rrdrr"


@pytest.mark.parametrize(("end", "letter"), [(None, "d"), (True, "s"), (False, "f")])
def test_an_element_that_is_deleted_before_it_was_counted_is_not_created_again(
    end: bool | None, letter: str
) -> None:
    cores = ArrayCores()
    cores.array(indexes="0-1")
    cores.apply_facts(*(fact for fact in cores.array_orders()))
    if end is not None:
        cores.publish(facts.Finished, "a-1", succeeded=end)
    cores.publish(facts.Deleted, "a-1")
    assert cores.counts().results == f".{letter}"
    cores.restart_controller()
    cores.run()
    assert cores.line(size=2) == f"r{letter}"


def test_an_element_that_is_created_and_deleted_in_one_write_is_not_created_again() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-1")
    deleted = facts.Deleted(namespace="ns", name="a-1")
    late = cores.array_orders()
    cores.apply_facts(*late, deleted)
    assert cores.counts().results == ".d"
    cores.run()
    assert cores.line(size=2) == "rd"
    # A former leader repeats what had no effect that it could see.
    replies = cores.apply_facts(late[1])
    assert [reply.reason for reply in replies] == ["Unchanged"]
    assert not cores.has("a-1")


def test_a_result_stays_when_its_element_leaves_the_bucket() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-1")
    cores.run()
    cores.run(finish=["a-0"])
    cores.publish(facts.Deleted, "a-0")
    cores.restart_controller()
    cores.run(finish=["a-1"])
    assert cores.counts().results == "ss"


def test_elements_of_a_deleted_array_go_first() -> None:
    cores = ArrayCores()
    cores.array(parallelism=2)
    cores.run()
    cores.run(finish=["a-0"])
    cores.slow_jobs.add("a-1")
    cores.publish(facts.Deleted, "a")
    cores.run()
    assert sorted(cores.names()) == ["a", "a-1"]
    cores.restart_controller()
    cores.stop("a-1")
    cores.run()
    assert cores.names() == []


def test_elements_of_an_array_that_ended_and_is_gone_are_deleted() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-1")
    cores.run()
    cores.run(finish=["a-0", "a-1"])
    cores.publish(facts.Deleted, "a")
    assert sorted(cores.names()) == ["a-0", "a-1"]
    cores.run()
    assert cores.names() == []


def test_an_array_waits_for_the_elements_of_an_earlier_one_with_its_name() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-2")
    cores.run()
    first = cores.stored("a")
    cores.slow_jobs |= {"a-1"}
    # The earlier array vanishes without its elements, as after a deletion by hand.
    cores.write("ns", "a", None)
    cores.array(indexes="0-2")
    cores.run()
    assert cores.stored("a").metadata.uid != first.metadata.uid
    assert cores.line(size=3) == "rr-"
    cores.stop("a-1")
    cores.run()
    assert cores.line(size=3) == "rrr"
    uids = {cores.stored(f"a-{i}").metadata.owner_references[0].uid for i in range(3)}
    assert uids == {cores.stored("a").metadata.uid}


def test_an_element_whose_name_is_taken_gets_another_name() -> None:
    cores = ArrayCores()
    cores.submit("a-1", "q")
    cores.array(indexes="0-2")
    cores.run()
    others = [name for name in cores.names() if name not in ("a", "a-0", "a-1", "a-2")]
    assert len(others) == 1
    assert others[0].startswith("a-1-")
    cores.run(finish=["a-0", others[0], "a-2"])
    assert cores.counts().results == "sss"


def test_a_name_that_is_taken_while_an_element_is_submitted_costs_no_element() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-2")
    orders = cores.arrays.orders(cores.now)
    cores.submit("a-1", "q")
    cores.apply_facts(*orders)
    cores.run()
    others = [name for name in cores.names() if name.startswith("a-1-")]
    assert len(others) == 1
    assert cores.counts().results == "..."


def test_an_unreadable_array_keeps_its_elements() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-1")
    cores.run()
    acts = ArrayActs()
    acts.set_aside("workload.ns.a")
    for index in range(2):
        acts.apply(f"workload.ns.a-{index}", cores.stored(f"a-{index}"), 9, cores.now)
    assert acts.orders(cores.now) == []
    assert acts.states()["unreadable"] == 1


# What users do. -------------------------------------------------------------------------


def test_a_stopped_array_stops_its_elements_and_goes_on_when_it_is_activated() -> None:
    cores = ArrayCores()
    cores.array(parallelism=2)
    cores.run()
    cores.publish(facts.Deactivated, "a-1")
    cores.publish(facts.Deactivated, "a")
    cores.run()
    assert (cores.line(), cores.phase("a")) == ("xxggg", Phase.DEACTIVATED)
    assert cores.counts().states == {"Deactivated": 5}
    cores.publish(facts.Activated, "a")
    cores.run()
    # The element that a user stopped stays stopped, and a later one has its place.
    assert cores.line() == "rxrgg"


def test_elements_that_are_stopped_end_the_array_with_it() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-2", parallelism=1)
    cores.run()
    cores.publish(facts.Deactivated, "a-0")
    cores.run(finish=["a-1"])
    cores.run(finish=["a-2"])
    cores.run()
    assert (cores.counts().results, cores.phase("a")) == ("css", Phase.FINISHED)
    assert cores.phase("a-0") is Phase.FINISHED


def test_the_first_failure_ends_an_array_that_fails_fast() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-5", parallelism=3, failFast=True)
    cores.run()
    cores.slow_jobs.add("a-2")
    cores.run(finish=["a-0"], fail=["a-1"])
    # The job of a-2 still stops, so it has quota and no result.
    assert cores.line(size=6) == "sfxccc"
    assert cores.phase("a") is not Phase.FINISHED
    cores.stop("a-2")
    cores.run()
    assert (cores.counts().results, cores.phase("a")) == ("sfcccc", Phase.FINISHED)
    finished = find(cores.stored("a-2"), Type.FINISHED)
    assert finished is not None
    assert finished.reason == "ArrayEnded"


def test_a_user_finishes_an_array_and_its_elements_end() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-2", parallelism=1)
    cores.run()
    cores.publish(facts.Finished, "a")
    cores.run()
    assert cores.counts().results == "ccc"
    assert cores.phases("a-0", "a-1", "a-2") == ["Finished"] * 3


def test_elements_have_the_priority_of_their_array() -> None:
    cores = ArrayCores(cpu=1)
    cores.array(indexes="0-1", parallelism=1)
    cores.run()
    cores.publish(facts.Reprioritized, "a", priority=7)
    cores.run()
    assert b'"priority":7' in bytes(cores.stored("a-1").spec)


def test_a_gated_array_gets_no_element_until_its_gate_is_open() -> None:
    cores = ArrayCores()
    manifest = array_manifest("a", "0-1")
    manifest["metadata"]["annotations"] = {GATED_BY: "example.com/later"}
    cores.submit_manifest(manifest)
    cores.run()
    assert cores.line(size=2) == "--"
    cores.publish(facts.Released, "a")
    cores.run()
    assert cores.line(size=2) == "rr"


def test_a_user_opens_the_gate_of_one_element_by_its_name() -> None:
    cores = ArrayCores()
    cores.array(parallelism=1)
    cores.run()
    [refused] = cores.apply_facts(facts.Released(namespace="ns", name="a-3"))
    assert (refused.outcome, refused.reason) == ("refused", "NotHeld")
    cores.publish(facts.Released, "a-3", gate=ARRAY_GATE)
    cores.run()
    assert cores.line() == "rggrg"


@pytest.mark.parametrize(
    ("fact", "outcome", "reason"),
    [
        (facts.Held(namespace="ns", name="a"), "refused", "IsArray"),
        (facts.Activated(namespace="ns", name="a"), "ignored", "Repeated"),
        (facts.Released(namespace="ns", name="a"), "ignored", "NotHeld"),
        (facts.Finished(namespace="ns", name="a", revision=3), "ignored", "NoMove"),
        (facts.Started(namespace="ns", name="a", revision=3), "ignored", "NoMove"),
        (facts.ElementsCounted(namespace="ns", name="a", gone=True), "ignored", "Stale"),
        (
            facts.ElementsCounted(namespace="ns", name="a", results={"s": "x"}),
            "refused",
            "NotAnElement",
        ),
        (
            facts.ElementsCounted(namespace="ns", name="a", states={"NotCreated": 5}),
            "ignored",
            "Repeated",
        ),
        (facts.ElementsCounted(namespace="ns", name="a-0"), "ignored", "NoSuchWorkload"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Fact) else value,
)
def test_a_fact_that_an_array_does_not_take_changes_nothing(
    fact: Fact, outcome: str, reason: str
) -> None:
    cores = ArrayCores()
    cores.array()
    [reply] = cores.apply_facts(fact)
    assert (reply.outcome, reply.reason) == (outcome, reason)


def test_a_result_never_changes() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-3")
    counted: dict[str, Any] = {"namespace": "ns", "name": "a"}
    cores.apply_facts(
        facts.ElementsCounted(**counted, created=3, results={"s": "0", "f": "2", "z": "1"}),
        facts.ElementsCounted(**counted, created=1, results={"f": "0-1", "s": "2,99"}),
    )
    assert (cores.counts().results, cores.counts().created) == ("sff.", 3)


def test_an_array_with_a_taken_name_is_refused_in_one_line() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-1")
    cores.submit_manifest(array_manifest("a", "0-2"))
    [reply] = [reply for reply in cores.settled.values() if reply.outcome == "refused"]
    assert reply.reason == "AlreadyExists"
    assert reply.message == "a workload ns/a exists with another spec"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"array": {"indexes": "0-999999"}}, "1,000,000 indexes, 10,000 are allowed"),
        ({"array": {"indexes": "3-1"}}, "spec.array.indexes: the range 3-1 is empty"),
        ({"array": {}}, "spec.array.indexes"),
        ({"array": {"indexes": "0-1", "parallelism": 0}}, "spec.array.parallelism"),
        ({"role": "array"}, "spec.array: must be set while spec.role is array"),
    ],
)
def test_a_wrong_array_is_refused_with_the_field(change: dict[str, object], problem: str) -> None:
    cores = ArrayCores()
    manifest = a_manifest("a", queue="q")
    manifest["spec"] |= change
    cores.submit_manifest(manifest)
    [reply] = cores.settled.values()
    assert problem in reply.message


def test_the_name_of_an_array_has_at_most_fifty_characters() -> None:
    cores = ArrayCores()
    cores.array("n" * 50, "0")
    assert cores.has("n" * 50)
    cores.array("n" * 51, "0")
    [reply] = cores.settled.values()
    assert "the name of an array has at most 50 characters, not 51" in reply.message
