"""Reading the log: in order, without loss, across restarts and takeovers."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from admittance.events.codec import Undecodable, decode
from admittance.runtime.bus import durables, pull_consumer
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.messages import UnusableDelivery, publish_dead_letters
from admittance.runtime.bus.pull_consumer import PullConsumer, RawMessage
from admittance.runtime.bus.puller import Delivery, Puller
from admittance.runtime.errors import AccessDenied, BusRefused, BusUnavailable, Superseded
from support.servers import TestServer, until, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("real", "simulated")]

FACTS = ["admit.workload.>"]


async def say(bus: Bus, count: int, start: int = 0) -> None:
    await bus.publish_all(
        [Outgoing(f"admit.workload.submitted.a.n{start + i}", b"{}") for i in range(count)]
    )


async def read(puller: Puller, last: int) -> list[Delivery]:
    """The deliveries up to the sequence ``last``, not acknowledged."""
    deliveries: list[Delivery] = []
    while not deliveries or deliveries[-1].sequence < last:
        deliveries.extend(await within(puller.batch()))
    return deliveries


async def test_facts_come_in_order_and_once(bus: Bus) -> None:
    await say(bus, 2500)
    puller = Puller(bus, "reader", FACTS, batch=500)
    deliveries = await read(puller, 2500)
    assert [d.sequence for d in deliveries] == list(range(1, 2501))
    await puller.ack(deliveries[-1])
    info = await bus.api(f"CONSUMER.INFO.ADMITTANCE.{puller.consumer}")
    assert info["ack_floor"]["stream_seq"] == 2500
    await puller.close()


def _has(messages: list[RawMessage], count: int) -> bool:
    return len(messages) >= count


async def test_a_reader_is_sent_no_more_bytes_than_it_handles(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_consumer, "BYTES", 1_000_000)
    facts = [Outgoing(f"admit.workload.submitted.a.n{i}", b"x" * 100_000) for i in range(60)]
    await bus.publish_all(facts)
    got: list[RawMessage] = []

    async def make() -> str:
        config = {"ack_policy": "none", "mem_storage": True}
        asked = {"stream_name": "ADMITTANCE", "config": config}
        made = await bus.api("CONSUMER.CREATE.ADMITTANCE", asked)
        return str(made["name"])

    pull = PullConsumer(bus, "ADMITTANCE", make, got.append, batch=2000)
    await pull.start()
    # The first request is answered, and nothing more is asked for: its bytes are not handled yet.
    await until(lambda: len(got) >= 20)
    await bus.nc.flush()
    assert len(got) == 20
    for more in (40, 60):
        pull.taken(20)
        await until(partial(_has, got, more))
    assert [raw.sequence for raw in got] == list(range(1, 61))
    await pull.stop()


async def test_a_dead_letter_is_sent_again_when_the_server_is_late(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_all, attempts = bus.publish_all, []

    async def late(messages: list[Outgoing]) -> list[int | BusRefused]:
        attempts.append(len(messages))
        stored = await publish_all(messages)
        if len(attempts) == 1:
            raise BusUnavailable("no stream answered in time")
        return stored

    monkeypatch.setattr(bus, "publish_all", late)
    strange = Delivery(subject="admit.workload.x", data=b"x", headers={}, sequence=7)
    await publish_dead_letters(bus, "reader", [UnusableDelivery(strange, "no token")])
    assert attempts == [1, 1]
    state = (await bus.api("STREAM.INFO.ADMITTANCE"))["state"]
    assert state["messages"] == 1


async def test_the_successor_reads_unacknowledged_facts_first(bus: Bus) -> None:
    await say(bus, 100)
    first = Puller(bus, "reader", FACTS, generation=1)
    deliveries = await read(first, 100)
    await first.ack(deliveries[39])
    await first.close()
    second = Puller(bus, "reader", FACTS, generation=2)
    assert [d.sequence for d in await read(second, 100)] == list(range(41, 101))
    names = await bus.api("CONSUMER.NAMES.ADMITTANCE")
    assert names["consumers"] == ["reader-2-1"]
    await second.close()


async def test_a_superseded_reader_gets_an_error(bus: Bus) -> None:
    await say(bus, 2)
    first = Puller(bus, "reader", FACTS, generation=1)
    await first.start()
    second = Puller(bus, "reader", FACTS, generation=2)
    await second.start()
    await within(first.batch())
    with pytest.raises(Superseded):
        await within(first.batch())
    await first.close()
    await second.close()


async def test_a_foreign_consumer_with_our_name_is_not_touched(bus: Bus) -> None:
    """Otherwise it could end every new reader, or block its name."""
    await say(bus, 10)
    for name, policy in (("reader-999999999-1", "all"), ("reader-2-1", "explicit")):
        config = {"name": name, "durable_name": name, "ack_policy": policy}
        await bus.api(
            f"CONSUMER.CREATE.ADMITTANCE.{name}", {"stream_name": "ADMITTANCE", "config": config}
        )
    puller = Puller(bus, "reader", FACTS, generation=2)
    assert [d.sequence for d in await read(puller, 10)] == list(range(1, 11))
    assert puller.consumer == "reader-2-2"
    names = await bus.api("CONSUMER.NAMES.ADMITTANCE")
    assert set(names["consumers"]) == {"reader-2-1", "reader-2-2", "reader-999999999-1"}
    await puller.close()


async def test_reading_has_no_gap_or_repeat_when_the_server_is_killed(
    bus: Bus, nats_server: TestServer
) -> None:
    await say(bus, 200)
    puller = Puller(bus, "reader", FACTS, batch=50)
    deliveries = await within(puller.batch())
    await puller.ack(deliveries[-1])
    await nats_server.restart_after_kill()
    await say(bus, 200, start=200)
    deliveries += await read(puller, 400)
    assert [d.sequence for d in deliveries] == list(range(1, 401))
    await puller.ack(deliveries[-1])
    await puller.close()


async def test_facts_sent_to_a_dead_connection_come_before_newer_ones(bus: Bus) -> None:
    puller = Puller(bus, "reader", FACTS)
    await puller.start()
    pull = puller._pull
    assert pull is not None
    assert pull._inbox is not None
    # As if these had been on their way when the connection broke.
    handler = bus.nc._handlers.pop(pull._inbox._id)
    bus.nc._handlers[pull._inbox._id] = lambda *_: None
    await say(bus, 5)
    await bus.nc.flush()
    bus.nc._handlers[pull._inbox._id] = handler
    await say(bus, 5, start=5)
    assert [d.sequence for d in await read(puller, 10)] == list(range(1, 11))
    await puller.close()


async def test_a_deleted_consumer_is_created_again(bus: Bus) -> None:
    await say(bus, 3)
    puller = Puller(bus, "reader", FACTS)
    deliveries = await read(puller, 3)
    await bus.api(f"CONSUMER.DELETE.ADMITTANCE.{puller.consumer}")
    await say(bus, 3, start=3)
    assert [d.sequence for d in await read(puller, 6)] == [4, 5, 6]
    # What was handed out by the old consumer is acknowledged at the new one.
    await puller.ack(deliveries[-1])

    async def acknowledged() -> None:
        floor = 0
        while floor != 3:
            info = await bus.api(f"CONSUMER.INFO.ADMITTANCE.{puller.consumer}")
            floor = info["ack_floor"]["stream_seq"]

    await within(acknowledged())
    await puller.close()


async def test_workers_share_deliveries_and_acknowledge_their_own(bus: Bus) -> None:
    await say(bus, 1)
    first = Puller(bus, "workers", FACTS, ack="explicit", ack_wait=0.2, batch=10)
    lost = await read(first, 1)
    await first.close()
    second = Puller(bus, "workers", FACTS, ack="explicit", ack_wait=0.2, batch=10)
    again = await within(second.batch())
    assert again[0].sequence == lost[0].sequence
    assert again[0].deliveries == 2
    await second.ack(again[0])
    info = await bus.api("CONSUMER.INFO.ADMITTANCE.workers")
    assert info["num_ack_pending"] == 0
    await second.close()


async def test_a_single_fact_does_not_wait_for_others(bus: Bus) -> None:
    puller = Puller(bus, "reader", FACTS)
    await puller.start()
    waiting = asyncio.create_task(puller.batch())
    await say(bus, 1)
    assert len(await within(waiting)) == 1
    await puller.close()


async def test_ack_soon_acknowledges_deliveries_together(bus: Bus) -> None:
    await say(bus, 20)
    puller = Puller(bus, "reader", FACTS)
    deliveries = await read(puller, 20)
    for delivery in deliveries:
        puller.ack_soon(delivery)

    async def acknowledged() -> None:
        floor = 0
        while floor != 20:
            info = await bus.api(f"CONSUMER.INFO.ADMITTANCE.{puller.consumer}")
            floor = info["ack_floor"]["stream_seq"]
        # One word for all of them.
        assert info["ack_floor"]["consumer_seq"] == 20

    await within(acknowledged())
    await puller.close()


async def test_ack_soon_takes_effect_before_the_reader_ends(bus: Bus) -> None:
    await say(bus, 20)
    first = Puller(bus, "reader", FACTS, generation=1)
    first.ack_soon((await read(first, 20))[-1])
    await first.close()
    await say(bus, 1, start=20)
    second = Puller(bus, "reader", FACTS, generation=2)
    assert [d.sequence for d in await read(second, 21)] == [21]
    await second.close()


@pytest.mark.servers("real")
async def test_a_subject_that_is_not_text_becomes_a_dead_letter(
    bus: Bus, nats_server: TestServer
) -> None:
    """The server accepts any subject, and such a message must not stop the reader."""
    host, port = nats_server.url.removeprefix("nats://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    subject = b"admit.workload.submitted.\xff\xfe.n"
    writer.write(b"CONNECT {}\r\nPUB " + subject + b" 2\r\n{}\r\nPING\r\n")
    while b"PONG" not in await within(reader.readline()):
        pass
    writer.close()
    await say(bus, 1)
    puller = Puller(bus, "reader", FACTS)

    strange, good = await read(puller, 2)

    with pytest.raises(Undecodable, match=r"xfe' is not an escaped name"):
        decode(strange.subject, strange.data)
    await publish_dead_letters(bus, "reader", [UnusableDelivery(strange, "no token")])
    assert good.subject == "admit.workload.submitted.a.n0"
    await puller.close()


async def test_a_reader_continues_without_a_list_of_consumers(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster without one of its servers needs seconds to list consumers."""
    await say(bus, 3)
    puller = Puller(bus, "reader", FACTS)
    await read(puller, 3)
    listed = asyncio.Event()
    listing = durables.listed_consumers

    async def late(*asked: Any) -> durables.ListedConsumers:
        await listed.wait()
        return await listing(*asked)

    monkeypatch.setattr(durables, "listed_consumers", late)
    await bus.api(f"CONSUMER.DELETE.ADMITTANCE.{puller.consumer}")
    await say(bus, 3, start=3)
    assert [d.sequence for d in await read(puller, 6)] == [4, 5, 6]
    listed.set()
    await puller.close()


async def test_a_new_reader_waits_for_the_position_of_a_consumer_without_leader(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def without_leader(*_: Any) -> durables.ListedConsumers:
        return durables.ListedConsumers([], ["other-1-1", "reader-1-1"])

    await say(bus, 3)
    monkeypatch.setattr(durables, "listed_consumers", without_leader)
    puller = Puller(bus, "reader", FACTS, generation=2)
    with pytest.raises(BusUnavailable, match="reader-1-1 of ADMITTANCE has no leader"):
        await within(puller.start())
    await puller.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(
            AccessDenied("this login may not publish to x"), "may not publish", id="right"
        ),
        pytest.param(
            BusUnavailable("no answer on x: timeout"),
            "was made in time: no answer on x: timeout",
            id="silence",
        ),
    ],
)
async def test_a_consumer_that_cannot_be_made_is_reported_with_the_reason(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, error: BusUnavailable, said: str
) -> None:
    async def create(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(durables.Consumers, "create", create)
    with pytest.raises(type(error), match=said):
        await Puller(bus, "reader", FACTS).start()
