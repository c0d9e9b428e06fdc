"""A server, and services as processes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from admittance.runtime.bus.bus import Bus

from processes import Fleet
from servers import TestServer


@pytest.fixture
async def fleet(bus: Bus, nats_server: TestServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Starts services; ends them with the test."""
    fleet = Fleet(nats_server.url, tmp_path)
    yield fleet
    await fleet.stop()
