"""Real nats-servers for tests: a free port, an empty store, killed and started at will."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil

from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.nats_server.server_process import binary, greets

LIMIT = 60.0
"""Seconds that a test waits for an event before it gives up, on the slowest machine. A test that
passes never waits so long."""

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


@contextmanager
def paused(server: TestServer) -> Iterator[None]:
    """The server neither reads nor answers inside."""
    os.kill(server.server.pid, signal.SIGSTOP)
    while psutil.Process(server.server.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.001)
    try:
        yield
    finally:
        os.kill(server.server.pid, signal.SIGCONT)


async def within(awaitable: Awaitable[T], limit: float = LIMIT) -> T:
    """The result of the awaitable; the test fails when it takes longer than the limit."""
    return await asyncio.wait_for(awaitable, limit)


async def until(claim: Callable[[], bool], limit: float = LIMIT) -> None:
    """Waits until claim holds, with a limit."""

    async def poll() -> None:
        while not claim():  # noqa: ASYNC110  (claims are about things without events)
            await asyncio.sleep(0.01)

    await within(poll(), limit)


def answer_with(
    ask: Callable[[], T], claim: Callable[[T], object], limit: float = LIMIT, pause: float = 0.1
) -> T:
    """The first answer for which claim holds. Repeats the question until the answer is accepted,
    since commands and files have no event to wait for; fails with the last answer."""
    deadline = time.monotonic() + limit
    while not claim(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(pause)
    return answer


async def accepts(port: int) -> bool:
    """Whether a server that speaks only after the TLS handshake listens."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


class ConfiguredServer:
    """A nats-server on loopback with a configuration of the test's own, such as with accounts."""

    def __init__(self, folder: Path, config: str) -> None:
        """``config`` without an address; ``"STORE"`` in it becomes a folder for JetStream."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def url(self, userinfo: str = "", scheme: str = "nats") -> str:
        at = f"{userinfo}@" if userinfo else ""
        return f"{scheme}://{at}127.0.0.1:{self.port}"

    async def start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        config = self._folder / "nats.conf"
        text = self._config.replace('"STORE"', f'"{self._folder / "store"}"')
        config.write_text(f'listen: "127.0.0.1:{self.port}"\n{text}')
        with (self._folder / "nats.log").open("ab") as log:
            command = [binary(), "-c", str(config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: ASYNC220

        async def listening() -> None:
            answers = accepts if "handshake_first: true" in text else greets
            while not await answers(self.port):
                if self._process is None or self._process.poll() is not None:
                    raise AssertionError((self._folder / "nats.log").read_text())
                await asyncio.sleep(0.02)

        await within(listening())

    def reload(self, old: str, new: str) -> None:
        """Changes the configuration of the running server."""
        config = self._folder / "nats.conf"
        config.write_text(config.read_text().replace(old, new))
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(LIMIT)
