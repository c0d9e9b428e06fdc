"""`admit up` and other services of `admittance.bench.system`, started as forks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from admittance.bench import system
from admittance.bench.system import READY_SECONDS, Child
from admittance.runtime.errors import SetupError
from support.processes.fork_server import ForkedProcess
from support.servers import until


class ForkedChild(Child):
    """`admit` with some arguments as a fork, with its standard output in a file."""

    def __init__(self, arguments: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self._printed = log.with_name(f"{log.name}.out")
        self._printed.write_bytes(b"")
        # It has the methods of a process of asyncio.
        process: Any = ForkedProcess(["admit", *arguments], env, out=self._printed, err=log)
        super().__init__(process, log)

    async def ready(self, timeout: float = READY_SECONDS) -> str:
        await until(lambda: "\n" in self._printed.read_text() or not self.running, timeout)
        words = self._printed.read_text().split()
        if words[:1] != ["ready"]:
            raise SetupError(f"the system under test ended at its start: {self.last_log_line()}")
        self.url = words[1]
        return self.url


async def start(arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Child:
    """Starts `admit` with arguments as a fork, which imports nothing anew."""
    config = {"XDG_CONFIG_HOME": str(log.parent.absolute())}
    return ForkedChild(arguments, log, {**os.environ, **config, **(env or {})})


@asynccontextmanager
async def embedded(*arguments: str) -> AsyncIterator[Child]:
    """Runs `admit up` with these arguments on a temporary data folder; ends it afterwards."""
    with patch.object(system, "start", start):
        async with system.embedded(*arguments) as child:
            yield child
