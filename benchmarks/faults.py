"""The faults of `chaos --servers 3`: what they break, for how long, and how they are repaired."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from admittance.bench.system import Child, start
from admittance.events import subjects
from admittance.runtime.bus.bus import Bus
from benchmarks.server_cluster import ServerCluster

LAST_WORDS_MAX: Final = 300


class Fleet:
    """A cluster of servers, and ``each`` instances of every service, each a process of its own.
    Instances keep their names over a restart, as containers of a compose file may."""

    def __init__(
        self, folder: Path, services: Sequence[str], servers: ServerCluster, *, each: int = 2
    ) -> None:
        self._folder = folder
        self._services = {
            f"{service}-{number}": (service, number)
            for service in services
            for number in range(each)
        }
        self.servers = servers
        self.restarts = 0
        """How often `restart` killed an instance."""
        self._children: dict[str, Child] = {}
        self._ours: set[int] = set()
        """Processes that were ended by a fault, not by themselves."""
        self._held: set[str] = set()
        """Instances that a fault has killed and will start again."""

    @property
    def instances(self) -> list[str]:
        """The names of all instances."""
        return list(self._services)

    async def start(self, name: str) -> None:
        """Starts an instance; it does not serve yet."""
        service, number = self._services[name]
        settings = {
            "ADMIT_INSTANCE": f"chaos-{name}",
            "ADMIT_DATA_DIR": str(self._folder / name),
            "ADMIT_LOG_LEVEL": "warning",
            "ADMIT_REPLICAS": str(self.servers.size),
            "ADMIT_RUN_AS": f"*={os.geteuid()}",
            **self.servers.variables_of(service, number),
        }
        arguments = ["--nats", self.servers.url, "serve", service]
        self._children[name] = await start(arguments, self.log_of(name), settings)
        self._held.discard(name)

    def runs(self, name: str) -> bool:
        """Whether the instance runs, as far as no fault has killed it."""
        return name not in self._held

    async def restart(self, name: str) -> None:
        """``kill -9`` of an instance and its start, unless a fault has killed it already."""
        if self.runs(name):
            await self.kill(name)
            await self.start(name)
            self.restarts += 1

    def log_of(self, name: str) -> Path:
        """Where the instance logs."""
        return self._folder / f"{name}.log"

    async def kill(self, name: str) -> None:
        """``kill -9`` of an instance."""
        self._held.add(name)
        child = self._children[name]
        self._ours.add(child.pid)
        child.kill()
        await child.process.wait()

    def pause(self, name: str) -> None:
        """SIGSTOP of an instance."""
        os.kill(self._children[name].pid, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT of an instance."""
        with suppress(ProcessLookupError):
            os.kill(self._children[name].pid, signal.SIGCONT)

    def ended(self) -> list[str]:
        """A sentence for each instance that ended by itself."""
        return [
            f"{name} ended by itself with {child.process.returncode}: "
            f"{child.last_log_line()[:LAST_WORDS_MAX]}"
            for name, child in self._children.items()
            if not child.running and child.pid not in self._ours
        ]

    def crashed(self) -> list[str]:
        """A sentence for each instance that logged a bug and went on afterwards."""
        found = []
        for name in self._children:
            lines = self.log_of(name).read_text(errors="replace").splitlines()
            told = [line for line in lines if '"service_crashed"' in line]
            if told:
                found.append(f"{name} crashed {len(told)} times: {told[0][-LAST_WORDS_MAX:]}")
        return found

    def begun_anew(self) -> dict[str, int]:
        """How often services logged that they begin anew, by reason."""
        found: Counter[str] = Counter()
        for name in self._children:
            for line in self.log_of(name).read_text(errors="replace").splitlines():
                if '"service_interrupted"' in line:
                    with suppress(ValueError):
                        found[f"{name}: {json.loads(line)['reason']}"] += 1
        return dict(found)

    async def stop(self) -> None:
        """Ends the services, the last one first, then the servers."""
        for name in reversed(list(self._children)):
            self.resume(name)
            await self._children[name].stop()
        await self.servers.stop()


class Fault(NamedTuple):
    """``kind``: the name in the table. ``begin`` makes the fault and returns the function that
    repairs it."""

    kind: str
    seconds: float
    begin: Callable[[], Awaitable[Callable[[], Awaitable[None]]]]


class Faults:
    """Every kind of fault, made for one fleet. ``chance`` chooses servers and services, ``bus``
    tells which server leads; ``scale``: of every duration."""

    def __init__(
        self, fleet: Fleet, bus: Bus, chance: random.Random, *, scale: float = 1.0
    ) -> None:
        self._fleet = fleet
        self._servers = fleet.servers
        self._bus = bus
        self._chance = chance
        self._scale = scale

    def every(self) -> list[Fault]:
        """One of each kind."""
        return [self.of(kind) for kind in self._kinds()]

    def of(self, kind: str) -> Fault:
        """The fault of that kind."""
        seconds, begin = self._kinds()[kind]
        return Fault(kind, seconds * self._scale, begin)

    def _kinds(
        self,
    ) -> Mapping[str, tuple[float, Callable[[], Awaitable[Callable[[], Awaitable[None]]]]]]:
        return {
            LEADER_KILLED: (10.0, self._kill_leader),
            FOLLOWER_KILLED: (10.0, self._kill_follower),
            LEADER_PAUSED: (5.0, self._pause_leader),
            FOLLOWER_PAUSED: (5.0, self._pause_follower),
            QUORUM_KILLED: (15.0, self._kill_quorum),
            QUORUM_PAUSED: (10.0, self._pause_quorum),
            ALL_KILLED: (1.0, self._kill_all),
            SERVICE_KILLED: (0.0, self._kill_service),
            SERVICE_PAUSED: (10.0, self._pause_service),
            SERVICES_KILLED: (0.0, self._kill_services),
        }

    # Servers. -----------------------------------------------------------------------------

    async def _leader(self) -> int:
        found = await self._servers.stream_leader(self._bus, subjects.STREAM)
        return found if found is not None else self._chance.choice(self._servers.up)

    async def _follower(self) -> int:
        leader = await self._leader()
        return self._chance.choice([one for one in self._servers.up if one != leader])

    async def _kill_leader(self) -> Callable[[], Awaitable[None]]:
        return await self._kill([await self._leader()])

    async def _kill_follower(self) -> Callable[[], Awaitable[None]]:
        return await self._kill([await self._follower()])

    async def _kill_quorum(self) -> Callable[[], Awaitable[None]]:
        return await self._kill(self._most())

    async def _kill_all(self) -> Callable[[], Awaitable[None]]:
        return await self._kill(self._servers.up)

    async def _pause_leader(self) -> Callable[[], Awaitable[None]]:
        return self._pause([await self._leader()])

    async def _pause_follower(self) -> Callable[[], Awaitable[None]]:
        return self._pause([await self._follower()])

    async def _pause_quorum(self) -> Callable[[], Awaitable[None]]:
        return self._pause(self._most())

    def _most(self) -> list[int]:
        return self._chance.sample(self._servers.up, self._servers.size // 2 + 1)

    async def _kill(self, numbers: Sequence[int]) -> Callable[[], Awaitable[None]]:
        await asyncio.gather(*map(self._servers.kill, numbers))

        async def mend() -> None:
            await self._servers.start(*numbers)

        return mend

    def _pause(self, numbers: Sequence[int]) -> Callable[[], Awaitable[None]]:
        for number in numbers:
            self._servers.pause(number)

        async def mend() -> None:
            for number in numbers:
                self._servers.resume(number)

        return mend

    # Services. ----------------------------------------------------------------------------

    async def _kill_service(self) -> Callable[[], Awaitable[None]]:
        return await self._kill_named([self._chance.choice(self._fleet.instances)])

    async def _kill_services(self) -> Callable[[], Awaitable[None]]:
        return await self._kill_named(self._fleet.instances)

    async def _kill_named(self, names: Sequence[str]) -> Callable[[], Awaitable[None]]:
        names = [name for name in names if self._fleet.runs(name)]
        for name in names:
            await self._fleet.kill(name)

        async def mend() -> None:
            for name in names:
                await self._fleet.start(name)

        return mend

    async def _pause_service(self) -> Callable[[], Awaitable[None]]:
        name = self._chance.choice(self._fleet.instances)
        self._fleet.pause(name)

        async def mend() -> None:
            self._fleet.resume(name)

        return mend


LEADER_KILLED: Final = "kill -9 of the server that leads the log"
FOLLOWER_KILLED: Final = "kill -9 of another server"
LEADER_PAUSED: Final = "pause of the server that leads the log"
FOLLOWER_PAUSED: Final = "pause of another server"
QUORUM_KILLED: Final = "kill -9 of two servers (no quorum)"
QUORUM_PAUSED: Final = "pause of two servers (no quorum)"
ALL_KILLED: Final = "kill -9 of all servers"
SERVICE_KILLED: Final = "kill -9 of a service"
SERVICE_PAUSED: Final = "pause of a service"
SERVICES_KILLED: Final = "kill -9 of all services"

KINDS: Final = (
    LEADER_KILLED,
    FOLLOWER_KILLED,
    LEADER_PAUSED,
    FOLLOWER_PAUSED,
    QUORUM_KILLED,
    QUORUM_PAUSED,
    ALL_KILLED,
    SERVICE_KILLED,
    SERVICE_PAUSED,
    SERVICES_KILLED,
)
ONE_SERVER: Final = frozenset({LEADER_KILLED, FOLLOWER_KILLED, LEADER_PAUSED, FOLLOWER_PAUSED})
"""The faults after which a majority of the servers is left."""
