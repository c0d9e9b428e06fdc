"""The services that most tests need, and one server of EC2 for all tests of its provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from admittance.runtime.bus.bus import Bus
from integration.provisioning.backends.fake_kubernetes import Kubernetes
from integration.provisioning.capacity_requester import CapacityRequester
from support.capacity import SERVICES
from support.cluster import Cluster
from support.programs.ec2_server import Ec2Server
from support.servers import TestServer


@pytest.fixture
async def cluster(
    request: pytest.FixtureRequest, bus: Bus, nats_server: TestServer, tmp_path: Path
) -> AsyncIterator[Cluster]:
    """The services that a module names as ``SERVICES``; by default the services that provisioning
    needs."""
    folder = tmp_path / "services"
    folder.mkdir()
    cluster = Cluster(nats_server, folder)
    for service in getattr(request.module, "SERVICES", SERVICES):
        await cluster.start(service)
    yield cluster
    await cluster.stop()


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


@pytest.fixture
async def requester(bus: Bus) -> CapacityRequester:
    return await CapacityRequester(bus).start()


@pytest.fixture
def kubernetes() -> Iterator[Kubernetes]:
    cluster = Kubernetes()
    yield cluster
    cluster.close()
