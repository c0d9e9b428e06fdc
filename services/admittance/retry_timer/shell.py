"""Watch, compare, order: the retry-timer on the bus.

One instance is active; the others stand by. A stale one is harmless: what it sets wrongly says only
that somebody looks at a workload for nothing, and the next comparison finds it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from admittance.events.requests import HealthReply
from admittance.lease.domains import RETRY_TIMER
from admittance.retry_timer.decide import Timers
from admittance.retry_timer.keeper import Keeper
from admittance.runtime import micro
from admittance.runtime.alone import work_alone
from admittance.runtime.bus import Bus
from admittance.runtime.leading import Leading
from admittance.runtime.settings import Settings
from admittance.workload.limits import limits_of

SERVICE: Final = "retry-timer"


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until it is our turn, then keeps the schedules; until stop is set."""
    leading = Leading(bus, SERVICE, settings.instance, ttl_seconds=settings.lease_seconds)
    limits = limits_of(
        settings.configuration,
        drain=settings.drain_seconds,
        check_delay=settings.check_delay_seconds,
    )
    keepers: list[Keeper] = []

    async def health(_: bytes, __: str) -> HealthReply:
        leads = tuple(leading.tenure.leads())
        keeper = keepers[-1] if leads and keepers else None
        return HealthReply(
            service=SERVICE,
            instance=settings.instance,
            ready=not leads or (keeper is not None and keeper.ready),
            leads=leads,
            lag=keeper.core.pending if keeper is not None else 0,
        )

    def begin(_: int) -> Keeper:
        keepers[:] = [Keeper(bus, settings, Timers(limits))]
        return keepers[-1]

    service = await micro.serve(
        bus, SERVICE, settings.instance, {}, everyone={"admit.api.health": health}
    )
    try:
        await work_alone(leading, RETRY_TIMER, begin, stop=stop)
    finally:
        await service.stop()
