"""A bad message on any subject becomes a dead letter with its reason; other work continues."""

from __future__ import annotations

import json

import msgspec
import pytest

from admittance.events.system import DeadLetter
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, is_reserved, queues, settled, submit

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


@pytest.fixture
async def running(cluster: Cluster, bus: Bus) -> Bus:
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, *queues("cq", cpu=4))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    await eventually(lambda: is_reserved(bus, "w"))
    return bus


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
    await eventually(lambda: is_reserved(running, "next"))


async def test_an_unknown_timer_becomes_a_dead_letter(running: Bus) -> None:
    """The message is on the stream of timers, and the log copies it from there."""
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
