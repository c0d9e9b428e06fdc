"""The sample checks as real processes, beside a real system, spoken to as a user does."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from admittance.bench.system import Child
from support.processes.fork_server import run_admit
from support.servers import LIMIT, within

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "deploy" / "samples" / "checks"
ADMIT = Path(sys.executable).parent / "admit"


class Program:
    """A program that runs, and what it prints."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    async def wait_until_printed(self, words: str) -> None:
        """Waits until it has printed these words."""

        async def said() -> bool:
            return words in self.printed

        await eventually(said, lambda: f"never said {words!r}: {self.printed}")

    async def stop(self) -> int:
        """SIGTERM; its exit status."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        return await within(self.process.wait())

    async def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def program(log: Path, *command: str | Path, **env: str) -> AsyncIterator[Program]:
    """The command as a process, with these variables; ended afterwards, and in order."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
        )
    running = Program(process, log)
    try:
        yield running
    finally:
        status = await running.stop()
    assert status in (0, -9), f"it ended with {status}: {running.printed}"


async def eventually(claim: Callable[[], Awaitable[bool]], why: Callable[[], str]) -> None:
    """Waits until claim holds; fails with why it did not."""
    deadline = asyncio.get_running_loop().time() + LIMIT
    while not await claim():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(why())
        await asyncio.sleep(0.05)  # it happens in another process


class Admit:
    """The command `admit` against one system, as its admin if the system is locked."""

    def __init__(self, system: Child) -> None:
        self.url = system.url
        self._users = system.log.parent / "data" / "auth"
        self._login = {"ADMIT_NATS_URL": self.url}
        if self._users.exists():
            self._login["ADMIT_NATS_CREDS"] = str(self._users / "admin.creds")

    async def add(self, role: str, name: str, *words: str) -> dict[str, str]:
        """Adds a user to the locked system; returns the variables with which it logs in."""
        file = str(self._users.parent / f"{name}.creds")
        await self("auth", "add", role, name, *words, "--dir", self._users, "-o", file)
        return {"ADMIT_NATS_URL": self.url, "ADMIT_NATS_CREDS": file}

    async def __call__(self, *arguments: str | Path, text: str = "") -> str:
        """The answer of the program; fails with its error."""
        words = tuple(map(str, arguments))
        done = await asyncio.to_thread(run_admit, *words, env=self._login, stdin=text)
        assert done.status == 0, f"admit {' '.join(words)}: {done.err}{done.out}"
        return done.out

    async def workload(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """The workload as it is stored."""
        output = await self("-n", namespace, "get", "workload", name, "-o", "json")
        reply: dict[str, Any] = json.loads(output)
        return reply

    async def row(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """Its only row of a check."""
        rows = (await self.workload(name, namespace))["status"].get("admissionChecks", [])
        return rows[0] if rows else {}

    async def wait(self, name: str, phase: str, namespace: str = "default") -> None:
        """Waits for the phase, also for one that has passed already."""
        await self(
            *("-n", namespace, "wait", "workload", name, "--for", phase),
            *("--timeout", f"{LIMIT:g}"),
        )
