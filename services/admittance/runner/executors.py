"""What an admission runs as: processes of this machine, or containers of its engine.

Either way a shim keeps it; an executor says what the shim starts, and ends what a dead shim left
behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import psutil
import structlog

from admittance.events.facts import Admitted
from admittance.runner.plan import Plan, plan_docker, plan_local, sweep_docker
from admittance.runtime.errors import SetupError

INHERITED: Final = ("PATH", "HOME", "TMPDIR")
SWEEPS_MAX: Final = 20

log = structlog.get_logger(service="runner")


class Executor(Protocol):
    """``mark`` is the run's mark: in the environment of its processes, on its containers."""

    async def check(self) -> None:
        """Raises SetupError when nothing can run here."""

    def plan(self, admitted: Admitted, mark: str) -> Plan:
        """What the shim is to start. Raises CannotRun."""

    async def sweep(self, mark: str, processes: Mapping[int, int]) -> None:
        """Ends what is left of a run whose shim is dead. ``processes``: pid to start time."""


class LocalExecutor:
    """Pods are process groups."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._given = {name: environ[name] for name in INHERITED if name in environ}

    async def check(self) -> None:
        return None

    def plan(self, admitted: Admitted, mark: str) -> Plan:  # noqa: ARG002
        return plan_local(admitted, given=self._given)

    async def sweep(self, mark: str, processes: Mapping[int, int]) -> None:
        await asyncio.to_thread(end_processes, mark, processes)


class DockerExecutor:
    """Pods are containers of the engine that the docker client reaches."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._given = {
            name: value
            for name, value in environ.items()
            if name in INHERITED or name.startswith("DOCKER_")
        }
        self._docker = ""

    async def check(self) -> None:
        found = shutil.which("docker")
        if found is None:
            raise SetupError(
                "--executor docker needs the docker client: install it, or run jobs as local "
                "processes with --executor local"
            )
        self._docker = found
        process = await asyncio.create_subprocess_exec(
            found,
            "version",
            "--format",
            "{{.Server.Version}}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
        if process.returncode:
            reason = errors.decode(errors="replace").strip().splitlines() or ["no answer"]
            raise SetupError(
                f"--executor docker finds no container engine ({reason[-1]}): start one, or run "
                "jobs as local processes with --executor local"
            )

    def plan(self, admitted: Admitted, mark: str) -> Plan:
        return plan_docker(admitted, given=self._given, docker=self._docker, mark=mark)

    async def sweep(self, mark: str, processes: Mapping[int, int]) -> None:
        await asyncio.to_thread(end_processes, mark, processes)
        process = await asyncio.create_subprocess_exec(*sweep_docker(self._docker, mark))
        if await process.wait():
            log.error("containers_left", run=mark)


EXECUTORS: Final[Mapping[str, type[LocalExecutor] | type[DockerExecutor]]] = {
    "local": LocalExecutor,
    "docker": DockerExecutor,
}


def executor_of(name: str) -> Executor:
    """Raises SetupError for a name that is none."""
    kind = EXECUTORS.get(name)
    if kind is None:
        raise SetupError(f"--executor {name}: there is only {', '.join(EXECUTORS)}")
    return kind()


def end_processes(mark: str, processes: Mapping[int, int]) -> None:
    """Kills what is left of a run: its process groups, and whatever carries its mark.

    A pid alone proves nothing, it may be somebody else's by now: the start time has to fit.
    """
    for pid, ticks in processes.items():
        if ticks and _start_ticks(pid) == ticks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
    # Once more after each find: what is killed may have forked a moment before.
    for _ in range(SWEEPS_MAX):
        if not _kill_marked(f"ADMITTANCE_RUN={mark}".encode()):
            return


def _kill_marked(needle: bytes) -> bool:
    found = False
    for each in psutil.process_iter():
        try:
            environ = Path(f"/proc/{each.pid}/environ").read_bytes()
        except OSError:
            continue
        if needle in environ.split(b"\0"):
            found = True
            with contextlib.suppress(psutil.Error):
                each.kill()
    return found


def _start_ticks(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return int(stat.rsplit(b")", 1)[1].split()[19])
    except (OSError, IndexError, ValueError):
        return 0
