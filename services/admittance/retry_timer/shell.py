"""Watch, compare, order: the retry-timer on the bus.

One instance is active; the others stand by. A stale one is harmless: what it sets wrongly says only
that somebody looks at a workload for nothing, and the next comparison finds it.
"""

from __future__ import annotations

import asyncio

from admittance.lease.domains import RETRY_TIMER
from admittance.retry_timer.keeper import SERVICE, Keeper
from admittance.runtime.bus.bus import Bus
from admittance.runtime.leader.leader_elected_service import Alone
from admittance.runtime.process.settings import Settings
from admittance.timers.decide import Timers
from admittance.workload.limits import limits_of

__all__ = ["SERVICE", "run"]


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until it is our turn, then keeps the schedules; until stop is set."""
    limits = limits_of(
        settings.configuration,
        drain=settings.drain_seconds,
        check_delay=settings.check_delay_seconds,
    )

    def begin(_: int) -> Keeper:
        return Keeper(bus, settings, Timers(limits))

    alone = Alone(
        bus, settings, SERVICE, RETRY_TIMER, begin, lag=lambda keeper: keeper.core.pending
    )
    await alone.run(stop)
