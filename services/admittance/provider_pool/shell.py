"""The pools on the bus: one instance is active, the others stand by."""

from __future__ import annotations

import asyncio

from admittance.events.requests import HealthReply
from admittance.lease.domains import PROVIDER_POOL
from admittance.provider_pool.keeper import SERVICE, Keeper
from admittance.runtime import micro
from admittance.runtime.alone import work_alone
from admittance.runtime.bus import Bus
from admittance.runtime.leading import Leading
from admittance.runtime.settings import Settings

__all__ = ["SERVICE", "run"]


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until it is our turn, then books machines; until stop is set."""
    leading = Leading(bus, SERVICE, settings.instance, ttl_seconds=settings.lease_seconds)
    keepers: list[Keeper] = []

    async def health(_: bytes, __: str) -> HealthReply:
        leads = tuple(leading.tenure.leads())
        keeper = keepers[-1] if leads and keepers else None
        return HealthReply(
            service=SERVICE,
            instance=settings.instance,
            ready=not leads or (keeper is not None and keeper.ready),
            leads=leads,
        )

    def begin(_: int) -> Keeper:
        keepers[:] = [Keeper(bus, settings)]
        return keepers[-1]

    service = await micro.serve(
        bus, SERVICE, settings.instance, {}, everyone={"admit.api.health": health}
    )
    try:
        await work_alone(leading, PROVIDER_POOL, begin, stop=stop)
    finally:
        await service.stop()
