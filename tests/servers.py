"""Real nats-servers for tests: a free port, an empty store, killed and started at will."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from admittance.runtime.server import EmbeddedServer

LIMIT = 20.0
"""Seconds that a test waits for an event before it gives up. No promise about time."""

T = TypeVar("T")


class TestServer:
    """A server that a test may kill and start again on the same store and port."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = EmbeddedServer(folder)
        self.url = ""

    async def start(self) -> str:
        self.url = await self.server.start()
        return self.url

    async def kill(self) -> None:
        """kill -9, at once."""
        pid = self.server.pid
        os.kill(pid, signal.SIGKILL)
        await self.server.stop()

    async def restart_after_kill(self) -> None:
        """kill -9 and start again, on the same port."""
        port = self.server.running.port if self.server.running else 0
        await self.kill()
        self.server = EmbeddedServer(self.folder, port=port)
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()


async def within(awaitable: Awaitable[T], limit: float = LIMIT) -> T:
    """What awaitable answers; the test fails when it takes longer than limit seconds."""
    return await asyncio.wait_for(awaitable, limit)


async def until(claim: Callable[[], bool], limit: float = LIMIT) -> None:
    """Waits until claim holds, with a limit."""

    async def poll() -> None:
        while not claim():  # noqa: ASYNC110  (claims are about things without events)
            await asyncio.sleep(0.01)

    await within(poll(), limit)
