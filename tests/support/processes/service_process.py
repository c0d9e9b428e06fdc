"""Services as operating system processes."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from admittance.services import SERVICES
from support.processes.fork_server import ForkedProcess
from support.servers import within

OWN_USER: Final = f"*={os.geteuid()}"
"""The rule that lets a runner start all jobs as the Unix user of the tests, also if that is
root."""


def variables(url: str, folder: Path, instance: str, **more: str) -> dict[str, str]:
    """The ADMIT_* variables of a service of a test."""
    return {
        "ADMIT_NATS_URL": url,
        "ADMIT_INSTANCE": instance,
        "ADMIT_DATA_DIR": str(folder / f"data-{instance}"),
        "ADMIT_LEASE_SECONDS": "1",
        "ADMIT_LOG": "json",
        "ADMIT_RUN_AS": OWN_USER,
        **more,
    }


class ServiceProcess:
    """One service as a process of its own, killed, paused and resumed at will."""

    def __init__(self, service: str, url: str, folder: Path, instance: str, **env: str) -> None:
        self.service = service
        self.instance = instance
        self._log = folder / f"{service}-{instance}.log"
        self._env = {**os.environ, **variables(url, folder, instance, **env)}
        self._process: ForkedProcess | None = None

    async def start(self) -> ServiceProcess:
        self._log.touch()
        self._process = ForkedProcess([SERVICES[self.service].package], self._env, out=self._log)
        return self

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def status(self) -> int | None:
        """The exit status; None if the process still runs or was killed."""
        return self._process.returncode if self._process is not None else None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """kill -9, at once."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        await self._process.wait()
        self._process = None

    async def stop(self) -> None:
        """Sends SIGTERM and waits for the end."""
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.resume()
            self._signal(signal.SIGTERM)
        await within(self._process.wait())
