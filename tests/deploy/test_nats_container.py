"""Services on this machine, with a nats-server in a container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from testcontainers.community.nats import NatsContainer
from testcontainers.core.config import testcontainers_config

from admittance.runtime.bus.bus import Bus
from admittance.runtime.clock import now
from admittance.workload.phase import Phase, phase
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, queues, submit, workload
from support.servers import until

pytestmark = pytest.mark.deploy

PORT = 4222
SERVICES = ("workload-controller", "scheduler", "retry-timer")


@pytest.fixture
def server(base: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsContainer]:
    """A nats-server with JetStream, reachable from this machine only."""
    # Its image cannot be pulled here. The fixture removes the container.
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    container = NatsContainer(base, ready_timeout_secs=60)
    container.with_command("nats-server --jetstream --store_dir /tmp/jetstream --http_port 8222")
    container.ports = {PORT: ("127.0.0.1",), 8222: ("127.0.0.1",)}  # type: ignore[dict-item]
    with container:
        yield container


async def test_workloads_survive_the_kill_of_the_server_s_container(
    server: NatsContainer, tmp_path: Path
) -> None:
    # A published port changes with a restart of its container, so the test names the container.
    inner = server.get_wrapped_container()
    inner.reload()
    address = inner.attrs["NetworkSettings"]["IPAddress"]
    url = f"nats://{address}:{PORT}"
    cluster = Cluster(url, tmp_path)
    for service in SERVICES:
        await cluster.start(service)
    bus = await Bus.connect(url, name="test")

    async def is_in(name: str, wanted: Phase) -> bool:
        found = await workload(bus, name)
        return found is not None and phase(found, now()) is wanted

    try:
        await apply(bus, *queues("cq"))
        await submit(bus, [a_manifest("before", queue="lq-cq")])
        await eventually(lambda: is_in("before", Phase.ADMITTED))
        inner.kill()
        await until(lambda: not bus.nc.is_connected)
        inner.start()
        inner.reload()
        assert inner.attrs["NetworkSettings"]["IPAddress"] == address
        await bus.connected(60.0)
        await submit(bus, [a_manifest("after", queue="lq-cq")])
        await eventually(lambda: is_in("after", Phase.ADMITTED), 120.0)
        assert await is_in("before", Phase.ADMITTED)
    finally:
        await bus.close()
        await cluster.stop()
