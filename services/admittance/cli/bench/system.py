"""The system under test: one that we start as a child, or one that runs already."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from admittance.runtime.errors import SetupError

READY_SECONDS: Final = 120.0
STOP_SECONDS: Final = 30.0


class Child:
    """`admit` with some arguments as a child process. Standard error goes to ``log``."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log
        self.url = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.returncode is None

    async def ready(self, timeout: float = READY_SECONDS) -> str:
        """Waits for the line ``ready nats://…`` and answers the URL. Raises SetupError."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(timeout):
                async for line in self.process.stdout:
                    words = line.decode(errors="replace").split()
                    if words[:1] == ["ready"] and len(words) > 1:
                        self.url = words[1]
                        return self.url
        except TimeoutError:
            raise SetupError(f"the system was not ready in time: {self.last_words()}") from None
        raise SetupError(f"the system ended at its start: {self.last_words()}")

    async def stop(self) -> int:
        """Ends it in order, with force when it does not; its exit status."""
        if self.running:
            self.process.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self.process.wait()
            except TimeoutError:
                self.kill()
        return await self.process.wait()

    def kill(self) -> None:
        """``kill -9``."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)

    def last_words(self) -> str:
        """The last line that it logged."""
        with suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            return next((line for line in reversed(lines) if line.strip()), "no word")
        return "no word"


async def start(arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Child:
    """Starts `admit` with arguments; it has not come up yet."""
    command = Path(sys.executable).parent / "admit"
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            str(command),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=output,
            env={**os.environ, **(env or {})},
        )
    return Child(process, log)


@asynccontextmanager
async def embedded(*arguments: str) -> AsyncIterator[Child]:
    """`admit up` with further arguments on a temporary data folder, ready; ended afterwards."""
    with tempfile.TemporaryDirectory(prefix="admit-bench-") as folder:
        data = Path(folder) / "data"
        child = await start(
            ["up", "--port", "0", "--data-dir", str(data), *arguments], Path(folder) / "log"
        )
        try:
            await child.ready()
            yield child
        finally:
            await child.stop()
