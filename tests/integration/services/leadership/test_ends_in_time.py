"""Every service ends within the time that a container engine gives, in whatever state it is asked
to. All services run in this process, by the function that their own processes run."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from admittance.job_rules.options import RuleTexts, rules_of
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process import supervise
from admittance.runtime.process.settings import Settings
from admittance.services import SERVICES
from integration.provisioning.backends.fake_kubernetes import Kubernetes
from support.processes.service_process import OWN_USER
from support.requests import apply, eventually, health, queues
from support.servers import TestServer, until

pytestmark = [
    pytest.mark.bus,
    # The engine's client leaves a socket open where there is no engine.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SECONDS = 9.0
"""An engine kills what has not ended after 10 s. Ours give up waiting after 3.5 s."""
WITHOUT_DOMAIN = {"runner", "provider-kubernetes", "telemetry", "forecast"}


class ServiceTestbed:
    """Instances of all services. ``stop``: asks all of them to end."""

    def __init__(self, folder: Path, url: str) -> None:
        self.stop = asyncio.Event()
        self._folder = folder
        self._url = url
        self._before = asyncio.all_tasks()
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, number: int = 0) -> None:
        for name, service in SERVICES.items():
            settings = Settings.from_env(
                name,
                url=self._url,
                instance=f"{name}-{number}",
                data_dir=self._folder / f"{name}-{number}",
            )
            run = service.load()
            if service.runs_jobs:
                rules = rules_of(RuleTexts(run_as=(OWN_USER,)), {}, executor="local")
                run = partial(run, rules=rules)
            working = supervise.serve(service, settings, run, self.stop)
            self.tasks[settings.instance] = asyncio.create_task(working)

    async def end(self) -> None:
        """Stops all services, and checks that they end in time, without an error and without a task
        left."""
        self.stop.set()
        _, late = await asyncio.wait(self.tasks.values(), timeout=SECONDS)
        assert [name for name, task in self.tasks.items() if task in late] == []
        for task in self.tasks.values():
            task.result()
        with suppress(TimeoutError):
            await until(lambda: not self.left())
        assert self.left() == []

    def left(self) -> list[asyncio.Task[Any]]:
        """The tasks of the product's own code that have not ended. Tasks of the NATS client end
        with their subscriptions."""
        begun = asyncio.all_tasks() - self._before - {asyncio.current_task()}
        return [task for task in begun if "/admittance/" in _file(task)]


def _file(task: asyncio.Task[Any]) -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    return "" if code is None else str(code.co_filename)


@pytest.fixture
async def testbed(
    bus: Bus, nats_server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ServiceTestbed]:
    cluster = Kubernetes()
    env = {
        "ADMIT_LEASE_SECONDS": "1",
        "ADMIT_KUBE_CONFIG": str(cluster.kubeconfig(tmp_path)),
        "ADMIT_DOCKER_IMAGE": "busybox",
        "DOCKER_HOST": f"unix://{tmp_path}/no-engine",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    yield ServiceTestbed(tmp_path, nats_server.url)
    cluster.close()
    gc.collect()


async def all_answer(bus: Bus, testbed: ServiceTestbed) -> None:
    """Waits until every instance answers, and every domain is led."""

    async def they_do() -> bool:
        said = await health(bus)
        led = {reply.service for reply in said if reply.leads}
        return {reply.instance for reply in said} >= set(testbed.tasks) and led >= (
            set(SERVICES) - WITHOUT_DOMAIN
        )

    await eventually(they_do)


@pytest.mark.parametrize(
    "instances", [pytest.param(1, id="it leads"), pytest.param(2, id="some stand by")]
)
async def test_a_service_ends_in_time_while(
    bus: Bus, testbed: ServiceTestbed, instances: int
) -> None:
    for number in range(instances):
        testbed.start(number)
    await apply(bus, *queues("cq"))
    await all_answer(bus, testbed)
    await testbed.end()


async def test_a_service_ends_in_time_while_the_server_is_gone(
    bus: Bus, nats_server: TestServer, testbed: ServiceTestbed
) -> None:
    testbed.start()
    await apply(bus, *queues("cq"))
    await all_answer(bus, testbed)
    await nats_server.kill()
    await until(lambda: not bus.nc.is_connected)
    await bus.close()
    await testbed.end()


async def test_a_service_ends_in_time_while_the_server_is_silent(
    bus: Bus, nats_server: TestServer, testbed: ServiceTestbed
) -> None:
    testbed.start()
    await apply(bus, *queues("cq"))
    await all_answer(bus, testbed)
    os.kill(nats_server.server.pid, signal.SIGSTOP)
    try:
        await testbed.end()
    finally:
        os.kill(nats_server.server.pid, signal.SIGCONT)


async def test_a_service_ends_in_time_while_it_cannot_connect(
    testbed: ServiceTestbed, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        starting = ServiceTestbed(tmp_path, f"nats://127.0.0.1:{silent.getsockname()[1]}")
        starting.start()
        await asyncio.to_thread(silent.accept)
        await starting.end()
