"""A real server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.embedded_server import EmbeddedServer
from integration.runner.harness import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = EmbeddedServer(tmp_path / "nats")
    url = await server.start()
    bus = await Bus.connect(url, name="test")
    try:
        await streams.ensure(bus)
        yield World(server, bus, tmp_path)
    finally:
        await bus.close()
        await server.stop()
