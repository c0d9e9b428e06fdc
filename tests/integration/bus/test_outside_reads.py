"""Lists and followed keys without a consumer, against a real server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from admittance.events.requests.history import Events, EventsReply
from admittance.events.requests.reading import Objects, ObjectsReply
from admittance.runtime import clock
from admittance.runtime.bus import history
from admittance.runtime.bus.bucket import Entry, delete_message, get_directly, put_message
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import StoredMessage, last_by_direct_get
from admittance.runtime.bus.outside_reads import (
    PAGE,
    FirstPart,
    KeyFollower,
    list_objects,
    objects_subject,
    read_directly,
    request_in_parts,
)
from admittance.runtime.errors import StaleRevision
from admittance.runtime.nats import micro
from admittance.workload_controller.endpoints import events_endpoint
from admittance.workload_controller.endpoints import reading_endpoints as endpoints
from admittance.workload_controller.endpoints.reading_endpoints import reading_endpoints
from support.servers import within

pytestmark = pytest.mark.bus
NEVER = 3600.0


async def put(bus: Bus, key: str, value: str, **wants: Any) -> int:
    return await bus.publish(put_message(key, value.encode(), expected=None, **wants))


def follower(bus: Bus, *, again_seconds: float = NEVER) -> AsyncGenerator[list[Entry]]:
    async def read() -> list[Entry]:
        return await read_directly(bus, "workload.ns.*")

    return KeyFollower(bus, ("workload.ns.*",), read, again_seconds=again_seconds).batches()


async def test_a_follower_reports_what_is_there_and_each_change(bus: Bus) -> None:
    await put(bus, "workload.ns.old", "1")
    await put(bus, "workload.other.one", "1")
    batches = follower(bus)
    assert [entry.key for entry in await within(anext(batches))] == ["workload.ns.old"]
    revision = await put(bus, "workload.ns.new", "2")
    [entry] = await within(anext(batches))
    assert (entry.key, entry.value, entry.revision) == ("workload.ns.new", b"2", revision)
    await bus.publish(delete_message("workload.ns.old", expected=None))
    [entry] = await within(anext(batches))
    assert (entry.key, entry.value) == ("workload.ns.old", None)
    await batches.aclose()


async def test_a_refused_write_does_not_count_as_a_change(bus: Bus) -> None:
    revision = await put(bus, "workload.ns.one", "1")
    batches = follower(bus)
    await within(anext(batches))
    with pytest.raises(StaleRevision):
        await bus.publish(put_message("workload.ns.one", b"stale", expected=revision + 5))
    await put(bus, "workload.ns.two", "2")
    assert [entry.key for entry in await within(anext(batches))] == ["workload.ns.two"]
    await batches.aclose()


async def test_the_last_of_many_quick_writes_is_reported(bus: Bus) -> None:
    batches = follower(bus)
    await within(anext(batches))
    messages = [
        put_message("workload.ns.one", str(number).encode(), expected=None) for number in range(500)
    ]
    await bus.publish_all(messages)

    async def until_last() -> None:
        async for batch in batches:
            if batch[-1].value == b"499":
                return

    await within(until_last())
    await batches.aclose()


async def test_an_expired_value_is_reported_at_the_next_reading(bus: Bus) -> None:
    await put(bus, "workload.ns.one", "1", ttl_seconds=1)
    batches = follower(bus, again_seconds=0.2)
    await within(anext(batches))
    [entry] = await within(anext(batches))
    assert (entry.key, entry.value) == ("workload.ns.one", None)
    await batches.aclose()


async def test_a_list_of_several_pages_has_every_object(bus: Bus) -> None:
    names = [f"w{number}" for number in range(PAGE + 20)]
    await bus.publish_all(
        [put_message(f"workload.ns.{name}", b'{"a":1}', expected=None) for name in names]
    )
    await put(bus, "workload.ns.not-json", "{")
    await put(bus, "workload.ns.long", json.dumps("x" * 950_000))
    await bus.publish(delete_message("workload.ns.w7", expected=None))
    await put(bus, "workload.other.one", "{}")
    await put(bus, "clusterqueue.q", "{}")
    await micro.serve(bus.nc, "workload-controller", "test", reading_endpoints(bus))

    async def listed(kind: str, namespace: str | None) -> list[Entry]:
        async def ask(request: Objects, on_first: FirstPart) -> list[ObjectsReply]:
            data = msgspec.json.encode(request)
            return await request_in_parts(
                bus, objects_subject(namespace), data, ObjectsReply, on_first=on_first
            )

        return await list_objects(bus, ask, kind)

    values = {entry.key: entry.value for entry in await listed("workload", "ns")}
    assert values.keys() == {f"workload.ns.{name}" for name in [*names, "not-json", "long"]} - {
        "workload.ns.w7"
    }
    assert values["workload.ns.w1"] == b'{"a":1}'
    assert values["workload.ns.not-json"] == b"{"
    assert len(values["workload.ns.long"] or b"") == 950_002
    assert len(await listed("workload", None)) == len(values) + 1
    assert [entry.key for entry in await listed("clusterqueue", "")] == ["clusterqueue.q"]
    answer = await bus.request("admit.api.objects", b'{"kind":"_admittance"}')
    assert "is not a kind of object" in json.loads(answer)["error"]


async def test_a_long_page_comes_in_parts_and_a_page_without_parts_is_cut(bus: Bus) -> None:
    value = json.dumps("x" * 400_000).encode()
    keys = [f"workload.ns.w{number}" for number in range(7)]
    await bus.publish_all([put_message(key, value, expected=None) for key in keys])
    await micro.serve(bus.nc, "workload-controller", "test", reading_endpoints(bus))
    subject = objects_subject("ns")
    parts = await request_in_parts(
        bus, subject, b'{"kind":"workload","inParts":true}', ObjectsReply
    )
    assert [page.parts for page in parts] == [4, 4, 4, 4]
    assert [manifest.key for reply in parts for manifest in reply.objects] == keys
    cut = msgspec.json.decode(await bus.request(subject, b'{"kind":"workload"}'), type=ObjectsReply)
    assert [entry.key for entry in cut.objects] == keys[:2]
    assert (cut.parts, cut.last) == (1, cut.objects[-1].revision)
    nothing = await request_in_parts(
        bus, objects_subject("none"), b'{"kind":"workload","inParts":true}', ObjectsReply
    )
    assert nothing == [ObjectsReply()]


async def test_a_list_waits_for_a_replica_that_lags(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(bus, "workload.ns.one", "{}")
    newest = [2, 2, 1]

    async def last(*_: object, **__: object) -> StoredMessage:
        return StoredMessage(newest.pop(0), clock.now(), "", b"")

    monkeypatch.setattr(endpoints, "last", last)
    await micro.serve(bus.nc, "workload-controller", "test", reading_endpoints(bus))
    asked = objects_subject("ns"), b'{"kind":"workload"}'
    reply = msgspec.json.decode(await within(bus.request(*asked)), type=ObjectsReply)
    assert [manifest.key for manifest in reply.objects] == ["workload.ns.one"]
    assert not newest, "the list was read until it had the newest entry of the leader"
    monkeypatch.setattr(endpoints, "LAG_SECONDS", -1.0)
    newest.append(2)
    assert "lag" in json.loads(await within(bus.request(*asked)))["error"]


async def test_headers_of_a_publisher_do_not_hide_those_of_the_server(bus: Bus) -> None:
    forged = {"Nats-Sequence": "999", "Nats-Subject": "forged", "Nats-Time-Stamp": "x"}
    revision = await bus.publish(
        put_message("workload.ns.one", b"1", expected=None, headers=forged)
    )
    newest = await last_by_direct_get(bus, "$KV.admittance.workload.ns.one", stream="KV_admittance")
    assert newest is not None
    assert (newest.sequence, newest.subject) == (revision, "$KV.admittance.workload.ns.one")
    entry = await get_directly(bus, "workload.ns.one")
    assert entry is not None
    assert entry.revision == revision
    assert await get_directly(bus, "workload.ns.none") is None


async def test_a_history_is_read_in_order_and_in_bounded_pages(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "FILTERS_AT_ONCE", 2)
    sent = []
    for number in range(60):
        name, size = f"w{number % 5}", 30_000 if number % 3 else 10
        subject = f"admit.workload.submitted.ns.{name}"
        sent.append(await bus.publish(Outgoing(subject, b"x" * size)))
    filters = [f"admit.workload.submitted.ns.w{number}" for number in range(4)]
    wanted = [message for number, message in enumerate(sent) if number % 5 < 4]
    sequences: list[int] = []
    whole, pages = False, 0
    while not whole:
        after = sequences[-1] if sequences else 0
        page, whole = await history.read_in_order(
            bus, filters, after=after, limit=20, bytes_max=200_000
        )
        assert len(page) <= 20
        assert sum(len(message.data) for message in page) <= 200_000
        sequences += [message.sequence for message in page]
        pages += 1
    assert sequences == wanted
    assert pages < 12
    assert await history.read_in_order(
        bus, filters, after=sequences[-1], limit=20, bytes_max=200_000
    ) == ([], True)


async def test_a_reply_of_events_covers_a_bounded_number_of_dead_letters_of_others(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_endpoint, "PAGES_MAX", 2)
    for number in range(5):
        await bus.publish(Outgoing(f"admit.deadletter.x{number}", b"{}"))
    said = await bus.publish(Outgoing("admit.workload.submitted.ns.mine", b"{}"))
    events = reading_endpoints(bus)["admit.api.events.*"]
    after, replies = 0, []
    while not replies or not replies[-1].complete:
        asked = msgspec.json.encode(Events(workload="mine", after=after, limit=1))
        reply = await within(events(asked, "admit.api.events.ns"))
        assert isinstance(reply, EventsReply)
        assert reply.covered() > after or reply.complete
        after = reply.covered()
        replies.append(reply)
    assert [entry.sequence for reply in replies for entry in reply.entries] == [said]
    assert replies[0].entries == ()
    assert 3 <= len(replies) <= 5


@pytest.mark.servers("real", "simulated")
async def test_the_newest_messages_of_many_subjects_all_come_however_long_they_are(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LAST_BYTES", 5_000)
    names = [f"admit.workload.admitted.ns.w{number}" for number in range(12)]
    for text in (b"old", b"new"):
        await bus.publish_all([Outgoing(name, text * 700) for name in names[:10]])
    pages = [page async for page in history.pages_of_last(bus, names)]
    assert len(pages) > 1
    assert max(len(page) for page in pages) <= 4
    newest = await history.last_of_each(bus, names)
    assert [(message.subject, message.data[:3]) for message in newest] == [
        (name, b"new") for name in names[:10]
    ]
    assert newest == [message for page in pages for message in page]
