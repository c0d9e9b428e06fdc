"""The services that most tests need, and one server of EC2 for all tests of its provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from admittance.runtime.bus.bus import Bus
from ec2_server import Ec2Server

from capacity import SERVICES
from processes import Fleet
from servers import TestServer


@pytest.fixture
async def fleet(
    request: pytest.FixtureRequest, bus: Bus, nats_server: TestServer, tmp_path: Path
) -> AsyncIterator[Fleet]:
    """The services that a module names as ``SERVICES``, else those that capacity needs."""
    folder = tmp_path / "services"
    folder.mkdir()
    fleet = Fleet(nats_server.url, folder)
    for service in getattr(request.module, "SERVICES", SERVICES):
        await fleet.start(service)
    yield fleet
    await fleet.stop()


@pytest.fixture(scope="session")
def ec2_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2Server]:
    server = Ec2Server(tmp_path_factory.mktemp("ec2"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def ec2(ec2_process: Ec2Server) -> Ec2Server:
    """As new."""
    ec2_process.reset()
    return ec2_process
