"""Lives of services, and heartbeats that the server sends for them as long as nothing is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from math import inf
from typing import TYPE_CHECKING, Any, Final

from admittance.events.subjects import CLAIMS
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.streams import KV_CLAIMS
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.runtime.leader.lease_store import alive_key
from simulation.virtual_time.loop import Process

if TYPE_CHECKING:
    from simulation.world import World

LEASE_SECONDS: Final = 10.0
IDLE_LEASE_SECONDS: Final = 600.0
IDLE_HEARTBEAT_SECONDS: Final = 300.0


class QuietHeart:
    """The heartbeats of one elector, sent by the server itself as long as nothing is wrong.

    In an idle system heartbeats are more than half of all that happens. So the key of an instance
    stays without them, and from a fault on it lives as long as after its last heartbeat.
    ``beat_now`` has the instance beat once.
    """

    def __init__(self, world: World, elector: LeaderElector) -> None:
        self.beat_now = elector._beat_now
        self._world = world
        self._elector = elector
        self._claims = world.server.nats.streams[KV_CLAIMS]
        key = alive_key(elector._service, elector._instance)
        self._subject = f"$KV.{CLAIMS}.{key}"

    def renew(self) -> None:
        """The key does not expire, and the elector knows that."""
        self._claims.expire_at(self._subject, inf)
        self._elector._last_beat = inf
        self._elector._last_ack = None

    def silence(self) -> None:
        """The last heartbeat was up to a quarter of a lease ago."""
        now, elector = self._world.loop.now, self._elector
        since = self._world.rng.random() * LEASE_SECONDS / 4
        if elector._last_beat == inf:
            elector._last_beat = elector._last_ack = now - since
            self._claims.expire_at(self._subject, now + LEASE_SECONDS - since)


class ServiceRun:
    """One life of a service, with what it made: its bus, its elections, of a scheduler its
    state."""

    def __init__(self, world: World, process: Process) -> None:
        self.process = process
        self.stop = asyncio.Event()
        self.hearts: list[QuietHeart] = []
        self._world = world
        process.on_kill.append(self.silence)
        self.buses: list[Bus] = []
        self.electors: list[LeaderElector] = []
        self.shells: list[Any] = []

    def silence(self) -> None:
        """Stops its heartbeats: the keys of its heartbeats expire."""
        for heart in self.hearts:
            heart.silence()

    def disturb(self) -> None:
        """Starts its heartbeats again, and sends one at once."""
        for heart in self.hearts:
            self._world.loop.post(self.process, heart.beat_now.set)

    def relax(self) -> None:
        """Lengthens leases and intervals of heartbeats, for the time without faults: heartbeats
        cost more than all else in an idle system."""
        for bus in self.buses:
            bus.heartbeat_seconds = IDLE_HEARTBEAT_SECONDS
        for elector in self.electors:
            elector._ttl = IDLE_LEASE_SECONDS


def beating(world: World) -> Callable[[LeaderElector], Coroutine[Any, Any, None]]:
    """`LeaderElector._beat` with a quiet heart."""

    async def beat(self: LeaderElector) -> None:
        heart = QuietHeart(world, self)
        world.service.hearts.append(heart)
        while True:
            heart.renew()
            await heart.beat_now.wait()
            heart.beat_now.clear()
            try:
                await self._write_heartbeat()
            except (BusRefused, BusUnavailable):
                heart.silence()
                await asyncio.sleep(LEASE_SECONDS / 4)
                heart.beat_now.set()

    return beat
