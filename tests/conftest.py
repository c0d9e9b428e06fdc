"""Fixtures for tests against a real nats-server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from admittance.runtime import streams
from admittance.runtime.bus import Bus

from servers import TestServer


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[TestServer]:
    """A running nats-server with an empty store."""
    server = TestServer(tmp_path / "data")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def bare_bus(nats_server: TestServer) -> AsyncIterator[Bus]:
    """A connection to a server without streams."""
    bus = await Bus.connect(nats_server.url, name="test")
    yield bus
    await bus.close()


@pytest.fixture
async def bus(bare_bus: Bus) -> Bus:
    """A connection to a server that has all streams and buckets."""
    await streams.ensure(bare_bus)
    return bare_bus
