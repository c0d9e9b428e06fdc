"""The log of the simulation and a real server are told the same script, and answer the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from admittance.events.subjects import CLAIMS
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.bus import Outgoing as ToBus
from admittance.runtime.bus.history import last
from admittance.runtime.bus.puller import Delivery, Puller
from admittance.runtime.errors import Refused as BusRefused
from simulation.kernel import Kernel
from simulation.mechanisms import Mechanisms
from simulation.server import Server
from simulation.stream import EXPECTED, FENCE, MARKER, MESSAGE_ID, OPERATION, Outgoing, Refused

from servers import within

pytestmark = pytest.mark.bus

EPOCH = "admit.lease.epoch.cohort-a"
FACT = "admit.workload.submitted.ns.w"
DECIDED = "admit.workload.assigned.ns.w"
TIMER = "admit.timer.at.requeue.ns.w"
DUE = "admit.timer.due.requeue.ns.w"
KEY = "workload.ns.w"


def fence(epoch: int) -> dict[str, str]:
    return {EXPECTED: str(epoch), FENCE: EPOCH}


def expecting(revision: int) -> dict[str, str]:
    return {EXPECTED: str(revision)}


def schedule(seconds: float, identity: str) -> dict[str, str]:
    at = datetime.now(UTC) + timedelta(seconds=seconds)  # noqa: TID251 (the server's clock)
    return {
        "Nats-Schedule": f"@at {at.isoformat()}",
        "Nats-Schedule-Target": DUE,
        MESSAGE_ID: identity,
    }


SCRIPT: list[tuple[str, str, bytes, Mapping[str, str]]] = [
    ("log", FACT, b"1", {MESSAGE_ID: "a"}),
    ("log", FACT, b"1", {MESSAGE_ID: "a"}),  # a repeated id answers the first sequence
    ("log", FACT, b"2", {MESSAGE_ID: "b"}),
    ("log", EPOCH, b"one", expecting(0)),
    ("log", EPOCH, b"two", expecting(0)),  # somebody was faster
    ("log", DECIDED, b"d", fence(3)),
    ("log", EPOCH, b"two", expecting(3)),
    ("log", DECIDED, b"late", fence(3)),  # fenced
    ("log", DECIDED, b"d", fence(5)),
    ("log", DECIDED, b"known", {**fence(3), MESSAGE_ID: "a"}),  # judged before it is known
    ("bucket", KEY, b"1", expecting(0)),
    ("bucket", KEY, b"2", expecting(0)),
    ("bucket", KEY, b"2", expecting(1)),
    ("bucket", KEY, b"3", expecting(1)),
    ("bucket", "barrier.x", b"free", {}),
    ("bucket", "barrier.x", b"free", {}),
    ("bucket", KEY, b"", {**expecting(2), OPERATION: "DEL"}),
    ("bucket", KEY, b"again", expecting(0)),  # the marker of a deleted key has a revision
    ("bucket", KEY, b"again", expecting(5)),
    ("bucket", "workload.ns.never", b"", {**expecting(0), OPERATION: "DEL"}),
    ("bucket", "workload.ns.never", b"late", expecting(0)),
    ("claims", "ns.w.1", b"me", expecting(0)),
    ("claims", "ns.w.1", b"you", expecting(0)),
]


class Memory:
    """The simulation's server."""

    def __init__(self) -> None:
        self.kernel = Kernel(Random(0))
        self.server = Server(self.kernel, Mechanisms())

    def _stream(self, where: str) -> Any:
        return {"log": self.server.log, "bucket": self.server.bucket}.get(where, self.server.claims)

    def publish(self, where: str, subject: str, data: bytes, headers: Mapping[str, str]) -> object:
        message = Outgoing(subject, data, headers)
        outcome = (
            self.server.publish(message) if where == "log" else self._stream(where).publish(message)
        )
        return ("refused", outcome.code) if isinstance(outcome, Refused) else outcome

    def atomic(self, messages: list[tuple[str, bytes, Mapping[str, str]]]) -> object:
        outcome = self.server.bucket.atomic([Outgoing(*message) for message in messages])
        return ("refused", outcome.code) if isinstance(outcome, Refused) else outcome


class Real:
    """A nats-server."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    async def publish(
        self, where: str, subject: str, data: bytes, headers: Mapping[str, str]
    ) -> object:
        prefix = {"log": "", "bucket": "$KV.admittance."}.get(where, f"$KV.{CLAIMS}.")
        try:
            return await self.bus.publish(ToBus(prefix + subject, data, headers or None))
        except BusRefused as error:
            return ("refused", error.code)

    async def atomic(self, messages: list[tuple[str, bytes, Mapping[str, str]]]) -> object:
        out = [ToBus(f"$KV.admittance.{key}", data, headers) for key, data, headers in messages]
        try:
            return await self.bus.atomic(out)
        except BusRefused as error:
            return ("refused", error.code)


async def test_the_same_script_has_the_same_outcomes(bus: Bus) -> None:
    memory, real = Memory(), Real(bus)
    for number, step in enumerate(SCRIPT, 1):
        assert await real.publish(*step) == memory.publish(*step), f"step {number}: {step}"


@pytest.mark.parametrize("second", [pytest.param(0, id="all"), pytest.param(7, id="none")])
async def test_a_batch_goes_through_as_a_whole_or_not_at_all(bus: Bus, second: int) -> None:
    memory, real = Memory(), Real(bus)
    batch: list[tuple[str, bytes, Mapping[str, str]]] = [
        ("a", b"1", expecting(0)),
        ("b", b"1", expecting(second)),
    ]
    assert await real.atomic(batch) == memory.atomic(batch)
    after = ("bucket", "c", b"1", expecting(0))
    assert await real.publish(*after) == memory.publish(*after)


async def test_schedules_replace_each_other_but_for_a_repeated_id(bus: Bus) -> None:
    memory, real = Memory(), Real(bus)
    steps = [
        (b"replaced", schedule(0.3, "one")),
        (b"fires", schedule(0.6, "two")),
        (b"dropped", schedule(0.1, "two")),
    ]
    for data, headers in steps:
        assert await real.publish("log", TIMER, data, headers) == 1 or data != b"replaced"
        # The virtual clock starts at another time: the same distances count.
        at = memory.kernel.time({b"replaced": 0.3, b"fires": 0.6, b"dropped": 0.1}[data])
        memory.publish("log", TIMER, data, {**headers, "Nats-Schedule": f"@at {at.isoformat()}"})
    memory.kernel.run(10.0)
    puller = Puller(bus, "reader", ["admit.timer.due.>"])
    heard = [(d.subject, d.data) for d in await within(puller.batch())]
    await puller.close()
    assert heard == [(one.subject, one.data) for one in memory.server.log.messages]
    assert heard == [(DUE, b"fires")]


async def test_a_schedule_of_the_past_fires_at_once(bus: Bus) -> None:
    await bus.publish(ToBus(TIMER, b"late", schedule(-60, "one")))
    puller = Puller(bus, "reader", ["admit.timer.due.>"])
    assert [d.data for d in await within(puller.batch())] == [b"late"]
    await puller.close()


async def test_who_takes_over_reads_from_the_acknowledged_floor_on(bus: Bus) -> None:
    for number in range(6):
        await bus.publish(ToBus(FACT, str(number).encode()))
    first = Puller(bus, "reader", ["admit.workload.>"], generation=1)
    found: list[Delivery] = []
    while len(found) < 6:
        found += await within(first.batch())
    await first.ack(found[2])
    await first.close()
    second = Puller(bus, "reader", ["admit.workload.>"], generation=2)
    again = (await within(second.batch()))[0]
    # As in the actors: a consumer starts behind its predecessor's floor.
    assert again.sequence == found[2].sequence + 1
    await second.close()


async def test_a_claim_that_is_not_renewed_leaves_a_marker(bus: Bus) -> None:
    memory = Memory()
    memory.publish("claims", "ns.w.1", b"me", expecting(0))
    memory.server.claims.expire("ns.w.1", 1)
    put = bucket.put_message("ns.w.1", b"me", expected=0, ttl_seconds=1, bucket=CLAIMS)
    assert await bus.publish(put) == 1
    reader = bucket.BucketReader(bus, ("ns.>",), bucket=CLAIMS)

    async def marker() -> bucket.Entry:
        async for entries in reader.batches():
            for entry in entries:
                if entry.value is None:
                    return entry
        raise AssertionError

    entry = await within(marker())
    await reader.close()
    kept = memory.server.claims.last["ns.w.1"]
    assert (entry.revision, entry.headers[MARKER]) == (kept.sequence, kept.headers[MARKER])
    outcome = await Real(bus).publish("claims", "ns.w.1", b"you", expecting(1))
    assert outcome == memory.publish("claims", "ns.w.1", b"you", expecting(1))


async def test_the_last_message_of_a_subject_is_what_the_next_one_must_expect(bus: Bus) -> None:
    memory, real = Memory(), Real(bus)
    for step in SCRIPT[:9]:
        await real.publish(*step)
        memory.publish(*step)
    for subject in (FACT, EPOCH, DECIDED):
        found = await last(bus, subject)
        assert found is not None
        kept = memory.server.log.last[subject]
        assert (found.sequence, found.data) == (kept.sequence, kept.data)
