"""The process under trial, and a server of our own to try it on."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from admittance.conformance.cases import Kit
from admittance.conformance.report import FAILED, NOT_APPLICABLE, PASSED, Outcome
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError
from admittance.runtime.nats_server.server import EmbeddedServer

START_SECONDS: Final = 20.0
"""How long a program that we start may take until it listens, beside the first answer."""
END_SECONDS: Final = 12.0


class Program:
    """Started by a command, with ADMIT_NATS_URL and NATS_URL set."""

    def __init__(self, command: Sequence[str], url: str) -> None:
        self._command = command
        self._url = url
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Raises SetupError when there is no such command."""
        environment = {**os.environ, "ADMIT_NATS_URL": self._url, "NATS_URL": self._url}
        try:
            # Its output is not our answer.
            self._process = await asyncio.create_subprocess_exec(
                *self._command, env=environment, stdout=2
            )
        except OSError as error:
            raise SetupError(f"cannot start {self._command[0]}: {error.strerror}") from None

    def runs(self) -> bool:
        """It was started, and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """At once, as if the machine had gone."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def end(self) -> tuple[str, str]:
        """Asks it to end; how that went, as an outcome and a sentence."""
        process = self._process
        assert process is not None, "it was started"
        if process.returncode is not None:
            return FAILED, f"it ended by itself, with status {process.returncode}"
        process.terminate()
        try:
            async with asyncio.timeout(END_SECONDS):
                status = await process.wait()
        except TimeoutError:
            await self.kill()
            return FAILED, f"it did not end within {END_SECONDS:g} s of SIGTERM"
        if status not in (0, -15, 143):
            return FAILED, f"after SIGTERM it ended with status {status}"
        return PASSED, ""


async def how_it_ended(kit: Kit, program: Program | None) -> Outcome:
    """Asks a program that we started to end; the outcome of that case."""
    if program is None:
        why = "it was not started here: give its command"
        return kit.outcome("ends", NOT_APPLICABLE, why)
    word, why = await program.end()
    return kit.outcome("ends", word, *([why] if why else []))


class OwnServer:
    """A server with the log on it, which can be started anew on the same port."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._server = EmbeddedServer(folder, port=port)
        self.url = ""

    async def start(self) -> None:
        """Raises SetupError."""
        self.url = await self._server.start()

    async def restart(self, bus: Bus) -> None:
        """Ends it, and starts it again on what it kept; returns when bus is connected."""
        port = int(self.url.rpartition(":")[2])
        await self._server.stop()
        self._server = EmbeddedServer(self._folder, port=port)
        await self._server.start()
        while not bus.nc.is_connected:  # noqa: ASYNC110  (the client tells of it by no event)
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """For good."""
        await self._server.stop()


@asynccontextmanager
async def embedded(port: int, kit: str) -> AsyncIterator[OwnServer]:
    """A server of its own with the log on it, gone in the end. Raises SetupError."""
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
