"""`admit serve` runs the providers that need a further package."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from admittance.runtime.bus.bus import Bus
from integration.provisioning.backends.fake_kubernetes import Kubernetes
from support.requests import eventually, health
from support.servers import TestServer, within

pytestmark = pytest.mark.bus
ADMIT = Path(sys.executable).parent / "admit"


@asynccontextmanager
async def serving(service: str, server: TestServer, **env: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(str(ADMIT), "serve", service, "--nats", server.url),
        env={**os.environ, "ADMIT_LEASE_SECONDS": "1", **env},
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("service", "package"),
    [
        ("provider-aws", "boto3"),
        ("provider-kubernetes", "lightkube"),
        ("provider-docker", "docker"),
    ],
)
async def test_a_provider_without_its_package_names_it(
    nats_server: TestServer, tmp_path: Path, service: str, package: str
) -> None:
    (tmp_path / f"{package}.py").write_text(f'raise ImportError("no {package}")')
    async with serving(service, nats_server, PYTHONPATH=str(tmp_path)) as process:
        _, said = await within(process.communicate())

    assert process.returncode == 1
    (line,) = said.decode().splitlines()
    assert f"{service} needs the package {package}" in line
    assert f"pip install 'admittance[{service.removeprefix('provider-')}]'" in line


async def test_a_provider_with_its_package_serves_and_stops(
    bus: Bus, nats_server: TestServer, tmp_path: Path
) -> None:
    kubernetes = Kubernetes()
    config = str(kubernetes.kubeconfig(tmp_path))

    async def ready() -> bool:
        return any(
            reply.service == "provider-kubernetes" and reply.ready for reply in await health(bus)
        )

    async with serving("provider-kubernetes", nats_server, ADMIT_KUBE_CONFIG=config) as process:
        await eventually(ready)
        process.terminate()
        await within(process.communicate())
    kubernetes.close()

    assert process.returncode == 0
