"""Snapshots of streams on a real server: what is stored meanwhile is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from admittance.events import subjects
from admittance.runtime import snapshots
from admittance.runtime.bus import streams
from admittance.runtime.bus.bucket import put_message, read_all
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.streams import KV_LOG
from admittance.runtime.errors import AdmittanceError
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


async def test_keys_written_after_a_snapshot_keep_value_and_revision(
    two: tuple[Bus, Bus],
) -> None:
    old, new = two
    keys = [f"workload.ns.w{number}" for number in range(COUNT)]
    await old.publish_all([put_message(key, b"old", expected=0) for key in keys])
    parts: list[bytes] = []
    config, state = await snapshots.take_snapshot(old, KV_LOG, parts.append)
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
    expected = {one.key: (one.value, one.revision) for one in await read_all(old, "workload.>")}
    found = {one.key: (one.value, one.revision) for one in await read_all(new, "workload.>")}
    assert found == expected
    assert len(found) == COUNT


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
    parts: list[bytes] = []
    config, state = await snapshots.take_snapshot(old, KV_LOG, parts.append)
    later = [
        message
        async for page in snapshots.messages_since(old, KV_LOG, int(state["last_seq"]))
        for message in page
    ]
    writing.cancel()
    last = await snapshots.restore_snapshot(new, config, state, parts)
    again = [(message.sequence, snapshots.outgoing(message)) for message in later]
    await snapshots.publish_at_sequences(new, KV_LOG, last, again, last)
    assert {one.key for one in await read_all(new, "workload.>")} == set(keys)


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
    positions = {one.name: one for one in await snapshots.log_positions(old)}
    assert {name: one.floor for name, one in positions.items()} == {"all": 0, "new": 4}
    for stream in (subjects.TIMERS, subjects.STREAM):
        parts: list[bytes] = []
        config, state = await snapshots.take_snapshot(old, stream, parts.append)
        await snapshots.restore_snapshot(new, config, state, parts)
    for one in positions.values():
        await snapshots.restore_position(new, one)
    again = {one.name: one.floor for one in await snapshots.log_positions(new)}
    assert again == {"all": 0, "new": 4}


async def test_a_server_refuses_a_snapshot_that_was_cut(two: tuple[Bus, Bus]) -> None:
    old, new = two
    await old.publish_all(
        [put_message(f"workload.ns.w{number}", b"x" * 500, expected=0) for number in range(50)]
    )
    parts: list[bytes] = []
    config, state = await snapshots.take_snapshot(old, KV_LOG, parts.append)
    with pytest.raises(AdmittanceError):
        await snapshots.restore_snapshot(new, config, state, [parts[0][:200]])
