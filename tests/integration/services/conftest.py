"""A server, and services as processes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from admittance.runtime.bus.bus import Bus
from support.cluster import Cluster
from support.servers import TestServer


@pytest.fixture
async def cluster(bus: Bus, nats_server: TestServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Starts services; ends them with the test."""
    cluster = Cluster(nats_server, tmp_path)
    yield cluster
    await cluster.stop()
