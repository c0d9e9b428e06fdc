"""A nats-server and the services of one test, on real time or in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeAlias

from admittance.runtime.errors import AdmittanceError
from admittance.runtime.process.settings import Settings
from admittance.runtime.process.supervise import serve
from admittance.services import SERVICES
from simulation.nats.simulated_server import SimulatedServer
from simulation.virtual_time.loop import Process
from support.processes.service_process import ServiceProcess, variables
from support.servers import TestServer, within


class SimulatedService:
    """One service in virtual time, killed, paused and resumed at will like a `ServiceProcess`."""

    def __init__(
        self, server: SimulatedServer, service: str, folder: Path, instance: str, **env: str
    ) -> None:
        self.service = service
        self.instance = instance
        self.status: int | None = None
        """The exit status; None while it runs and after a kill."""
        self._server = server
        self._variables = variables(server.url, folder, instance, **env)
        # The simulated server has no streams without subjects.
        self._variables.setdefault("ADMIT_HISTORY_DAYS", "0")
        self._process: Process | None = None
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()
        self._failure = ""

    async def start(self) -> SimulatedService:
        # Before the process begins: a process of the simulation opens no files.
        settings = Settings.from_env(self.service, env=self._variables)
        self._stop, self._ended = asyncio.Event(), asyncio.Event()
        self.status = None
        process = Process(self._server.loop, self.instance)
        process.on_end = self._on_end
        process.start(self._run(settings))
        self._process = process
        return self

    async def _run(self, settings: Settings) -> None:
        service = SERVICES[self.service]
        await serve(service, settings, service.load(), self._stop)

    def _on_end(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, AdmittanceError):
            raise error
        self._failure = "" if error is None else f"{error}\n"
        self.status = 0 if error is None else 1
        self._ended.set()

    @property
    def log(self) -> str:
        """The standard error of the service."""
        return self._server.log_of(self.instance) + self._failure

    def pause(self) -> None:
        assert self._process is not None
        self._process.pause()

    def resume(self) -> None:
        assert self._process is not None
        if self._process.paused:
            self._process.resume(self._server.rng)

    async def kill(self) -> None:
        """Ends the service at once, as SIGKILL does."""
        assert self._process is not None
        self._process.kill()
        self._process = None

    async def stop(self) -> None:
        """Ends the service as SIGTERM does, and waits for its end."""
        if self._process is None or self.status is not None:
            return
        self.resume()
        self._server.loop.post(self._process, self._stop.set)
        await within(self._ended.wait())


Service: TypeAlias = ServiceProcess | SimulatedService


class Cluster:
    """Services on one nats-server.

    On a real server each service is an operating system process. On the simulated server each
    service is a process of the simulation, which runs the same code in virtual time. A test names
    its servers with ``@pytest.mark.servers("real", "simulated")``.
    """

    def __init__(self, server: TestServer | SimulatedServer | str, folder: Path) -> None:
        """``server``: or the URL of a real server. ``folder``: for the logs of the services."""
        self.processes: list[Service] = []
        self._server = server
        self._folder = folder

    async def start(self, service: str, instance: str = "", **env: str) -> Service:
        """Starts a service. ``instance``: its name; ``env``: its ADMIT_* variables."""
        name = instance or f"{service}-{len(self.processes)}"
        process: Service
        if isinstance(self._server, SimulatedServer):
            process = SimulatedService(self._server, service, self._folder, name, **env)
        else:
            url = self._server if isinstance(self._server, str) else self._server.url
            process = ServiceProcess(service, url, self._folder, name, **env)
        self.processes.append(process)
        await process.start()
        return process

    async def stop(self) -> None:
        """Ends the services in order, the last one first."""
        for process in reversed(self.processes):
            await process.stop()
