"""Publishing: outcomes per message, fences, atomic batches, lost connections."""

from __future__ import annotations

import asyncio

import pytest
from nats.aio.msg import Msg

from admittance.runtime.bus import bucket
from admittance.runtime.bus import bus as bus_module
from admittance.runtime.bus.bus import EXPECTED, MESSAGE_ID, Bus, Outgoing
from admittance.runtime.errors import (
    BusRefused,
    BusUnavailable,
    Fenced,
    Repeated,
    StaleRevision,
    TooBig,
)
from admittance.runtime.leader import lease_store
from admittance.runtime.nats.jetstream import RESEND_SECONDS, PendingAcks
from support.nats import leases
from support.servers import LIMIT, TestServer, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("real", "simulated")]

DECISION = "admit.workload.assigned.a.b"


def submitted(name: str, **headers: str) -> Outgoing:
    return Outgoing(f"admit.workload.submitted.a.{name}", b"{}", headers or None)


async def test_every_message_of_a_pipeline_has_its_own_outcome(bus: Bus) -> None:
    outcomes = await bus.publish_all(
        [
            submitted("one"),
            Outgoing("admit.workload.submitted.a.one", b"{}", {EXPECTED: "77"}),
            submitted("two"),
            Outgoing("admit.workload.submitted.a.big", b"x" * bus.nc.max_payload),
            submitted("three"),
        ]
    )
    assert [o for o in outcomes if isinstance(o, int)] == [1, 2, 3]
    assert isinstance(outcomes[1], StaleRevision)
    assert isinstance(outcomes[3], TooBig)


async def test_thousands_of_messages_are_stored_in_order(bus: Bus) -> None:
    outcomes = await bus.publish_all([submitted(f"n{i}") for i in range(3500)])
    assert outcomes == list(range(1, 3501))


async def test_a_repeated_message_id_gets_the_first_sequence(bus: Bus) -> None:
    message = Outgoing("admit.workload.submitted.a.one", b"{}", {MESSAGE_ID: "x"})
    assert await bus.publish_all([message, submitted("two"), message]) == [1, 2, 1]
    before: set[int] = set()
    several = [submitted("three"), message]
    [_, sequence] = await bus.publish_all(several, stored_before=before)
    # A caller may put the sequence into a message.
    assert (type(sequence), sequence, before) == (int, 1, {1})


async def test_a_line_break_in_a_header_is_refused_before_it_reaches_the_wire(bus: Bus) -> None:
    with pytest.raises(ValueError, match="line break"):
        await bus.publish(Outgoing("admit.workload.submitted.a.b", b"", {"A": "x\r\nB: y"}))
    assert await bus.publish(submitted("one")) == 1


async def test_a_subject_of_no_stream_is_unavailable_after_a_while(bus: Bus) -> None:
    with pytest.raises(BusUnavailable, match="nowhere"):
        await bus.publish(Outgoing("nowhere.at.all", b""), timeout=0.1)


async def test_the_error_about_an_answer_that_is_late_names_the_subject(bus: Bus) -> None:
    with pytest.raises(BusUnavailable, match="nowhere"):
        await bus.publish(Outgoing("nowhere.at.all", b""), timeout=0.0)


async def test_a_batch_is_stored_as_a_whole_or_not_at_all(bus: Bus) -> None:
    sequence = await bus.publish(bucket.put_message("workload.a.one", b"1", expected=0))
    batch = [
        bucket.put_message("workload.a.two", b"2", expected=0),
        bucket.put_message("workload.a.one", b"3", expected=sequence + 5),
    ]
    with pytest.raises(StaleRevision):
        await bus.atomic(batch)
    assert await bucket.get(bus, "workload.a.two") is None
    batch[1] = bucket.put_message("workload.a.one", b"3", expected=sequence)
    assert await bus.atomic(batch) == sequence + 2
    entry = await bucket.get(bus, "workload.a.one")
    assert entry is not None
    assert entry.value == b"3"


async def test_a_repeated_batch_differs_from_a_stale_one(bus: Bus) -> None:
    batch = [
        Outgoing(f"admit.workload.pending.a.n{i}", b"{}", {MESSAGE_ID: str(i)}) for i in range(3)
    ]
    assert await bus.atomic(batch) == 3
    with pytest.raises(Repeated):
        await bus.atomic(batch)


async def test_a_batch_cannot_expect_two_revisions_of_one_key(bus: Bus) -> None:
    put = bucket.put_message("workload.a.b", b"", expected=0)
    with pytest.raises(ValueError, match="two revisions of one key"):
        await bus.atomic([put, put])


async def test_the_server_checks_revisions_before_message_ids(bus: Bus) -> None:
    # Why a put is never repeated by itself when its outcome is unknown.
    put = bucket.put_message("workload.a.b", b"", expected=0, headers={MESSAGE_ID: "x"})
    await bus.publish(put)
    with pytest.raises(StaleRevision):
        await bus.publish(put)


async def test_batches_of_several_callers_do_not_mix(bus: Bus) -> None:
    def batch(caller: int) -> list[Outgoing]:
        keys = [f"workload.a.{caller}-{i}" for i in range(20)]
        return [bucket.put_message(key, b"", expected=0) for key in keys]

    ends = await within(asyncio.gather(*(bus.atomic(batch(caller)) for caller in range(40))))
    assert sorted(ends) == list(range(20, 801, 20))


async def test_a_batch_of_a_thousand_fits_and_one_more_does_not(bus: Bus) -> None:
    puts = [bucket.put_message(f"workload.a.n{i}", b"", expected=0) for i in range(1001)]
    with pytest.raises(TooBig):
        await bus.atomic(puts)
    assert await bus.atomic(puts[:1000]) == 1000


async def test_a_decision_is_refused_after_a_takeover(bus: Bus) -> None:
    epoch = await leases.take_epoch(bus, "cohort-x", "first", expected=0)
    fenced = Outgoing(DECISION, b"{}", lease_store.fence("cohort-x", epoch))
    assert await bus.publish(fenced) > epoch
    newer = await leases.take_epoch(bus, "cohort-x", "second", expected=epoch)
    with pytest.raises(Fenced):
        await bus.publish(fenced)
    with pytest.raises(Fenced):
        await bus.atomic([fenced, fenced])
    with pytest.raises(StaleRevision):
        await leases.take_epoch(bus, "cohort-x", "first", expected=epoch)
    assert (await lease_store.read_epoch(bus, "cohort-x"))[0] == newer


async def test_a_batch_begun_before_the_takeover_is_refused_at_its_commit(bus: Bus) -> None:
    epoch = await leases.take_epoch(bus, "cohort-x", "first", expected=0)
    fence = lease_store.fence("cohort-x", epoch)
    begun = {**fence, "Nats-Batch-Id": "b1", "Nats-Batch-Sequence": "1"}
    await bus.nc.publish(DECISION, b"{}", headers=begun)
    await bus.nc.flush()
    await leases.take_epoch(bus, "cohort-x", "second", expected=epoch)
    commit = {**begun, "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
    with pytest.raises(Fenced):
        await bus.publish(Outgoing(DECISION, b"{}", commit))
    info = await bus.api("STREAM.INFO.ADMITTANCE", {"subjects_filter": DECISION})
    assert not info["state"].get("subjects")


async def test_a_cancellation_that_comes_with_the_last_acknowledgement_is_not_lost(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it were lost, a service with a failed part would wait without end and keep its lease."""
    settle = PendingAcks.settle

    def settled(gathering: PendingAcks, index: int, outcome: int | BusRefused) -> None:
        settle(gathering, index, outcome)
        publishing.cancel()

    monkeypatch.setattr(PendingAcks, "settle", settled)
    publishing = asyncio.create_task(bus.publish_all([submitted("one")]))
    with pytest.raises(asyncio.CancelledError):
        await within(publishing)


async def test_messages_with_an_id_are_sent_again_after_a_restart(
    bus: Bus, nats_server: TestServer
) -> None:
    messages = [submitted(f"n{i}") for i in range(3000)]
    messages = [Outgoing(m.subject, m.data, {MESSAGE_ID: m.subject}) for m in messages]
    publishing = asyncio.create_task(bus.publish_all(messages))
    await asyncio.sleep(0)
    await nats_server.restart_after_kill()
    outcomes = await within(publishing)
    assert not [o for o in outcomes if isinstance(o, BusRefused)]
    state = (await bus.api("STREAM.INFO.ADMITTANCE", {"subjects_filter": ">"}))["state"]
    assert state["messages"] == state["num_subjects"] == 3000


async def test_without_an_id_a_lost_connection_leaves_the_outcome_unknown(
    bus: Bus, nats_server: TestServer
) -> None:
    publishing = asyncio.create_task(bus.publish_all([submitted(f"n{i}") for i in range(20_000)]))
    await asyncio.sleep(0.01)
    await nats_server.kill()
    with pytest.raises(BusUnavailable):
        await within(publishing)


@pytest.fixture
def _lost_at_first(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write is lost, as when a server dies; messages are sent again soon."""
    monkeypatch.setattr(bus_module, "RESEND_SECONDS", 0.1)
    send, lost = bus.nc.send, [True]

    async def dropping(data: bytes) -> None:
        if lost:
            lost.clear()
        else:
            await send(data)

    monkeypatch.setattr(bus.nc, "send", dropping)


@pytest.mark.usefixtures("_lost_at_first")
async def test_a_message_with_an_id_is_sent_again_without_an_answer(bus: Bus) -> None:
    assert await bus.publish(submitted("one", **{MESSAGE_ID: "x"})) == 1


@pytest.mark.usefixtures("_lost_at_first")
async def test_a_message_without_an_id_is_not_sent_again(bus: Bus) -> None:
    with pytest.raises(BusUnavailable, match="in time"):
        await bus.publish(submitted("one"), timeout=0.3)


@pytest.mark.usefixtures("_lost_at_first")
async def test_a_put_is_sent_again_for_a_caller_that_reads_stale_keys(bus: Bus) -> None:
    put = bucket.put_message("workload.a.b", b"1", expected=0)
    assert await bus.publish_all([put], repeat_puts=True) == [1]


@pytest.mark.servers("real")
async def test_a_request_to_jetstream_is_sent_again_until_it_is_answered(bare_bus: Bus) -> None:
    received: list[bytes] = []

    async def answer_the_third(question: Msg) -> None:
        received.append(question.data)
        if len(received) == 3:
            await question.respond(b'{"third": true}')

    # While a leader is elected, no server answers; here a subscriber ignores two copies.
    await bare_bus.nc.subscribe("$JS.API.SLOW", cb=answer_the_third)
    assert await within(bare_bus.api("SLOW", {"at": 1}, timeout=LIMIT)) == {"third": True}
    assert received == [b'{"at":1}'] * 3


@pytest.mark.servers("real")
async def test_a_purge_is_sent_once(bare_bus: Bus) -> None:
    received: list[bytes] = []

    async def note(question: Msg) -> None:
        received.append(question.data)

    await bare_bus.nc.subscribe("$JS.API.STREAM.PURGE.none.at.all", cb=note)
    with pytest.raises(BusUnavailable):
        await bare_bus.api("STREAM.PURGE.none.at.all", {}, timeout=3 * RESEND_SECONDS)
    assert len(received) == 1
