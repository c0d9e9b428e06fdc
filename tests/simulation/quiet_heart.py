"""Heartbeats of electors that the server sends for them as long as nothing is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from math import inf
from typing import TYPE_CHECKING, Any

from admittance.events.subjects import CLAIMS
from admittance.runtime.bus.streams import KV_CLAIMS
from admittance.runtime.errors import Refused, Unavailable
from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.runtime.leader.lease_store import alive_key
from simulation.run import LEASE_SECONDS

if TYPE_CHECKING:
    from simulation.shipped import ShippedWorld


class QuietHeart:
    """The heartbeats of one elector, sent by the server itself as long as nothing is wrong.

    In an idle system heartbeats are more than half of all that happens. So the key of an instance
    stays without them, and from a fault on it lives as long as after its last heartbeat.
    ``beat_now`` has the instance beat once.
    """

    def __init__(self, world: ShippedWorld, elector: LeaderElector) -> None:
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

    def silence(self) -> None:
        """The last heartbeat was up to a quarter of a lease ago."""
        now, elector = self._world.loop.now, self._elector
        since = self._world.rng.random() * LEASE_SECONDS / 4
        if elector._last_beat == inf:
            elector._last_beat = now - since
            self._claims.expire_at(self._subject, now + LEASE_SECONDS - since)


def beating(world: ShippedWorld) -> Callable[[LeaderElector], Coroutine[Any, Any, None]]:
    """`LeaderElector._beat` with a quiet heart."""

    async def beat(self: LeaderElector) -> None:
        heart = QuietHeart(world, self)
        world.life.hearts.append(heart)
        while True:
            heart.renew()
            await heart.beat_now.wait()
            heart.beat_now.clear()
            try:
                await self._write_heartbeat()
            except (Refused, Unavailable):
                heart.silence()
                await asyncio.sleep(LEASE_SECONDS / 4)
                heart.beat_now.set()

    return beat
