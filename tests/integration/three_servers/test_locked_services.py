"""Two of each service on three locked servers, without containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.runtime.bus import streams
from support.requests import apply
from support.three_servers import services_on, three_servers

pytestmark = pytest.mark.bus


async def test_services_on_locked_servers_apply_objects(tmp_path: Path) -> None:
    async with three_servers(tmp_path, locked=True) as servers:
        bus = await servers.connect()
        try:
            for stream in streams.all_streams():
                info = await bus.api(f"STREAM.INFO.{stream.name}")
                assert info["config"]["num_replicas"] == 3, stream.name
                assert len(info["cluster"]["replicas"]) == 2, stream.name
            async with services_on(servers, tmp_path, ("workload-controller", "scheduler")):
                flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
                await apply(bus, {**flavor, "metadata": {"name": "default"}})
        finally:
            await bus.close()
