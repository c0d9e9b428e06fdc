"""Replicas of streams that exist, and what a server says that cannot keep so many."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from admittance.runtime.bus import streams
from admittance.runtime.bus.bucket import get, put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, Busy, SetupError
from support.requests import eventually
from support.three_servers import three_servers

pytestmark = pytest.mark.bus
NAMES = [stream.name for stream in streams.all_streams()]
TOO_MANY = (
    r"stream ADMITTANCE_TIMERS needs 5 servers \(ADMIT_REPLICAS\) of one cluster that run and have "
    r"room: start the missing servers, or set a smaller number \(10005\)"
)


async def replicas(bus: Bus) -> set[int]:
    infos = [await bus.api(f"STREAM.INFO.{name}") for name in NAMES]
    return {info["config"]["num_replicas"] for info in infos}


async def test_a_deployment_with_one_replica_gets_three_and_keeps_its_data(tmp_path: Path) -> None:
    async with three_servers(tmp_path, with_streams=False) as servers:
        bus = await servers.connect()
        with pytest.raises(Busy, match=TOO_MANY):
            await streams.ensure(bus, replicas=5)
        await streams.ensure(bus)
        assert await replicas(bus) == {1}
        written = await bus.publish(put_message("workload.a.b", b"x", expected=0))
        await streams.ensure(bus, replicas=3)
        assert await replicas(bus) == {3}
        await servers.healthy(bus, NAMES)
        # Fewer are asked for, and none is taken away.
        await streams.ensure(bus)
        assert await replicas(bus) == {3}
        with capture_logs() as logged:
            await streams.ensure(bus, replicas=5)
        lines = [line for line in logged if line["event"] == "replicas_not_added"]
        assert [line["stream"] for line in lines] == NAMES
        assert "5 servers (ADMIT_REPLICAS)" in lines[0]["reason"]
        leader = await servers.stream_leader(bus, "KV_admittance")
        assert leader is not None
        await bus.close()
        await servers.kill(leader)
        await servers.formed()
        bus = await servers.connect(servers.up[0])

        async def is_there() -> bool:
            try:
                entry = await get(bus, "workload.a.b")
            except AdmittanceError:
                return False  # the replicas elect a leader
            return entry is not None and entry.revision == written

        await eventually(is_there)
        await bus.close()


async def test_a_server_without_a_cluster_refuses_three_replicas_in_one_line(
    bare_bus: Bus,
) -> None:
    with pytest.raises(SetupError, match="not part of a cluster: set 1, or start 3 servers"):
        await streams.ensure(bare_bus, replicas=3)
    await streams.ensure(bare_bus)
    with capture_logs() as logged:
        await streams.ensure(bare_bus, replicas=3)
    lines = [line for line in logged if line["event"] == "replicas_not_added"]
    assert [line["stream"] for line in lines] == NAMES
    assert "not part of a cluster" in lines[0]["reason"]
