"""This provider on the bus: one instance is active, the others stand by, so that whoever looks for
room on the engine is alone.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from admittance.lease.domains import PROVIDER_DOCKER
from admittance.provider_docker.engine import Engine
from admittance.provider_docker.keeper import Keeper
from admittance.provider_docker.settings import DockerSettings
from admittance.providers.builtin import installation
from admittance.runtime.bus.bus import Bus
from admittance.runtime.leader.leader_elected_service import Alone
from admittance.runtime.process.settings import Settings

SERVICE: Final = "provider-docker"


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until it is our turn, then starts workers; until stop is set. Raises SetupError."""
    Engine.check()
    ours = DockerSettings.from_env(os.environ)
    drawn = await installation(bus, "docker")

    def begin(_: int) -> Keeper:
        return Keeper(bus, settings, ours, Engine(ours), drawn)

    alone = Alone(
        bus, settings, SERVICE, PROVIDER_DOCKER, begin, trouble=lambda keeper: keeper.trouble
    )
    await alone.run(stop)
