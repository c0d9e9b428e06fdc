"""A real server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.embedded_server import EmbeddedServer
from integration.runner.harness import RunnerTestbed


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[RunnerTestbed]:
    server = EmbeddedServer(tmp_path / "nats")
    url = await server.start()
    bus = await Bus.connect(url, name="test")
    try:
        await streams.ensure(bus)
        yield RunnerTestbed(server, bus, tmp_path)
    finally:
        await bus.close()
        await server.stop()
