"""Snapshots of streams on a real server: what is stored meanwhile is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from admittance.backup.s2 import Corrupt
from admittance.backup.snapshot_reader import read_snapshot
from admittance.events import subjects
from admittance.runtime.bus import streams
from admittance.runtime.bus.bucket import put_message, read_all
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.streams import KV_LOG
from admittance.runtime.errors import AdmittanceError, SetupError
from admittance.runtime.nats.connection import Connection
from admittance.runtime.nats_server import snapshots
from support.servers import TestServer

pytestmark = pytest.mark.bus
COUNT = 3_000


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Bus, Bus]]:
    """Connections to a server with streams, and to an empty one."""
    servers = [TestServer(tmp_path / name) for name in ("old", "new")]
    buses = [await Bus.connect(await server.start(), name="test") for server in servers]
    await streams.ensure(buses[0])
    yield buses[0], buses[1]
    for bus in buses:
        await bus.close()
    for server in servers:
        await server.stop()


async def snapshot_of(bus: Bus, stream: str) -> tuple[list[bytes], dict[str, Any], dict[str, Any]]:
    parts: list[bytes] = []
    config, state = await snapshots.take_snapshot(bus, stream, lambda _: parts.append)
    return parts, config, state


async def test_keys_written_after_a_snapshot_keep_value_and_revision(
    two: tuple[Bus, Bus],
) -> None:
    old, new = two
    keys = [f"workload.ns.w{number}" for number in range(COUNT)]
    await old.publish_all([put_message(key, b"old", expected=0) for key in keys])
    parts, config, state = await snapshot_of(old, KV_LOG)
    state_before = int(state["last_seq"])
    await old.publish_all([put_message(key, b"new", expected=None) for key in keys[::2]])
    later = [
        message
        async for page in snapshots.messages_since(old, KV_LOG, state_before)
        for message in page
    ]
    last = await snapshots.restore_snapshot(new, config, state, parts)
    assert last == state_before
    end = later[-1].sequence + 10
    again = [(message.sequence, snapshots.outgoing(message)) for message in later]
    assert await snapshots.publish_at_sequences(new, KV_LOG, last, again, end) == end
    assert await snapshots.last_sequence(new, KV_LOG) == end
    expected = {
        entry.key: (entry.value, entry.revision) for entry in await read_all(old, "workload.>")
    }
    values = {
        entry.key: (entry.value, entry.revision) for entry in await read_all(new, "workload.>")
    }
    assert values == expected
    assert len(values) == COUNT


async def test_long_gaps_of_sequences_are_filled_beside_short_ones(
    two: tuple[Bus, Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "FILLED_AT_ONCE", 10)
    bus = two[0]
    places = [1, 2, 4, 9, *range(10, 35), 60, 61, 100]
    messages = [(place, put_message(f"w.n{place}", b"x", expected=None)) for place in places]
    assert await snapshots.publish_at_sequences(bus, KV_LOG, 0, messages, 123) == 123
    assert [entry.revision for entry in await read_all(bus, "w.>")] == places
    assert await snapshots.last_sequence(bus, KV_LOG) == 123
    await bus.publish(put_message("w.other", b"x", expected=None))
    with pytest.raises(SetupError, match="another program writes to stream KV_admittance"):
        await snapshots.publish_at_sequences(bus, KV_LOG, 123, [], 150)


async def test_no_key_is_lost_while_a_writer_never_rests(two: tuple[Bus, Bus]) -> None:
    """The server reads message after message up to the last sequence at the start: a key that is
    written meanwhile is not in the snapshot."""
    old, new = two
    keys = [f"workload.ns.w{number}" for number in range(COUNT)]
    await old.publish_all([put_message(key, b"x" * 1000, expected=0) for key in keys])

    async def write() -> None:
        while True:
            await old.publish_all([put_message(key, b"y", expected=None) for key in keys[:200]])
            await asyncio.sleep(0.01)

    writing = asyncio.create_task(write())
    parts, config, state = await snapshot_of(old, KV_LOG)
    later = [
        message
        async for page in snapshots.messages_since(old, KV_LOG, int(state["last_seq"]))
        for message in page
    ]
    writing.cancel()
    last = await snapshots.restore_snapshot(new, config, state, parts)
    again = [(message.sequence, snapshots.outgoing(message)) for message in later]
    await snapshots.publish_at_sequences(new, KV_LOG, last, again, last)
    assert {entry.key for entry in await read_all(new, "workload.>")} == set(keys)


async def test_a_consumer_of_the_log_continues_after_its_last_acknowledgement(
    two: tuple[Bus, Bus],
) -> None:
    old, new = two
    for number in range(4):
        await old.publish(Outgoing(f"admit.workload.submitted.ns.w{number}", b"{}"))
    settings = {"ack_policy": "explicit", "filter_subjects": ["admit.check.>"]}
    for name, policy in (("all", "all"), ("new", "new")):
        config = {"durable_name": name, "name": name, "deliver_policy": policy, **settings}
        request = {"stream_name": subjects.STREAM, "config": config}
        await old.api(f"CONSUMER.CREATE.{subjects.STREAM}.{name}", request)
    positions = {position.name: position for position in await snapshots.log_positions(old)}
    assert {name: position.floor for name, position in positions.items()} == {"all": 0, "new": 4}
    for stream in (subjects.TIMERS, subjects.STREAM):
        parts, config, state = await snapshot_of(old, stream)
        await snapshots.restore_snapshot(new, config, state, parts)
    for position in positions.values():
        await snapshots.restore_position(new, position)
    again = {position.name: position.floor for position in await snapshots.log_positions(new)}
    assert again == {"all": 0, "new": 4}


async def test_a_server_refuses_a_snapshot_that_was_cut(two: tuple[Bus, Bus]) -> None:
    old, new = two
    await old.publish_all(
        [put_message(f"workload.ns.w{number}", b"x" * 500, expected=0) for number in range(50)]
    )
    parts, config, state = await snapshot_of(old, KV_LOG)
    with pytest.raises(AdmittanceError):
        await snapshots.restore_snapshot(new, config, state, [parts[0][:200]])


async def test_a_stream_of_many_parts_is_restored_as_a_whole(two: tuple[Bus, Bus]) -> None:
    """nats-server sends parts of 128 KiB, and waits for confirmations after 64 of them."""
    old, new = two
    chance = Random(1)
    text = b'{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "status": {}}' * 3
    values = [text + chance.randbytes(9_000) for _ in range(1_000)]
    await old.publish_all(
        [
            put_message(f"workload.ns.w{place}", value, expected=0)
            for place, value in enumerate(values)
        ]
    )
    await old.publish_all(
        [put_message(f"workload.ns.w{place}", b"short", expected=None) for place in range(10)]
    )
    parts, config, state = await snapshot_of(old, KV_LOG)
    assert len(parts) > 64
    snapshot = read_snapshot(KV_LOG, state, parts)
    assert snapshot.missing() == ""
    assert snapshot.messages == state["messages"] == 1_000
    for wrong in (parts[-1:], parts[:-1], parts[:3] + parts[4:], parts[1:]):
        with pytest.raises(Corrupt):
            read_snapshot(KV_LOG, state, wrong)
    assert snapshot.size == state["bytes"]
    more = {**state, "messages": snapshot.messages + 1}
    sentence = f"{snapshot.messages:,} of {snapshot.messages + 1:,} messages"
    assert read_snapshot(KV_LOG, more, parts).missing() == sentence
    assert read_snapshot(KV_LOG, more, parts).missing(removed=1) == ""
    await snapshots.restore_snapshot(new, config, state, parts)
    restored = {entry.key: entry.value for entry in await read_all(new, "workload.>")}
    expected = {f"workload.ns.w{place}": value for place, value in enumerate(values)}
    assert restored == expected | {f"workload.ns.w{place}": b"short" for place in range(10)}


@pytest.mark.parametrize("lost", ["a part in the middle", "the last part"])
async def test_a_snapshot_without_one_of_its_parts_is_refused(
    two: tuple[Bus, Bus], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    old, _ = two
    chance = Random(1)
    values = [chance.randbytes(9_000) for _ in range(60)]
    await old.publish_all(
        [
            put_message(f"workload.ns.w{place}", value, expected=0)
            for place, value in enumerate(values)
        ]
    )
    passed = type(old.nc)._process_msg

    async def lose(
        nc: Connection, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        gone = reply.endswith(b".2") if lost != "the last part" else not reply
        if gone and len(data) > 10_000:
            return
        await passed(nc, sid, subject, reply, data, headers)

    monkeypatch.setattr(type(old.nc), "_process_msg", lose)
    if lost == "the last part":
        parts, _, state = await snapshot_of(old, KV_LOG)
        with pytest.raises(Corrupt, match="the end is missing"):
            read_snapshot(KV_LOG, state, parts)
    else:
        with pytest.raises(snapshots.SnapshotEnded, match="a part of the snapshot"):
            await snapshot_of(old, KV_LOG)
