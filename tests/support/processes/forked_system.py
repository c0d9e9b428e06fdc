"""`admit up` and other services of `admittance.bench.system`, started as forks."""

from __future__ import annotations

import os
import re
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
        def urls() -> list[str]:
            lines = self._printed.read_text().splitlines(keepends=True)
            return [line.split()[1] for line in lines if re.fullmatch(r"ready \S+\n", line)]

        await until(lambda: bool(urls()) or not self.running, timeout)
        if not urls():
            raise SetupError(f"the system under test ended at its start: {self.last_log_line()}")
        [self.url] = urls()
        return self.url


async def start(
    arguments: Sequence[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    *,
    admit: Path | None = None,
) -> Child:
    """Starts `admit` with arguments as a fork, which imports nothing anew. ``admit``: None, since a
    fork is of this version."""
    assert admit is None
    config = {"XDG_CONFIG_HOME": str(log.parent.absolute())}
    return ForkedChild(arguments, log, {**os.environ, **config, **(env or {})})


@asynccontextmanager
async def embedded(*arguments: str) -> AsyncIterator[Child]:
    """Runs `admit up` with these arguments on a temporary data folder; ends it afterwards."""
    with patch.object(system, "start", start):
        async with system.embedded(*arguments) as child:
            yield child
