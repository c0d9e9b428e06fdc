"""The simulated nats-server in place of a real one, for tests that run on a `VirtualLoop`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final
from unittest.mock import patch

from admittance.runtime import chance, clock
from admittance.runtime.bus import bus
from simulation.loop import VirtualLoop
from simulation.nats.api import Api
from simulation.nats.core import Server
from simulation.network import Network, calm

RESTART_SECONDS: Final = 0.3


class SimulatedServer:
    """A server in memory that a test may kill and start again; what is stored stays.

    It has the methods of `servers.TestServer`. Connections to any URL go to it while it is
    `installed`."""

    url = "nats://127.0.0.1:4222"

    def __init__(self, loop: VirtualLoop, seed: int = 1) -> None:
        self.loop = loop
        self._rng = Random(seed)
        self.server = Server(loop, self._rng)
        Api(self.server)
        self.network = Network(loop, self.server, self._rng, calm)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Time, chance and connections of the runtime are the simulated ones inside."""
        with (
            clock.replaced(self.loop.wall, self.loop.time),
            chance.replaced(self._rng),
            patch.object(bus, "open_connection", self.network.opening),
        ):
            yield

    async def start(self) -> str:
        self.server.start()
        return self.url

    async def kill(self) -> None:
        """kill -9, at once."""
        self.server.stop()

    async def restart_after_kill(self) -> None:
        """kill -9 and start again."""
        await self.kill()
        await asyncio.sleep(RESTART_SECONDS)
        await self.start()

    async def stop(self) -> None:
        self.server.stop()
