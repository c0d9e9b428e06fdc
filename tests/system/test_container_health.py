"""The health check of a container asks its own instance, and nobody else's."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from admittance.bench.system import embedded
from admittance.cli.health import ill
from admittance.events.names import token
from admittance.events.requests import HealthReply
from admittance.runtime import health
from admittance.runtime.bus import Bus
from admittance.runtime.errors import NoServer

pytestmark = pytest.mark.bus


async def test_a_ready_service_of_this_host_is_well_and_a_missing_one_is_not() -> None:
    async with embedded("--no-runner") as system:
        here = socket.gethostname()
        assert await ill("scheduler", system.url, host=here) == ""
        assert await ill("runner", system.url, host=here) == "runner does not answer"
        elsewhere = await ill("scheduler", system.url, host="elsewhere")
        assert elsewhere == "scheduler does not answer"


async def test_what_keeps_a_service_from_its_work_is_told() -> None:
    def told() -> HealthReply:
        return HealthReply(
            service="digger", instance=instance, ready=True, details=health.told("no spade")
        )

    here = socket.gethostname()
    instance = f"{token(here)}-1"
    async with embedded("--no-runner") as system:
        bus = await Bus.connect(system.url, name="digger")
        async with health.answered(bus, "digger", instance, told):
            assert await ill("digger", system.url, host=here) == "digger is not ready: no spade"
        await bus.close()


async def test_without_a_server_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="nothing listens"):
        await ill("scheduler", "nats://127.0.0.1:1", host="here")
