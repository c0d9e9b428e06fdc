"""The faults of `chaos`: what they break, for how long, and how they are repaired."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from admittance.events import subjects
from admittance.runtime.bus.bus import Bus
from benchmarks.harness.fleet import Fleet

Mend: TypeAlias = Callable[[], Awaitable[None]]


class Fault(NamedTuple):
    """``kind``: the name in the table. ``begin`` makes the fault and returns the function that
    repairs it."""

    kind: str
    seconds: float
    begin: Callable[[], Awaitable[Mend]]


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

    def _kinds(self) -> Mapping[str, tuple[float, Callable[[], Awaitable[Mend]]]]:
        kinds = {
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
        return {kind: kinds[kind] for kind in kinds_on(self._servers.size)}

    # Servers. -----------------------------------------------------------------------------

    async def _leader(self) -> int:
        leader = await self._servers.stream_leader(self._bus, subjects.STREAM)
        return leader if leader is not None else self._chance.choice(self._servers.up)

    async def _follower(self) -> int:
        leader = await self._leader()
        return self._chance.choice([number for number in self._servers.up if number != leader])

    async def _kill_leader(self) -> Mend:
        return await self._kill([await self._leader()])

    async def _kill_follower(self) -> Mend:
        return await self._kill([await self._follower()])

    async def _kill_quorum(self) -> Mend:
        return await self._kill(self._most())

    async def _kill_all(self) -> Mend:
        return await self._kill(self._servers.up)

    async def _pause_leader(self) -> Mend:
        return self._pause([await self._leader()])

    async def _pause_follower(self) -> Mend:
        return self._pause([await self._follower()])

    async def _pause_quorum(self) -> Mend:
        return self._pause(self._most())

    def _most(self) -> list[int]:
        return self._chance.sample(self._servers.up, self._servers.size // 2 + 1)

    async def _kill(self, numbers: Sequence[int]) -> Mend:
        await asyncio.gather(*map(self._servers.kill, numbers))

        async def mend() -> None:
            await self._servers.start(*numbers)

        return mend

    def _pause(self, numbers: Sequence[int]) -> Mend:
        for number in numbers:
            self._servers.pause(number)

        async def mend() -> None:
            for number in numbers:
                self._servers.resume(number)

        return mend

    # Services. ----------------------------------------------------------------------------

    async def _kill_service(self) -> Mend:
        return await self._kill_named([self._chance.choice(self._fleet.instances)])

    async def _kill_services(self) -> Mend:
        return await self._kill_named(self._fleet.instances)

    async def _kill_named(self, names: Sequence[str]) -> Mend:
        names = [name for name in names if self._fleet.runs(name)]
        for name in names:
            await self._fleet.kill(name)

        async def mend() -> None:
            for name in names:
                await self._fleet.start(name)

        return mend

    async def _pause_service(self) -> Mend:
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
OF_SEVERAL: Final = frozenset({FOLLOWER_KILLED, FOLLOWER_PAUSED, QUORUM_KILLED, QUORUM_PAUSED})
"""The faults that a single server cannot have, or that are another one there."""
ONE_SERVER: Final = frozenset({LEADER_KILLED, FOLLOWER_KILLED, LEADER_PAUSED, FOLLOWER_PAUSED})
"""The faults after which a majority of the servers is left."""


def kinds_on(servers: int) -> list[str]:
    """The faults that so many servers can have."""
    return [kind for kind in KINDS if servers > 1 or kind not in OF_SEVERAL]
