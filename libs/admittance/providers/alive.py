"""Heartbeats: that a provider lives, and whether it can provide anything."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.subjects import ALIVE_PROVISIONING
from admittance.events.system import ProviderAlive
from admittance.runtime import clock
from admittance.runtime.bus import Bus

if TYPE_CHECKING:
    from admittance.providers.provider import Provider


async def beat(bus: Bus, provider: Provider, *, instance: str, seconds: float) -> None:
    """Says so often, and whenever it changes, how the provider is; for ever."""
    subject = f"{ALIVE_PROVISIONING}{token(provider.name)}"
    while True:
        provider.changed.clear()
        fact = ProviderAlive(
            time=clock.now(),
            instance=instance,
            active=provider.active,
            message=provider.message,
            parameters=provider.understands,
        )
        if bus.nc.is_connected:
            await bus.tell((subject, encode(fact)))
        with suppress(TimeoutError):
            await asyncio.wait_for(provider.changed.wait(), seconds)
