"""The provider of worker containers beside all services, with a container engine."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_runner_docker import DOCKER, docker, engine_answers, image

from admittance.events.codec import encode
from admittance.events.facts import Finished
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.clock import now
from admittance.workload.phase import Phase
from admittance.workload.phase import phase as phase_of
from support.builders import a_manifest
from support.capacity import CHECK, a_config, row
from support.cluster import Cluster, Service
from support.requests import apply, eventually, queues, submit, workload
from support.servers import TestServer, until

__all__ = ["image"]

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(not DOCKER or not engine_answers(), reason="no container engine answers"),
]

SERVICES = ("workload-controller", "scheduler", "retry-timer", "provisioning-check")
LABEL = "admittance.dev/managed=true"


class DockerTestbed:
    """All services and an engine. ``provisioning_class``: of this test alone, for other tests may
    use the engine at the same time."""

    def __init__(self, cluster: Cluster, bus: Bus, image: str) -> None:
        self.cluster = cluster
        self.bus = bus
        self.provisioning_class = f"class-{uuid.uuid4().hex[:8]}"
        self.env = {
            "ADMIT_DOCKER_IMAGE": image,
            "ADMIT_DOCKER_COMMAND": "'sleep 600'",
            "ADMIT_DOCKER_CLASSES": self.provisioning_class,
            "ADMIT_DOCKER_SETTLE_SECONDS": "0.3",
            "ADMIT_DOCKER_SWEEP_SECONDS": "0.5",
            "ADMIT_BEAT_SECONDS": "0.5",
        }

    async def provider(self, **env: str) -> Service:
        return await self.cluster.start("provider-docker", **{**self.env, **env})

    async def begin(self, name: str = "w", pods: int = 2, cpu: str = "100m", **config: Any) -> None:
        given = a_config(**config)
        given["spec"]["provisioningClassName"] = self.provisioning_class
        selector = [{"key": "host", "valueFromProvisioningClassDetail": "host"}]
        given["spec"]["podSetUpdates"] = {"nodeSelector": selector}
        quota = [{"name": "cpu", "nominalQuota": 9000}, {"name": "memory", "nominalQuota": "1Ti"}]
        flavors = [{"name": "default", "resources": quota}]
        groups = [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]
        cq = queues("cq", admissionChecks=["capacity"], resourceGroups=groups)
        await apply(self.bus, CHECK, given, *cq)
        requests = {"cpu": cpu, "memory": "64Mi"}
        await submit(self.bus, [a_manifest(name, queue="lq-cq", requests=requests, count=pods)])

    def workers(self, shown: str = "{{.ID}}") -> list[str]:
        mine = f"label=admittance.dev/provisioning-class={self.provisioning_class}"
        return docker("ps", "--all", "--filter", mine, "--format", shown).splitlines()

    async def until_workers(self, count: int) -> list[str]:
        await until(lambda: len(self.workers()) == count)
        return self.workers()

    async def until_phase(self, phase: Phase, name: str = "w") -> None:
        async def there() -> bool:
            stored = await workload(self.bus, name)
            return stored is not None and phase_of(stored, now()) is phase

        # Engines take their time.
        await eventually(there)

    async def finish(self, name: str = "w") -> None:
        fact = Finished(namespace="ns", name=name)
        await self.bus.publish(Outgoing(subject_of(fact), encode(fact)))


@pytest.fixture
async def testbed(
    bus: Bus, nats_server: TestServer, tmp_path: Path, image: str
) -> AsyncIterator[DockerTestbed]:
    folder = tmp_path / "services"
    folder.mkdir()
    cluster = Cluster(nats_server, folder)
    for service in SERVICES:
        await cluster.start(service)
    testbed = DockerTestbed(cluster, bus, image)
    yield testbed
    await cluster.stop()
    for container in testbed.workers():
        docker("rm", "--force", container)


async def test_workers_exist_with_their_limits_only_while_the_job_runs(
    testbed: DockerTestbed,
) -> None:
    await testbed.provider()
    await testbed.begin()

    await testbed.until_phase(Phase.ADMITTED)
    limits = "{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}} {{.State.Status}}"
    assert docker("inspect", "--format", limits, *testbed.workers()).splitlines() == (
        [f"100000000 {64 << 20} running"] * 2
    )
    (update,) = (await row(testbed.bus)).pod_set_updates
    assert update["nodeSelector"] == {"host": docker("info", "--format", "{{.Name}}")}
    await testbed.finish()
    await testbed.until_workers(0)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(("rm", "--force"), id="removed by hand"),
        pytest.param(("kill",), id="killed"),
    ],
)
async def test_a_job_stops_when_one_of_its_workers_stops(
    testbed: DockerTestbed, end: tuple[str, ...]
) -> None:
    await testbed.provider()
    await testbed.begin()
    await testbed.until_phase(Phase.ADMITTED)

    docker(*end, testbed.workers()[0])

    await testbed.until_phase(Phase.REJECTED)
    await testbed.until_workers(0)


async def test_workers_lost_while_the_provider_was_down_are_reported_later(
    testbed: DockerTestbed,
) -> None:
    provider = await testbed.provider()
    await testbed.begin()
    await testbed.until_phase(Phase.ADMITTED)
    await provider.kill()

    docker("rm", "--force", *testbed.workers())
    await testbed.provider()

    await testbed.until_phase(Phase.REJECTED)


async def test_a_kill_while_workers_start_starts_none_twice_and_leaves_none(
    testbed: DockerTestbed,
) -> None:
    provider = await testbed.provider(ADMIT_DOCKER_SETTLE_SECONDS="60")
    await testbed.begin()
    before = set(await testbed.until_workers(2))
    await provider.kill()

    await testbed.provider()
    await testbed.until_phase(Phase.ADMITTED)

    assert len(testbed.workers()) == 2
    assert before & set(testbed.workers())
    for process in testbed.cluster.processes:
        if process.service == "provider-docker" and process is not provider:
            await process.kill()
    await testbed.finish()
    await testbed.provider()
    await testbed.until_workers(0)


async def test_a_job_waits_for_room_and_one_that_no_machine_holds_is_rejected(
    testbed: DockerTestbed,
) -> None:
    half = f"{int(docker('info', '--format', '{{.NCPU}}')) * 600}m"
    await testbed.provider()
    await testbed.begin("a", pods=1, cpu=half, limit=9)
    await testbed.until_phase(Phase.ADMITTED, "a")
    await testbed.begin("b", pods=1, cpu=half, limit=9)

    async def waits() -> bool:
        stored = await workload(testbed.bus, "b")
        rows = stored.status.admission_checks if stored is not None else ()
        return any("are needed" in row.message for row in rows)

    await eventually(waits)
    await testbed.begin("c", pods=1, cpu="4000", limit=9)
    await testbed.until_phase(Phase.REJECTED, "c")
    await testbed.finish("a")

    await testbed.until_phase(Phase.ADMITTED, "b")


async def test_workers_that_end_at_once_fail_with_their_last_output(testbed: DockerTestbed) -> None:
    await testbed.provider(ADMIT_DOCKER_COMMAND="'echo no licence >&2; exit 3'")
    await testbed.begin(limit=0)

    await testbed.until_phase(Phase.REJECTED)

    await testbed.until_workers(0)
    assert any("no licence" in process.log for process in testbed.cluster.processes)


async def test_orphaned_workers_are_removed_and_foreign_containers_stay(
    testbed: DockerTestbed, image: str
) -> None:
    await testbed.provider()
    await testbed.begin()
    await testbed.until_phase(Phase.ADMITTED)
    installation = docker(
        *("inspect", "--format", '{{index .Config.Labels "admittance.dev/installation"}}'),
        testbed.workers()[0],
    )
    about = (
        *("run", "--detach", "--label", LABEL, "--label", "admittance.dev/request=u/c/9/9"),
        *("--label", f"admittance.dev/provisioning-class={testbed.provisioning_class}"),
    )
    ours = f"admittance.dev/installation={installation}"
    orphan = docker(*about, "--label", ours, image, "sleep 600")
    strange = docker(*about, "--label", "admittance.dev/installation=x", image, "sleep 600")

    await until(lambda: orphan[:12] not in testbed.workers())

    assert strange[:12] in testbed.workers()
    assert len(testbed.workers()) == 3


@pytest.fixture
def engine_socket() -> Iterator[str]:
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        pytest.skip("the engine is not reached by a socket of this machine")
    yield host.removeprefix("unix://")


class Wire:
    """A socket that is the engine's as long as it is not cut."""

    def __init__(self, engine: str, path: Path) -> None:
        self._engine = engine
        self.path = path
        self._server: asyncio.AbstractServer | None = None
        self._ends: set[asyncio.StreamWriter] = set()

    async def mend(self) -> None:
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for end in list(self._ends):
            end.close()
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_unix_connection(self._engine)
        self._ends |= {writer, ours}
        await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))
        self._ends -= {writer, ours}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except (OSError, RuntimeError):
        pass
    finally:
        writer.close()


async def test_an_unreachable_engine_revokes_nothing_and_makes_the_check_inactive(
    testbed: DockerTestbed, tmp_path: Path, engine_socket: str
) -> None:
    wire = Wire(engine_socket, tmp_path / "docker.sock")
    await wire.mend()
    provider = await testbed.provider(DOCKER_HOST=f"unix://{wire.path}")
    await testbed.begin("a")
    await testbed.until_phase(Phase.ADMITTED, "a")

    await wire.cut()
    await until(lambda: '"inactive"' in provider.log)
    check = testbed.cluster.processes[0]
    await until(lambda: "ProviderDown" in check.log)
    await testbed.begin("b")
    await wire.mend()

    await testbed.until_phase(Phase.ADMITTED, "b")
    await testbed.until_phase(Phase.ADMITTED, "a")
    await wire.cut()
