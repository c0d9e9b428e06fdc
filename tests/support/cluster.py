"""A nats-server and the services of one test, on real time or in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from simulation.nats.simulated_server import SimulatedServer
from support.servers import TestServer
from support.service_process import ServiceProcess
from support.simulated_service import SimulatedService

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
