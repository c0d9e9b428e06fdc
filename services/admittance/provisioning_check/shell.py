"""The provisioning check on the bus: one instance is active, the others stand by."""

from __future__ import annotations

import asyncio

from admittance.lease.domains import PROVISIONING_CHECK
from admittance.provisioning_check.keeper import SERVICE, Keeper
from admittance.runtime.bus.bus import Bus
from admittance.runtime.leader.leader_elected_service import Alone
from admittance.runtime.process.settings import Settings

__all__ = ["SERVICE", "run"]


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until it is our turn, then sees to it that capacity is there; until stop is set."""

    def begin(epoch: int) -> Keeper:
        return Keeper(bus, settings, epoch)

    alone = Alone(bus, settings, SERVICE, PROVISIONING_CHECK, begin, lag=lambda keeper: keeper.lag)
    await alone.run(stop)
