"""The pools on the bus: one instance is active, the others stand by."""

from __future__ import annotations

import asyncio

from admittance.lease.domains import PROVIDER_POOL
from admittance.provider_pool.keeper import SERVICE, Keeper
from admittance.runtime.bus.bus import Bus
from admittance.runtime.leader.leader_elected_service import Alone
from admittance.runtime.process.settings import Settings

__all__ = ["SERVICE", "run"]


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until it is our turn, then books machines; until stop is set."""

    def begin(_: int) -> Keeper:
        return Keeper(bus, settings)

    await Alone(bus, settings, SERVICE, PROVIDER_POOL, begin).run(stop)
