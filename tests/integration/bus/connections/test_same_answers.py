"""A real nats-server and the simulated one give the same answers to one script."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats.protocol import description, parse_headers, status
from simulation.nats.simulated_server import SimulatedServer
from simulation.virtual_time.loop import VirtualLoop
from support.servers import LIMIT, TestServer, until, within

pytestmark = pytest.mark.bus

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
FENCE: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
LOG: Final = {
    "name": "L",
    "subjects": ["l.>", "due.>"],
    "discard": "new",
    "storage": "file",
    "allow_atomic": True,
    "allow_direct": True,
    "duplicate_window": 120_000_000_000,
}
BUCKET: Final = {
    "name": "B",
    "subjects": ["b.>"],
    "storage": "file",
    "max_msgs_per_subject": 1,
    "discard": "new",
    "allow_msg_ttl": True,
    "allow_atomic": True,
    "subject_delete_marker_ttl": 3_600_000_000_000,
}
TIMERS: Final = {
    "name": "T",
    "subjects": ["t.>"],
    "storage": "file",
    "max_msgs_per_subject": 1,
    "allow_msg_schedules": True,
}
UNCOUNTED: Final = (
    "time",
    "type",
    "description",
    "bytes",
    "hdrs",
    "first_ts",
    "last_ts",
    "last_active",
)
"""Fields of answers that may differ."""


class Script:
    """The requests to a server, and its answers."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.results: list[object] = []

    async def say(self, subject: str, data: bytes = b"x", /, **headers: str) -> None:
        """Publishes, and records the acknowledgement."""
        answer = await self._ask(subject, data, _named(headers))
        self.results.append((subject, headers, answer))

    async def api(self, what: str, asked: Mapping[str, Any] | None = None, *fields: str) -> None:
        """Calls the API, and records the answer, or some of its fields."""
        answer = await self._ask(f"$JS.API.{what}", msgspec.json.encode(asked or {}), {})
        if fields and isinstance(answer, dict) and "error" not in answer:
            answer = {name: _at(answer, name) for name in fields}
        self.results.append((what, answer))

    async def _ask(self, subject: str, data: bytes, headers: dict[str, str]) -> object:
        answer = await self.bus.nc.request(subject, data, timeout=LIMIT, headers=headers or None)
        return _without(msgspec.json.decode(answer.data)) if answer.data else answer.headers

    async def receive(self, subject: str, data: bytes, count: int) -> list[tuple[bytes, ...]]:
        """Sends a request with its own inbox. Returns the first messages."""
        received: list[tuple[bytes, ...]] = []
        inbox = self.bus.nc.new_inbox()
        ear = await self.bus.nc.listen(inbox, lambda *words: received.append(words))
        await self.bus.nc.publish(subject, data, reply=inbox)
        await until(lambda: len(received) >= count)
        await self.bus.nc.unlisten(ear)
        return received

    async def pull(self, consumer: str, count: int, ack: bytes = b"", **asked: Any) -> None:
        """Pulls ``count`` messages, records them, and sends ``ack`` for each."""
        request = msgspec.json.encode({"no_wait": True, **asked})
        received = await self.receive(f"$JS.API.CONSUMER.MSG.NEXT.{consumer}", request, count)
        for subject, reply, data, headers in received:
            if reply:
                counted = _counted(reply)
                self.results.append((subject, counted, data, _stored_headers(headers)))
                if ack:
                    await self.bus.request(reply.decode(), ack)
            else:
                wanting = parse_headers(headers).get("Nats-Pending-Messages")
                self.results.append((status(headers), description(headers), wanting))


async def play(bus: Bus) -> list[object]:
    script = Script(bus)
    for config in (LOG, BUCKET, TIMERS):
        await script.api(f"STREAM.CREATE.{config['name']}", config, "config.discard", "state")
    for part in (_publishing, _batches, _reading, _consuming, _sharing, _expiring, _routing):
        await part(script)
    return script.results


async def _publishing(script: Script) -> None:
    say = script.say
    await say("l.a")
    await say("l.a", Nats_Msg_Id="one")
    await say("l.b", Nats_Msg_Id="one")
    await say("l.a", **{EXPECTED: "0"})
    await say("l.a", **{EXPECTED: "2", "Nats-Msg-Id": "one"})
    await say("l.b", **{EXPECTED: "2", FENCE: "l.a"})
    await say("l.b", **{EXPECTED: "1", FENCE: "l.a"})
    await say("l.b", **{FENCE: "l.a"})
    await say("l.a", Nats_TTL="5s")
    await say("l.a", Nats_Schedule="@at 2100-01-01T00:00:00Z", Nats_Schedule_Target="l.b")
    await say("l.a", Nats_Batch_Id="x", Nats_Batch_Sequence="3")
    await say("b.k", b"1", **{EXPECTED: "0"})
    await say("b.k", b"2", **{EXPECTED: "0"})
    await say("b.k", b"3", **{EXPECTED: "1"})
    await say("b.other")


async def _batches(script: Script) -> None:
    async def batch(name: str, *said: tuple[str, dict[str, str]]) -> None:
        for number, (subject, headers) in enumerate(said, 1):
            placed = {
                **headers,
                "Nats-Batch-Id": name,
                "Nats-Batch-Sequence": str(number),
            }
            if number == len(said):
                await script.say(subject, **placed, Nats_Batch_Commit="1")
            else:
                await script.bus.nc.publish(subject, b"x", headers=placed)

    await batch("whole", ("l.a", {}), ("l.b", {}), ("l.c", {"Nats-Msg-Id": "three"}))
    await batch("again", ("l.a", {}), ("l.c", {"Nats-Msg-Id": "three"}))
    await batch("stale", ("b.x", {EXPECTED: "0"}), ("b.k", {EXPECTED: "1"}))
    await batch("right", ("b.x", {EXPECTED: "0"}), ("b.k", {EXPECTED: "2"}))
    await batch("fenced", ("l.d", {EXPECTED: "1", FENCE: "l.a"}), ("l.e", {}))


async def _reading(script: Script) -> None:
    api = script.api
    for asked in ({"last_by_subj": "l.a"}, {"last_by_subj": "b.*"}, {"seq": 2}, {"seq": 99}, {}):
        await api("STREAM.MSG.GET.L", asked)
    await api("STREAM.MSG.GET.B", {"last_by_subj": "b.k"})
    await api("STREAM.MSG.GET.L", {"next_by_subj": "l.b", "seq": 1})
    await api("STREAM.MSG.GET.None", {"seq": 1})
    await api("STREAM.INFO.L", {"subjects_filter": "l.>"}, "state.subjects", "state.last_seq")
    await api("STREAM.INFO.B", {}, "state.messages", "state.num_subjects", "state.first_seq")
    await api("STREAM.CREATE.L", {**LOG, "discard": "old"})
    batches: tuple[tuple[dict[str, Any], int], ...] = (
        ({"batch": 2, "next_by_subj": "l.a"}, 3),
        ({"batch": 9, "next_by_subj": "l.>", "seq": 4}, 4),
        ({"batch": 9, "next_by_subj": "l.none"}, 1),
    )
    for asked, count in batches:
        data = msgspec.json.encode(asked)
        for subject, _, body, raw in await script.receive("$JS.API.DIRECT.GET.L", data, count):
            script.results.append((body, status(raw), parse_headers(raw).get("Nats-Sequence")))
            script.results.append(subject.startswith(b"_INBOX."))


async def _consuming(script: Script) -> None:
    made = ("num_pending", "delivered.stream_seq", "ack_floor.stream_seq", "config.ack_policy")
    seen = (*made, "delivered.consumer_seq", "ack_floor.consumer_seq", "num_ack_pending")
    for name, extra in (
        ("all", {"ack_policy": "all"}),
        ("from", {"ack_policy": "all", "deliver_policy": "by_start_sequence", "opt_start_seq": 3}),
        ("only", {"ack_policy": "explicit", "filter_subjects": ["l.b", "l.c"]}),
        ("new", {"ack_policy": "explicit", "deliver_policy": "new"}),
        ("bad", {"ack_policy": "all", "deliver_policy": "by_start_sequence"}),
    ):
        config = {"name": name, "durable_name": name, **extra}
        await script.api(f"CONSUMER.CREATE.L.{name}", {"stream_name": "L", "config": config}, *made)
    last = {"ack_policy": "none", "deliver_policy": "last_per_subject", "headers_only": True}
    config = {"name": "last", **last, "filter_subject": "b.>"}
    await script.api("CONSUMER.CREATE.B.last", {"stream_name": "B", "config": config}, *made)
    await script.pull("B.last", 4, batch=10)
    await script.pull("L.all", 3, batch=3)
    await script.pull("L.only", 3, b"+ACK", batch=10)
    await script.pull("L.new", 1, batch=1)
    await script.pull("L.none", 1, batch=1)
    for name in ("all", "only", "from"):
        await script.api(f"CONSUMER.INFO.L.{name}", {}, *seen)
    await script.pull("L.all", 2, b"+ACK", batch=2)
    await script.api("CONSUMER.INFO.L.all", {}, *seen)
    await script.api("CONSUMER.NAMES.L", {}, "consumers", "total")
    await script.api("CONSUMER.DELETE.L.new")
    await script.api("CONSUMER.INFO.L.new")
    await script.pull("L.from", 1, batch=1, no_wait=False, expires=100_000_000)


async def _sharing(script: Script) -> None:
    """Refused and unacknowledged messages are redelivered."""
    config = {"name": "w", "durable_name": "w", "ack_policy": "explicit", "ack_wait": 300_000_000}
    await script.api("CONSUMER.CREATE.L.w", {"stream_name": "L", "config": config}, "num_pending")
    await script.pull("L.w", 1, b"-NAK", batch=1)
    await script.pull("L.w", 2, b"+ACK", batch=2, no_wait=False, expires=5_000_000_000)
    await script.pull("L.w", 1, batch=1)
    await asyncio.sleep(0.6)
    await script.pull("L.w", 2, b"+ACK", batch=2, no_wait=False, expires=5_000_000_000)
    await script.api("CONSUMER.INFO.L.w", {}, "num_ack_pending", "ack_floor", "num_pending")


async def _expiring(script: Script) -> None:
    bus = script.bus
    await script.say("b.brief", b"x", Nats_TTL="1s")
    await script.say("b.brief", b"y", Nats_TTL="soon")
    config = {"name": "e", "ack_policy": "none", "filter_subject": "b.brief"}
    await script.api("CONSUMER.CREATE.B.e", {"stream_name": "B", "config": config}, "num_pending")
    await script.pull("B.e", 2, batch=2, no_wait=False, expires=10_000_000_000)
    later = {"Nats-Schedule": "@at 2100-01-01T00:00:00Z", "Nats-Schedule-Target": "t.due"}
    for name in ("one", "two", "one"):
        await script.say("t.later", name.encode(), **later, Nats_Msg_Id=name)
    await script.api("STREAM.MSG.GET.T", {"last_by_subj": "t.later"})
    schedule = {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": "t.due"}
    await script.say("t.at", b"now", **schedule, Other="kept")
    results: list[object] = []

    async def fired() -> None:
        while not results:
            data = msgspec.json.encode({"last_by_subj": "t.due"})
            answer = await bus.nc.request("$JS.API.STREAM.MSG.GET.T", data, timeout=LIMIT)
            if b"error" not in answer.data:
                results.append(answer)
            await asyncio.sleep(0.02)

    await within(fired())
    await script.api("STREAM.MSG.GET.T", {"last_by_subj": "t.due"})
    await script.api("STREAM.INFO.T", {"subjects_filter": ">"}, "state.subjects")
    await script.api("STREAM.PURGE.L", {"filter": "l.a"}, "purged")
    await script.api("STREAM.PURGE.L", {"filter": "l.>", "seq": 8}, "purged")
    await script.api("STREAM.INFO.L", {}, "state.messages", "state.first_seq", "state.last_seq")
    await script.say("l.a", **{EXPECTED: "0"})


async def _routing(script: Script) -> None:
    bus, results = script.bus, script.results
    received: list[bytes] = []
    subscription = await bus.nc.subscribe("core.>", max_msgs=0)
    await bus.nc.listen("core.*.x", lambda subject, *_: received.append(subject))
    for subject in ("core.a", "core.a.x", "core.a.x.b"):
        await bus.nc.publish(subject, b"1")
    await bus.nc.flush()
    await subscription.unsubscribe()
    await bus.nc.publish("core.b.x", b"2")
    await bus.nc.flush()
    results.append(received)
    unanswered = await script.receive("nothing.listens", b"", 1)
    results.append([(subject[:7], status(raw)) for subject, _, _, raw in unanswered])


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _without(answer: object) -> object:
    if isinstance(answer, dict):
        return {k: _without(v) for k, v in answer.items() if k not in UNCOUNTED and v != []}
    return answer


def _at(answer: object, path: str) -> object:
    for name in path.split("."):
        answer = answer.get(name) if isinstance(answer, dict) else None
    return answer


def _counted(reply: bytes) -> tuple[int, ...]:
    """Deliveries, sequence, number of the delivery, and what is pending."""
    parts = reply.split(b".")
    at = 4 if len(parts) == 9 else 6
    return (*map(int, parts[at : at + 3]), int(parts[at + 4]))


def _stored_headers(raw: bytes) -> dict[str, str]:
    return parse_headers(raw) if raw else {}


async def test_a_simulated_server_answers_as_a_real_one(tmp_path: Path) -> None:
    server = TestServer(tmp_path / "data")
    bus = await Bus.connect(await server.start(), name="real")
    real = await within(play(bus))
    await bus.close()
    await server.stop()
    simulated = await asyncio.to_thread(_simulated)
    for number, (real_answer, other) in enumerate(zip(real, simulated, strict=False)):
        assert other == real_answer, f"answer {number}"
    assert len(simulated) == len(real)


def _simulated() -> list[object]:
    loop = VirtualLoop()
    server = SimulatedServer(loop)

    async def main() -> list[object]:
        bus = await Bus.connect(server.url, name="simulated")
        return await play(bus)

    with server.installed():
        results: list[object] = loop.run_until_complete(main())
    loop.close()
    return results
