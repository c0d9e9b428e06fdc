"""Requests and messages on their way to a server that is lost: they are sent again soon, or another
server is used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from admittance.control.commit import Put
from admittance.events.subjects import GUARD_KEY
from admittance.runtime import clock
from admittance.runtime.bus import bus as bus_module
from admittance.runtime.bus import history
from admittance.runtime.bus.bucket import get, get_directly, put_message
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.puller import Puller
from admittance.runtime.errors import BusRefused, BusUnavailable, StaleRevision
from admittance.runtime.leader import lease_store
from admittance.runtime.leader.barriers import echo_key, write_echoes
from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.runtime.nats import jetstream
from admittance.runtime.nats.opening import CLUSTER_PING_SECONDS, PING_SECONDS
from admittance.runtime.tasks import cancel_and_wait
from admittance.workload_controller import commit_writer
from admittance.workload_controller.commit_writer import WorkloadWriter, WriteGuard
from support.servers import TestServer, until, within

pytestmark = pytest.mark.bus


@pytest.fixture
def _first_is_lost(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request and the first message to store are lost, and are sent again soon."""
    monkeypatch.setattr(bus_module, "RESEND_SECONDS", 0.05)
    monkeypatch.setattr(jetstream, "RESEND_SECONDS", 0.05)
    monkeypatch.setattr(history, "RESEND_SECONDS", 0.05)
    monkeypatch.setattr(commit_writer, "GUARD_ANSWER_SECONDS", 0.05)

    def dropping(send: Any) -> Any:
        lost = [True]

        async def sent(*arguments: Any, **named: Any) -> None:
            if lost:
                lost.clear()
                # A slow answer to the second attempt must not cause a third.
                monkeypatch.setattr(bus_module, "RESEND_SECONDS", 5.0)
            else:
                await send(*arguments, **named)

        return sent

    monkeypatch.setattr(bus.nc, "publish", dropping(bus.nc.publish))
    monkeypatch.setattr(bus.nc, "send", dropping(bus.nc.send))


@pytest.mark.usefixtures("_first_is_lost")
async def test_a_direct_get_without_an_answer_is_sent_again(bus: Bus) -> None:
    assert await within(get_directly(bus, "workload.a.b")) is None


async def test_the_answers_to_two_copies_of_a_list_are_not_mixed(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await bus.publish(put_message(f"workload.a.n{number}", b"{}", expected=None))
    publish = bus.nc.publish

    async def twice(*arguments: Any, **named: Any) -> None:
        await publish(*arguments, **named)
        named["reply"] = named["reply"].rpartition(".")[0] + ".other"
        await publish(*arguments, **named)

    monkeypatch.setattr(bus.nc, "publish", twice)
    messages = await within(
        history.read_messages(bus, ["$KV.*.workload.>"], stream="KV_admittance")
    )
    assert [message.sequence for message in messages] == [1, 2, 3]


@pytest.mark.usefixtures("_first_is_lost")
async def test_a_request_without_an_answer_is_sent_again_if_it_may_be(bus: Bus) -> None:
    assert await within(bus.request("$JS.API.INFO", b"", every=0.05))


@pytest.mark.usefixtures("_first_is_lost")
async def test_the_guard_moves_at_the_second_attempt_without_an_answer(bus: Bus) -> None:
    await within(WriteGuard(bus, 7).take())
    guard = await get(bus, GUARD_KEY)
    assert guard is not None
    assert guard.value == b"7"


def puts() -> list[Outgoing]:
    return [put_message(key, b"new", expected=0) for key in ("workload.a.one", "workload.a.two")]


@pytest.mark.usefixtures("_first_is_lost")
async def test_a_batch_of_puts_without_an_answer_is_sent_again(bus: Bus) -> None:
    assert await within(bus.atomic(puts())) == 2


@pytest.mark.usefixtures("_first_is_lost")
async def test_a_family_is_written_at_the_second_attempt_without_an_answer(bus: Bus) -> None:
    writer = WorkloadWriter(bus, finished_seconds=60.0)
    group = [Put(f"workload.a.{name}", 0, None, 1, group=1) for name in ("parent", "variant")]
    outcomes = await within(writer.write(group))
    assert [outcome for _, outcome in outcomes] == [1, 2]


async def test_a_batch_stored_at_the_first_attempt_without_an_answer_is_unavailable(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, lost = bus._send_batch, [True]

    async def loses_first_answer(*arguments: Any, **named: Any) -> int | BusRefused | None:
        answer = await send(*arguments, **named)
        return None if lost and not lost.clear() else answer

    monkeypatch.setattr(bus, "_send_batch", loses_first_answer)
    with pytest.raises(BusUnavailable, match="it is unknown whether"):
        await within(bus.atomic(puts()))
    # Without a lost answer it is known that nothing is stored.
    with pytest.raises(StaleRevision):
        await within(bus.atomic(puts()))


@pytest.mark.usefixtures("_first_is_lost")
async def test_an_echo_without_an_answer_is_written_again(bus: Bus) -> None:
    await within(write_echoes(bus, [("one", 3)]))
    assert await get(bus, echo_key("one")) is not None


# Leader election. -------------------------------------------------------------------------


@pytest.mark.usefixtures("_first_is_lost")
async def test_an_epoch_without_an_answer_is_published_again(bus: Bus) -> None:
    elector = LeaderElector(bus, "dig", "one", ttl_seconds=60)
    assert await within(elector.take(["hole"], barrier=False)) == ["hole"]


@pytest.mark.parametrize("barrier", [False, True])
async def test_an_instance_leads_although_the_acknowledgement_of_its_epoch_is_lost(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, barrier: bool
) -> None:
    publish_all = bus.publish_all

    async def stored_before(messages: Sequence[Outgoing], **options: Any) -> list[int | BusRefused]:
        if messages and messages[0].subject.startswith("admit.lease.epoch."):
            await publish_all(messages)
        return await publish_all(messages, **options)

    monkeypatch.setattr(bus, "publish_all", stored_before)
    elector = LeaderElector(bus, "dig", "one", ttl_seconds=60)
    assert await within(elector.take(["hole"], barrier=barrier)) == ["hole"]
    sequence, _ = await lease_store.read_epoch(bus, "hole")
    assert elector.lease.held("hole") == sequence
    assert await lease_store.end_of_log(bus) == sequence + barrier


async def test_a_heartbeat_does_not_wait_for_the_one_before(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = 0

    async def never_acknowledged(_: LeaderElector) -> None:
        nonlocal sent
        sent += 1
        if sent > 1:
            await asyncio.Event().wait()

    monkeypatch.setattr(LeaderElector, "_write_heartbeat", never_acknowledged)
    running = asyncio.create_task(LeaderElector(bus, "dig", "one", ttl_seconds=0.04).run())
    await until(lambda: sent > 3)
    await cancel_and_wait(running)


@pytest.mark.parametrize(
    ("beats", "waits"),
    [
        ([(0.0, 0.1), (1.0, 1.1), (2.0, 2.1)], False),
        ([(0.0, 2.0), (1.0, 3.0), (2.0, 4.0), (3.0, 5.0)], False),  # slow, all the time
        ([(0.0, 0.1), (1.0, 9.0), (2.0, 9.0), (8.5, 9.0)], True),  # all came after a pause
        ([(0.0, 0.1), (9.0, 9.1)], True),
    ],
)
async def test_after_a_silence_of_the_bus_other_instances_may_beat_first(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, beats: list[tuple[float, float]], waits: bool
) -> None:
    times: Iterator[float] = iter([time for beat in beats for time in beat])

    async def stored(*_: Any, **__: Any) -> int:
        return 1

    elector = LeaderElector(bus, "dig", "one", ttl_seconds=4.0)
    with monkeypatch.context() as patched:
        patched.setattr(lease_store, "write_heartbeat", stored)
        patched.setattr(clock, "monotonic", lambda: next(times))
        for _ in beats:
            await elector._write_heartbeat()
    assert elector._takes_from == (beats[-1][1] + 1.5 if waits else 0.0)
    assert elector._last_beat == beats[-1][0]


# Consumers and servers. -------------------------------------------------------------------


async def test_a_consumer_that_is_not_made_in_time_is_made_with_another_name(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = bus.api

    async def first_has_no_leader(what: str, *arguments: Any, **named: Any) -> dict[str, Any]:
        if what == "CONSUMER.CREATE.ADMITTANCE.reader-7-1":
            raise BusUnavailable("no answer")
        return await api(what, *arguments, **named)

    monkeypatch.setattr(bus, "api", first_has_no_leader)
    puller = Puller(bus, "reader", ["admit.workload.>"], generation=7)
    await within(puller.start())
    assert puller.consumer == "reader-7-2"
    await puller.close()


async def test_a_client_leaves_a_silent_server_earlier_if_there_are_others(
    nats_server: TestServer,
) -> None:
    for url, seconds in (
        (nats_server.url, PING_SECONDS),
        (f"{nats_server.url},nats://127.0.0.1:1", CLUSTER_PING_SECONDS),
    ):
        bus = await Bus.connect(url, name="test")
        assert bus.nc.options["ping_interval"] == seconds
        await bus.close()
