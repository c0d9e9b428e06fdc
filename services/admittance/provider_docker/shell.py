"""This provider on the bus: one instance is active, the others stand by, so that whoever looks for
room on the engine is alone.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from admittance.events.requests import HealthReply
from admittance.lease.domains import PROVIDER_DOCKER
from admittance.provider_docker.engine import Engine
from admittance.provider_docker.keeper import Keeper
from admittance.provider_docker.settings import DockerSettings
from admittance.providers.installation import installation
from admittance.runtime import micro
from admittance.runtime.alone import work_alone
from admittance.runtime.bus import Bus
from admittance.runtime.leading import Leading
from admittance.runtime.settings import Settings

SERVICE: Final = "provider-docker"


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until it is our turn, then starts workers; until stop is set. Raises SetupError."""
    ours = DockerSettings.from_env(os.environ)
    Engine.check()
    drawn = await installation(bus, "docker")
    leading = Leading(bus, SERVICE, settings.instance, ttl_seconds=settings.lease_seconds)
    keepers: list[Keeper] = []

    async def health(_: bytes, __: str) -> HealthReply:
        leads = tuple(leading.tenure.leads())
        keeper = keepers[-1] if leads and keepers else None
        return HealthReply(
            service=SERVICE,
            instance=settings.instance,
            ready=not leads or (keeper is not None and keeper.ready),
            leads=leads,
        )

    def begin(_: int) -> Keeper:
        keepers[:] = [Keeper(bus, settings, ours, Engine(ours), drawn)]
        return keepers[-1]

    service = await micro.serve(
        bus, SERVICE, settings.instance, {}, everyone={"admit.api.health": health}
    )
    try:
        await work_alone(leading, PROVIDER_DOCKER, begin, stop=stop)
    finally:
        await service.stop()
