"""The simulated nats-server in place of a real one, for tests that run on a `VirtualLoop`."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from random import Random
from typing import Any, Final, TypeVar
from unittest.mock import patch

import structlog

from admittance.runtime import chance, clock
from admittance.runtime.bus import bus
from admittance.sdk.threads import Threads
from simulation.nats.api import Api
from simulation.nats.core import Server
from simulation.nats.network import Network, calm
from simulation.virtual_time.loop import VirtualLoop

RESTART_SECONDS: Final = 0.3

T = TypeVar("T")


class SimulatedServer:
    """A server in memory that a test may kill and start again; what is stored stays.

    It has the methods of `servers.TestServer`. Connections to any URL go to it while it is
    `installed`."""

    url = "nats://127.0.0.1:4222"

    def __init__(self, loop: VirtualLoop, seed: int = 1) -> None:
        self.loop = loop
        self.rng = Random(seed)
        self.server = Server(loop, self.rng)
        Api(self.server)
        self.network = Network(loop, self.server, self.rng, calm)
        self._logs: defaultdict[str, list[str]] = defaultdict(list)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Time, chance, connections and logs of the runtime are the simulated ones inside."""
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.format_exc_info,
                self._log,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(20),
        )
        with (
            clock.replaced(self.loop.wall, self.loop.time),
            chance.replaced(self.rng),
            patch.object(bus, "open_connection", self.network.opening),
            patch.object(Threads, "call", _call_in_turn),
        ):
            yield

    def _log(self, _: Any, __: str, event: MutableMapping[str, Any]) -> Any:
        process = self.loop.current
        self._logs["" if process is None else process.name].append(json.dumps(event, default=str))
        raise structlog.DropEvent

    def log_of(self, process: str) -> str:
        """The log of a process, by its name: a JSON object a line."""
        return "".join(f"{line}\n" for line in self._logs[process])

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


async def _call_in_turn(_: Threads, function: Callable[..., T], *arguments: Any) -> T:
    """Calls a plain function in the virtual loop, whose time would pass while a thread works."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)
