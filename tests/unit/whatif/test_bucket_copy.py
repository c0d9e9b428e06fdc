"""A copy of the bucket behaves as the system does, is reused if it is unchanged, and its answer is
split into several messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.events.facts import Finished
from admittance.events.reader import BucketEntry
from admittance.events.requests.manifests import Delete
from admittance.events.requests.whatif import Simulate, SimulateReply, WouldWait, joined_reply
from admittance.events.shapes import ConsumedUsage
from admittance.events.subjects import USAGE
from admittance.scheduling.state.config import Config, UsageFairSharing
from admittance.whatif import bucket_copy as copies
from admittance.whatif import simulate as whole
from admittance.whatif.bucket_copy import BucketCopy
from admittance.whatif.simulate import change_of, in_parts, perform, simulate
from support.builders import NOON, an_object
from support.stored.system import (
    StoredSystem,
    a_job,
    a_local,
    a_queue,
    evictions,
    raws,
    starts,
    waits,
)

LOWER = {"withinClusterQueue": "LowerPriority"}


def a_town(**spec: Any) -> StoredSystem:
    """One queue of two, a and b run, c waits."""
    town = StoredSystem()
    town.queue("cq", cpu={"spot": 2}, **spec)
    for name in "abc":
        town.submit(name, "cq")
    return town


# Copies. ------------------------------------------------------------------------------------


def test_a_settled_system_is_copied_once_and_another_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[BucketCopy] = []

    class Counted(BucketCopy):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(whole, "BucketCopy", Counted)
    town = a_town()
    town.simulate(a_queue("cq", cpu={"spot": 3}))
    assert len(made) == 1
    entries = [entry for entry in town.entries() if entry.key != "workload.ns.a"]
    request = Simulate(objects=raws(a_queue("cq", cpu={"spot": 3})))
    reply = simulate(entries, request, town.config, now=town.copy.now)
    assert len(made) == 3
    assert (reply.counts.starts, reply.counts.run) == (0, 2)


def test_a_simulation_does_not_change_the_entries() -> None:
    town = a_town()
    before = town.entries()
    values = [bytes(entry.value or b"") for entry in before]
    town.simulate(a_queue("cq", cpu={"spot": 4}, stopPolicy="HoldAndDrain"), a_job("x", "cq"))
    assert [bytes(entry.value or b"") for entry in before] == values
    assert town.entries() == before


def test_the_same_request_gets_the_same_reply() -> None:
    town = a_town(preemption=LOWER)
    ask = a_job("x", "cq", cpu=2, priority=3)
    assert town.simulate(ask) == town.simulate(ask)


def test_an_evicted_job_stops_with_and_without_the_change() -> None:
    town = a_town(preemption=LOWER)
    # Told to go, and still running: the copy is made in the middle of it.
    perform(town.copy, change_of(Simulate(objects=raws(a_job("high", "cq", priority=5)))))
    town.copy.decide()
    reply = town.simulate(a_queue("cq", cpu={"spot": 3}, preemption=LOWER))
    assert evictions(reply) == {}
    assert starts(reply) == {"b": "spot"}
    assert reply.starts[0].after == 1


def with_a_long_finished(town: StoredSystem) -> list[BucketEntry]:
    """The bucket after workload a has finished and is only stored, not held by a controller."""
    [old] = [entry for entry in town.entries() if entry.key == "workload.ns.a"]
    town.copy.apply_facts(Finished(namespace="ns", name="a"))
    town.copy.settle()
    # It is in the bucket, though no process holds it.
    assert town.copy.workload(("ns", "a")) is None
    assert old.value is not None
    ended = msgspec.json.decode(old.value)
    ended["status"]["conditions"].append({"type": "Finished", "status": "True"})
    return [*town.entries(), BucketEntry(old.key, msgspec.json.encode(ended), 9_999)]


def test_a_workload_that_finished_long_ago_may_be_deleted() -> None:
    town = a_town()
    entries = with_a_long_finished(town)
    request = Simulate(deletes=(Delete(kind="Workload", namespace="ns", name="a"),))
    reply = simulate(entries, request, town.config, now=town.copy.now)
    assert (reply.error, [result.outcome for result in reply.results]) == ("", ["deleted"])


def test_the_name_of_a_finished_workload_is_used_as_for_apply() -> None:
    town = a_town()
    entries = with_a_long_finished(town)
    for cpu, outcome in ((1, "unchanged"), (2, "refused")):
        request = Simulate(objects=raws(a_job("a", "cq", cpu=cpu)))
        reply = simulate(entries, request, town.config, now=town.copy.now)
        assert [result.outcome for result in reply.results] == [outcome]


def test_a_simulation_that_does_not_settle_is_cut_off_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "WAVES_MAX", 0)
    reply = a_town().simulate(a_queue("cq", cpu={"spot": 2}, stopPolicy="HoldAndDrain"))
    assert not reply.settled
    assert any("reached its limit before it settled" in warning for warning in reply.warnings)


def test_unreadable_values_are_left_out_with_a_warning() -> None:
    town = a_town()
    entries = [*town.entries(), BucketEntry("workload.ns.broken", b"{", 9_999)]
    entries.append(BucketEntry("clusterqueue.broken", b"[]", 9_999))
    request = Simulate(objects=raws(a_queue("cq", cpu={"spot": 3})))
    reply = simulate(entries, request, town.config, now=town.copy.now)
    assert starts(reply) == {"c": "spot"}
    assert any(
        "2 keys of the bucket have unreadable values" in warning for warning in reply.warnings
    )


def test_a_workload_that_waits_for_a_time_keeps_waiting() -> None:
    town = StoredSystem()
    town.queue("cq", cpu={"spot": 1})
    town.submit("a", "cq")
    entries = town.entries()
    [kept] = [entry for entry in entries if entry.key == "workload.ns.a"]
    assert kept.value is not None
    held = msgspec.json.decode(kept.value)
    held["status"] = {"requeueState": {"requeueAt": (NOON + timedelta(hours=1)).isoformat()}}
    entries.remove(kept)
    entries.append(BucketEntry(kept.key, msgspec.json.encode(held), kept.revision))
    request = Simulate(objects=raws(a_queue("cq", cpu={"spot": 5})))
    reply = simulate(entries, request, town.config, now=town.copy.now)
    assert reply.starts == ()
    assert reply.counts.pending == 1


def test_consumed_usage_of_local_queues_counts() -> None:
    config = Config(admission_fair_sharing=UsageFairSharing(usage_half_life_time=timedelta(1)))
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    queue = a_queue("cq", cpu={"spot": 0}, admissionScope=scope)
    town = StoredSystem(queue, a_local("greedy", "cq"), a_local("modest", "cq"), config=config)
    town.submit("first", "greedy")
    town.submit("second", "modest")
    wider = a_queue("cq", cpu={"spot": 1}, admissionScope=scope)
    assert starts(town.simulate(wider)) == {"first": "spot"}
    consumed = ConsumedUsage(consumed_resources={"cpu": "100"}, last_update=town.copy.now)
    usage = BucketEntry(f"{USAGE}.ns.greedy", msgspec.json.encode(consumed), 9_999)
    request = Simulate(objects=raws(wider))
    reply = simulate([*town.entries(), usage], request, config, now=town.copy.now)
    assert starts(reply) == {"second": "spot"}


# Cautions. ----------------------------------------------------------------------------------


def a_cohort(name: str, parent: str) -> dict[str, Any]:
    return an_object("Cohort", name, {"parentName": parent})


def test_a_cycle_of_cohorts_is_a_warning() -> None:
    town = StoredSystem(a_cohort("top", "left"))
    town.queue("cq", "left", cpu={"spot": 1})
    reply = town.simulate(a_cohort("left", "top"))
    assert any("its cohorts form a cycle" in warning for warning in reply.warnings)


def test_problems_that_existed_before_cause_no_warnings() -> None:
    town = StoredSystem()
    town.queue("cq", cpu={"gold": 1})
    assert town.simulate(a_queue("other", cpu={"spot": 1})).warnings == ()
    reply = town.simulate(a_queue("other", cpu={"silver": 1}))
    [warning] = reply.warnings
    assert warning.startswith("ClusterQueue other would be inactive")


def test_a_local_queue_without_a_cluster_queue_is_a_warning() -> None:
    reply = a_town().simulate(a_local("new", "no-such-queue"))
    assert any("no-such-queue doesn't exist" in warning for warning in reply.warnings)


def test_a_warning_names_a_cohort_above_its_limit() -> None:
    town = StoredSystem()
    town.queue("lender", "team", cpu={"spot": 2})
    town.queue("cq", "team", cpu={"spot": 0})
    town.submit("a", "cq", cpu=2)
    reply = town.simulate(a_queue("lender", "team", cpu={"spot": 1}))
    [warning] = reply.warnings
    assert "cohort team would use 2 of cpu in flavor spot, more than its limit of 1" in warning


# Parts. -------------------------------------------------------------------------------------


def test_a_long_reply_is_joined_from_its_parts_in_any_order() -> None:
    rows = tuple(WouldWait(namespace="ns", name=f"w-{n}", message="x" * 100) for n in range(50))
    reply = SimulateReply(revision=7, waits=rows, warnings=("careful",))
    parts = in_parts(reply, size=1_000)
    assert len(parts) > 4
    assert {part.parts for part in parts} == {len(parts)}
    assert all(len(msgspec.json.encode(part.waits)) <= 1_000 for part in parts)
    assert joined_reply(parts[::-1]) == reply


def test_a_short_reply_is_one_message() -> None:
    reply = a_town().simulate(a_queue("cq", cpu={"spot": 3}))
    assert in_parts(reply) == [reply]
    assert waits(reply) == {}
