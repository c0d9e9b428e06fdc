"""The process of the program that a conformance kit tests, and a NATS server for the test."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError
from admittance.runtime.nats.connection_options import NO_OPTIONS
from admittance.runtime.nats_server.embedded_server import EmbeddedServer

START_SECONDS: Final = 20.0
"""How many seconds a started program may take until it can receive requests."""
END_SECONDS: Final = 12.0


class ProgramProcess:
    """The process of the tested program. In the program's environment ADMIT_NATS_URL and NATS_URL
    are the address of the NATS server.
    """

    def __init__(self, command: Sequence[str], url: str, *, is_ours: bool = False) -> None:
        """``is_ours``: the NATS server at ``url`` was started for the test. In this case the tested
        program gets no login and no TLS settings in its environment, because these are for another
        server.
        """
        self._command = command
        self._url = url
        self._is_ours = is_ours
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts the tested program. Raises SetupError if the program's command cannot be run."""
        base = NO_OPTIONS.environment(os.environ) if self._is_ours else os.environ
        environment = {**base, "ADMIT_NATS_URL": self._url, "NATS_URL": self._url}
        try:
            # The program's output goes to standard error: standard output is for the report.
            self._process = await asyncio.create_subprocess_exec(
                *self._command, env=environment, stdout=2
            )
        except OSError as error:
            raise SetupError(f"cannot start {self._command[0]}: {error.strerror}") from None

    def runs(self) -> bool:
        """Whether the tested program was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """Kills the program, as if its machine had failed."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def end(self) -> str:
        """Asks the tested program to end, with SIGTERM. Says what was wrong with the way the
        program ended; empty if nothing was wrong.
        """
        process = self._process
        assert process is not None, "it was started"
        if process.returncode is not None:
            return f"it ended by itself, with status {process.returncode}"
        process.terminate()
        try:
            async with asyncio.timeout(END_SECONDS):
                status = await process.wait()
        except TimeoutError:
            await self.kill()
            return f"it did not end within {END_SECONDS:g} s after SIGTERM"
        if status not in (0, -15, 143):
            return f"after SIGTERM it ended with status {status}"
        return ""


class OwnServer:
    """A NATS server of the test's own, which the test can restart on the same port."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._server = EmbeddedServer(folder, port=port)
        self.url = ""

    async def start(self) -> None:
        """Starts the server. Raises SetupError if the server cannot start."""
        self.url = await self._server.start()

    async def restart(self, bus: Bus) -> None:
        """Restarts the NATS server with its stored data, and waits until ``bus`` is connected to it
        again.
        """
        port = int(self.url.rpartition(":")[2])
        await self._server.stop()
        self._server = EmbeddedServer(self._folder, port=port)
        await self._server.start()
        while not bus.nc.is_connected:  # noqa: ASYNC110  (there is no event)
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Stops the NATS server."""
        await self._server.stop()


@asynccontextmanager
async def embedded(port: int, kit: str) -> AsyncIterator[OwnServer]:
    """Runs a temporary NATS server with the streams of Admittance for one test. ``kit``: prefix of
    the name of the server's folder, and the name of the connection. Raises SetupError.
    """
    with tempfile.TemporaryDirectory(prefix=kit) as folder:
        server = OwnServer(Path(folder), port)
        await server.start()
        try:
            bus = await Bus.connect(server.url, name=kit)
            try:
                await streams.ensure(bus)
            finally:
                await bus.close()
            yield server
        finally:
            await server.stop()
