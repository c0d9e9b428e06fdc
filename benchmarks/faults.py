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
        self.fleet = fleet
        self.servers = fleet.servers
        self.chance = chance
        self._bus = bus
        self._scale = scale

    def every(self) -> list[Fault]:
        """One of each kind."""
        return [self.of(kind) for kind in kinds_on(self.servers.size)]

    def of(self, kind: str) -> Fault:
        """The fault of that kind."""
        seconds, begin = KINDS[kind]
        return Fault(kind, seconds * self._scale, lambda: begin(self))

    async def leader(self) -> int:
        """The server that leads the log; any if it is not known."""
        leader = await self.servers.stream_leader(self._bus, subjects.STREAM)
        return leader if leader is not None else self.chance.choice(self.servers.up)

    async def follower(self) -> int:
        """A server that does not lead the log."""
        leader = await self.leader()
        return self.chance.choice([number for number in self.servers.up if number != leader])

    def most(self) -> list[int]:
        """So many servers that the rest is no majority."""
        return self.chance.sample(self.servers.up, self.servers.size // 2 + 1)

    def service(self) -> str:
        """An instance of a service."""
        return self.chance.choice(self.fleet.instances)

    async def kill(self, numbers: Sequence[int]) -> Mend:
        """Kills servers."""
        await asyncio.gather(*map(self.servers.kill, numbers))

        async def mend() -> None:
            await self.servers.start(*numbers)

        return mend

    async def pause(self, numbers: Sequence[int]) -> Mend:
        """Pauses servers."""
        for number in numbers:
            self.servers.pause(number)

        async def mend() -> None:
            for number in numbers:
                self.servers.resume(number)

        return mend

    async def kill_services(self, names: Sequence[str]) -> Mend:
        """Kills instances, unless a fault has killed them already."""
        names = [name for name in names if self.fleet.runs(name)]
        for name in names:
            await self.fleet.kill(name)

        async def mend() -> None:
            for name in names:
                await self.fleet.start(name)

        return mend

    async def pause_service(self) -> Mend:
        """Pauses an instance."""
        name = self.service()
        self.fleet.pause(name)

        async def mend() -> None:
            self.fleet.resume(name)

        return mend


async def _kill_leader(faults: Faults) -> Mend:
    return await faults.kill([await faults.leader()])


async def _kill_follower(faults: Faults) -> Mend:
    return await faults.kill([await faults.follower()])


async def _pause_leader(faults: Faults) -> Mend:
    return await faults.pause([await faults.leader()])


async def _pause_follower(faults: Faults) -> Mend:
    return await faults.pause([await faults.follower()])


LEADER_KILLED: Final = "kill -9 of the server that leads the log"
FOLLOWER_KILLED: Final = "kill -9 of another server"
LEADER_PAUSED: Final = "pause of the server that leads the log"
FOLLOWER_PAUSED: Final = "pause of another server"
QUORUM_KILLED: Final = "kill -9 of two servers (no quorum)"
QUORUM_PAUSED: Final = "pause of two servers (no quorum)"

KINDS: Final[Mapping[str, tuple[float, Callable[[Faults], Awaitable[Mend]]]]] = {
    LEADER_KILLED: (10.0, _kill_leader),
    FOLLOWER_KILLED: (10.0, _kill_follower),
    LEADER_PAUSED: (5.0, _pause_leader),
    FOLLOWER_PAUSED: (5.0, _pause_follower),
    QUORUM_KILLED: (15.0, lambda faults: faults.kill(faults.most())),
    QUORUM_PAUSED: (10.0, lambda faults: faults.pause(faults.most())),
    "kill -9 of all servers": (1.0, lambda faults: faults.kill(faults.servers.up)),
    "kill -9 of a service": (0.0, lambda faults: faults.kill_services([faults.service()])),
    "pause of a service": (10.0, Faults.pause_service),
    "kill -9 of all services": (
        0.0,
        lambda faults: faults.kill_services(faults.fleet.instances),
    ),
}
"""By the name in the table of the documentation: the seconds until the repair, and what begins the
fault."""
OF_SEVERAL: Final = frozenset({FOLLOWER_KILLED, FOLLOWER_PAUSED, QUORUM_KILLED, QUORUM_PAUSED})
"""The faults that a single server cannot have, or that are another one there."""
ONE_SERVER: Final = frozenset({LEADER_KILLED, FOLLOWER_KILLED, LEADER_PAUSED, FOLLOWER_PAUSED})
"""The faults after which a majority of the servers is left."""


def kinds_on(servers: int) -> list[str]:
    """The faults that so many servers can have."""
    return [kind for kind in KINDS if servers > 1 or kind not in OF_SEVERAL]
