"""A replica that lags answers direct gets with old values; nothing is decided from them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.harness.server_cluster import ServerCluster

from admittance.runtime.bus import bucket
from admittance.runtime.bus.bucket import Entry, put_message
from admittance.runtime.bus.bus import Bus
from support.servers import within
from support.three_servers import three_servers

pytestmark = pytest.mark.bus

KEY = "workload.a.b"
ROUNDS = 20
BEFORE = 2000
"""How many messages the follower has to catch up on before it has the one that is read."""
FILLING = b"x" * 1000


async def answer_after_a_pause(
    servers: ServerCluster, follower: int, writer: Bus, reader: Bus, expected: int, *, wanted: bool
) -> tuple[int, Entry | None]:
    """Pauses the follower, writes the key, and reads it from the follower as soon as it continues.
    Returns the revision that was written, and the entry that was read. ``wanted``: whether the read
    names that revision."""
    servers.pause(follower)
    try:
        before = [put_message(f"workload.a.n{n}", FILLING, expected=None) for n in range(BEFORE)]
        await within(writer.publish_all(before))
        written = await within(writer.publish(put_message(KEY, b"x", expected=expected)))
        at_least = written if wanted else 0
        reading = asyncio.create_task(bucket.get_directly(reader, KEY, at_least=at_least))
        # The request is in the socket of the follower before the follower continues.
        await asyncio.sleep(0.05)
    finally:
        servers.resume(follower)
    return written, await within(reading)


async def test_a_direct_get_of_a_lagging_replica_may_be_old_unless_it_names_a_revision(
    tmp_path: Path,
) -> None:
    async with three_servers(tmp_path) as servers:
        writer = await servers.connect()
        leader = await servers.stream_leader(writer, "KV_admittance")
        assert leader is not None
        await writer.close()
        follower = next(server for server in range(servers.size) if server != leader)
        writer, reader = await servers.connect(leader), await servers.connect(follower)
        try:
            old = last = 0
            for _ in range(ROUNDS):
                last, answer = await answer_after_a_pause(
                    servers, follower, writer, reader, last, wanted=False
                )
                old += answer is None or answer.revision < last
                last, answer = await answer_after_a_pause(
                    servers, follower, writer, reader, last, wanted=True
                )
                assert answer is not None
                assert answer.revision == last
                if old:
                    break
            if not old:
                pytest.skip("the follower was never behind, so its old answers cannot be shown")
        finally:
            await writer.close()
            await reader.close()
