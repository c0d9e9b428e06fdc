"""Services as processes on one server or a cluster: started, killed, paused and watched."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from admittance import services
from admittance.bench.system import Child, start
from admittance.runtime.bus import streams
from admittance.runtime.process.service import WithUp
from benchmarks.harness.server_cluster import ServerCluster

LAST_WORDS_MAX: Final = 300
SERVICES: Final = tuple(
    name for name, service in services.SERVICES.items() if service.with_up is WithUp.ALWAYS
)
"""The services that every installation has."""
WITHOUT_RUNNER: Final = tuple(name for name in SERVICES if not services.SERVICES[name].runs_jobs)
UP: Final = "up"
"""In place of a service: all services but the runner in one process, as `admit up` has them."""
STREAMS: Final = tuple(stream.name for stream in streams.all_streams())


class Fleet:
    """Servers, and instances of services. Instances keep their names over a restart, as containers
    of a compose file may.

    ``instances``: names, each a service and a number, such as ``scheduler-0``. ``settings``:
    variables of every instance."""

    def __init__(
        self,
        folder: Path,
        servers: ServerCluster,
        instances: Sequence[str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._settings = settings or {}
        self._children: dict[str, Child] = {}
        self._ours: set[int] = set()
        """Processes that were ended by a fault, not by themselves."""
        self._held: set[str] = set()
        """Instances that a fault has killed and will start again."""
        self.servers = servers
        self.instances = list(instances)
        self.restarts = 0
        """How often `restart` killed an instance."""

    async def begin(self) -> None:
        """Starts the servers, makes all streams, and starts the instances."""
        await self.servers.start()
        await self.servers.make_streams()
        for name in self.instances:
            await self.start(name)

    async def start(self, name: str) -> None:
        """Starts an instance; it does not serve yet."""
        service, _, number = name.rpartition("-")
        settings = {
            "ADMIT_INSTANCE": name,
            "ADMIT_DATA_DIR": str(self.folder_of(name)),
            "ADMIT_LOG_LEVEL": "warning",
            "ADMIT_REPLICAS": str(self.servers.size),
            "ADMIT_RUN_AS": f"*={os.geteuid()}",
            **self._settings,
            **self.servers.variables_of(service, int(number)),
        }
        words = ["up", "--no-runner"] if service == UP else ["serve", service]
        arguments = ["--nats", self.servers.url, *words]
        self._children[name] = await start(arguments, self._folder / f"{name}.log", settings)
        self._held.discard(name)

    async def ready(self, name: str = f"{UP}-0") -> None:
        """Waits until `UP` serves. Raises SetupError."""
        await self._children[name].ready()

    def folder_of(self, name: str) -> Path:
        """The data folder of an instance."""
        return self._folder / name

    def runs(self, name: str) -> bool:
        """Whether the instance runs, as far as no fault has killed it."""
        return name not in self._held

    def pid(self, name: str) -> int:
        """The process of an instance."""
        return self._children[name].pid

    async def kill(self, name: str) -> None:
        """``kill -9`` of an instance."""
        self._held.add(name)
        child = self._children[name]
        self._ours.add(child.pid)
        child.kill()
        await child.process.wait()

    async def restart(self, name: str, *, after: float = 0.0) -> None:
        """``kill -9`` of an instance and its start, ``after`` seconds later, unless a fault has
        killed it already."""
        if self.runs(name):
            await self.kill(name)
            await asyncio.sleep(after)
            await self.start(name)
            self.restarts += 1

    async def restart_in_order(self, name: str, *, after: float) -> None:
        """Ends an instance with SIGTERM, and starts it ``after`` seconds later."""
        self._ours.add(self.pid(name))
        await self._children[name].stop()
        await asyncio.sleep(after)
        await self.start(name)

    def pause(self, name: str) -> None:
        """SIGSTOP of an instance."""
        with suppress(ProcessLookupError):
            os.kill(self.pid(name), signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT of an instance."""
        with suppress(ProcessLookupError):
            os.kill(self.pid(name), signal.SIGCONT)

    async def pause_for(self, name: str, seconds: float) -> None:
        """Pauses an instance for a while."""
        self.pause(name)
        await asyncio.sleep(seconds)
        self.resume(name)

    async def kill_server(self) -> None:
        """``kill -9`` of the only server, and its start."""
        await self.servers.kill(0)
        await self.servers.start(0)

    async def stop(self) -> None:
        """Ends the services, the last one first, then the servers."""
        for name in reversed(list(self._children)):
            self.resume(name)
            await self._children[name].stop()
        await self.servers.stop()

    # What became of the processes. --------------------------------------------------------

    async def start_ended(self) -> list[str]:
        """Starts the instances again that ended by themselves; returns a sentence for each."""
        ended = self._ended()
        sentences = [self._sentence(name) for name in ended]
        for name in ended:
            await self.start(name)
        return sentences

    def ended(self) -> list[str]:
        """A sentence for each instance that ended by itself."""
        return [self._sentence(name) for name in self._ended()]

    def _ended(self) -> list[str]:
        return [
            name
            for name, child in self._children.items()
            if not child.running and child.pid not in self._ours
        ]

    def _sentence(self, name: str) -> str:
        child = self._children[name]
        words = child.last_log_line()[:LAST_WORDS_MAX]
        return f"{name} ended by itself with {child.process.returncode}: {words}"

    def crashed(self) -> list[str]:
        """A sentence for each instance that logged a bug and went on afterwards."""
        crashes: dict[str, list[str]] = {}
        for name, line in self.log_lines():
            if '"service_crashed"' in line:
                crashes.setdefault(name, []).append(line)
        return [
            f"{name} crashed {len(lines)} times: {lines[0][-LAST_WORDS_MAX:]}"
            for name, lines in crashes.items()
        ]

    def begun_anew(self) -> Mapping[str, int]:
        """How often services logged that they begin anew, by reason."""
        reasons: Counter[str] = Counter()
        for name, line in self.log_lines():
            if '"service_interrupted"' in line:
                with suppress(ValueError):
                    entry: dict[str, Any] = json.loads(line)
                    reasons[f"{name}: {entry['reason']}"] += 1
        return reasons

    def log_lines(self) -> Iterator[tuple[str, str]]:
        """The name of each instance, with each line of its log."""
        for name, child in self._children.items():
            for line in child.log.read_text(errors="replace").splitlines():
                yield name, line


def instances_of(names: Sequence[str], each: int = 1) -> list[str]:
    """The names of ``each`` instances of every service."""
    return [f"{name}-{number}" for name in names for number in range(each)]
