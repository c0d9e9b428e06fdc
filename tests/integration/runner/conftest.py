"""A real server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from admittance.runtime.bus import micro, streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.embedded_server import EmbeddedServer
from admittance.workload_controller.reading_endpoints import reading_endpoints
from integration.runner.harness import RunnerTestbed


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[RunnerTestbed]:
    server = EmbeddedServer(tmp_path / "nats")
    url = await server.start()
    bus = await Bus.connect(url, name="test")
    try:
        await streams.ensure(bus)
        await micro.serve(bus, "workload-controller", "test", reading_endpoints(bus))
        yield RunnerTestbed(server, bus, tmp_path)
    finally:
        await bus.close()
        await server.stop()
