"""A bad message on any subject becomes a dead letter with its reason; other work continues."""

from __future__ import annotations

import json

import msgspec
import pytest

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.events.system import DeadLetter
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from admittance.workload.phase import holds_quota
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, queues, settled, submit, workload

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
ME = {"namespace": "ns", "name": "w"}


@pytest.fixture
async def running(cluster: Cluster, bus: Bus) -> Bus:
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, *queues("cq", cpu=4))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    await eventually(lambda: _admitted(bus, "w"))
    return bus


async def _admitted(bus: Bus, name: str) -> bool:
    found = await workload(bus, name)
    return found is not None and holds_quota(found)


@pytest.mark.parametrize(
    ("subject", "data", "why"),
    [
        pytest.param(
            "admit.workload.held.ns.w",
            b"\xff\xfe",
            "not a valid Held",
            id="bytes that are not text",
        ),
        pytest.param(
            "admit.workload.held.ns.w", b"{", "not a valid Held", id="text that is not JSON"
        ),
        pytest.param(
            "admit.workload.held.ns.w", b"[1]", "not a valid Held", id="JSON of the wrong type"
        ),
        pytest.param(
            "admit.workload.held.ns.w",
            b'{"namespace":"ns","name":"x"}',
            "the payload is about the workload ns/x",
            id="a payload that contradicts its subject",
        ),
        pytest.param(
            "admit.workload.submitted.ns.v",
            json.dumps(
                {
                    "namespace": "ns",
                    "name": "v",
                    "workload": a_manifest("v", requests={"cpu": "1.5.2Gi"}),
                }
            ).encode(),
            "1.5.2Gi",
            id="a submission with a quantity that is none",
        ),
        pytest.param(
            "admit.check.reported.ctl.ns.w",
            b'{"namespace":"ns","name":"w","controller":"other","check":"c","cycle":0,'
            b'"state":"Ready"}',
            "controller other",
            id="a verdict in another controller's name",
        ),
    ],
)
async def test_a_bad_message_becomes_a_dead_letter_with_bytes_and_reason(
    running: Bus, subject: str, data: bytes, why: str
) -> None:
    sequence = await running.publish(Outgoing(subject, data))
    reply = await settled(running, sequence)
    assert reply.outcome == "dead-lettered"
    assert why in reply.message
    letters = await read_messages(running, ["admit.deadletter.>"])
    letter = msgspec.json.decode(letters[-1].data, type=DeadLetter)
    assert letter.subject == subject
    assert why in letter.reason
    assert (letter.data or "").encode() == data or letter.data64 == data
    await submit(running, [a_manifest("next", queue="lq-cq")])
    await eventually(lambda: _admitted(running, "next"))


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        pytest.param(
            facts.Held(namespace="ns", name="nobody"), "NoSuchWorkload", id="an unknown workload"
        ),
        pytest.param(facts.Deactivated(**ME, uid="forged"), "OtherUid", id="a forged uid"),
        pytest.param(
            facts.CheckReported(**ME, controller="c", check="none", cycle=0, state="Ready"),
            "NoSuchCheck",
            id="a verdict for a check that is not listed",
        ),
        pytest.param(
            facts.Stopped(**ME, revision=1), "NotEvicted", id="a stop without an eviction"
        ),
        pytest.param(facts.Finished(**ME, revision=1), "Stale", id="an end of another admission"),
    ],
)
async def test_a_fact_that_does_not_match_the_workload_is_ignored(
    running: Bus, fact: facts.Fact, reason: str
) -> None:
    before = await workload(running, "w")
    reply = await settled(running, await running.publish(Outgoing(subject_of(fact), encode(fact))))
    assert (reply.outcome, reply.reason) == ("ignored", reason)
    assert await workload(running, "w") == before


async def test_the_same_submission_twice_makes_one_workload(running: Bus) -> None:
    first = await workload(running, "w")
    (sequence,) = await submit(running, [a_manifest("w", queue="lq-cq")])
    assert (await settled(running, sequence)).outcome == "ignored"
    assert await workload(running, "w") == first


async def test_a_workload_with_a_name_in_use_is_rejected_with_a_reason(running: Bus) -> None:
    manifest = a_manifest("w", queue="lq-cq", requests={"cpu": "2"})
    (sequence,) = await submit(running, [manifest])
    reply = await settled(running, sequence)
    assert (reply.outcome, reply.reason) == ("refused", "AlreadyExists")
    rejected = await read_messages(running, ["admit.workload.rejected.ns.w"])
    assert msgspec.json.decode(rejected[-1].data, type=facts.Rejected).reason == "AlreadyExists"


async def test_an_unknown_timer_becomes_a_dead_letter(running: Bus) -> None:
    """It lies on the timers' stream, from which the log takes it in."""
    await running.publish(Outgoing("admit.timer.due.requeue.ns.w", b"?"))

    async def in_dead_letters() -> bool:
        return bool(await read_messages(running, ["admit.deadletter.>"]))

    await eventually(in_dead_letters)


async def test_a_workload_with_a_missing_fact_does_not_block_others(running: Bus) -> None:
    question = b'{"sequence":1000000000}'
    inbox = running.nc.new_inbox()
    for _ in range(20):
        await running.nc.publish("admit.api.settled", question, reply=inbox)
    (sequence,) = await submit(running, [a_manifest("prompt", queue="lq-cq")])
    assert (await settled(running, sequence)).outcome == "applied"
