"""compose.ha.yaml: three servers and two of each service go on without a server and without half of
the services."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import containers
import pytest
from containers import ROOT, Deployment, docker

from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.streams import all_streams
from admittance.runtime.nats.connection_options import ConnectionOptions

pytestmark = pytest.mark.deploy

FILES = ("compose.yaml", "deploy/compose.ha.yaml")
SUBMIT = ("submit", "-q", "research", "--wait", "--name")


@pytest.fixture(scope="module")
def deployment(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with containers.deployed(base, tmp_path_factory.mktemp("compose"), files=FILES) as deployment:
        deployment.await_health()
        deployment.admit("apply", "-f", str(ROOT / "deploy" / "samples" / "queues.yaml"))
        yield deployment


async def leaders(deployment: Deployment) -> dict[str, tuple[int, str]]:
    """Replicas and leader of each stream."""
    creds = deployment.auth / "containers" / "workload-controller.creds"
    access = ConnectionOptions(creds=str(creds))
    bus = await Bus.connect(deployment.url, name="test", access=access)
    try:
        leading = {}
        for stream in all_streams():
            info = await bus.api(f"STREAM.INFO.{stream.name}")
            leading[stream.name] = (info["config"]["num_replicas"], info["cluster"]["leader"])
        return leading
    finally:
        await bus.close()


def test_two_of_each_service_run_on_three_servers(deployment: Deployment) -> None:
    for service in ("workload-controller", "scheduler", "retry-timer", "provisioning-check"):
        assert len(deployment.all_of(service)) == 2, service
    for service in ("nats", "nats-2", "nats-3", "runner", "runner-2"):
        assert len(deployment.all_of(service)) == 1, service
    leading = asyncio.run(leaders(deployment))
    assert {replicas for replicas, _ in leading.values()} == {3}
    assert {leader for _, leader in leading.values()} <= {"nats", "nats-2", "nats-3"}
    deployment.admit(*SUBMIT, "first", "--", "true")


def test_jobs_finish_without_the_server_that_leads_the_log(deployment: Deployment) -> None:
    _, leader = asyncio.run(leaders(deployment))["ADMITTANCE"]
    docker("kill", deployment.container(leader))

    def stored() -> str:
        # A command waits for a server for a few seconds only, and a new leader may take longer.
        deployment.run("submit", "-q", "research", "--name", "second", "--", "true")
        return deployment.run("get", "workload", "second").stdout

    containers.eventually(stored, "second")
    deployment.admit("wait", "workload", "second", "--for", "Finished", "--timeout", "100")
    docker("start", deployment.container(leader))
    deployment.await_health()


def test_jobs_finish_without_half_of_the_services(deployment: Deployment) -> None:
    for service in ("workload-controller", "scheduler", "retry-timer"):
        docker("kill", deployment.all_of(service)[0])
    deployment.admit(*SUBMIT, "third", "--", "true")


JOIN = """
import socket
with socket.create_connection(("nats", 6222), 30) as route:
    route.recv(65536)
    route.sendall(b'CONNECT {"verbose": false, "name": "stranger"}\\r\\nPING\\r\\n')
    answer = b""
    while part := route.recv(65536):
        answer += part
print(answer.decode())
"""


def test_a_server_without_the_password_cannot_join(deployment: Deployment, base: str) -> None:
    network = f"{deployment.project}_default"
    answer = docker("run", "--rm", "--network", network, base, "python3", "-c", JOIN)
    assert "Authorization Violation" in answer
