"""Heartbeats: that a provider lives, and whether it can provide anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.subjects import ALIVE_PROVISIONING
from admittance.events.system import ProviderAlive
from admittance.peers import beating
from admittance.runtime import clock
from admittance.runtime.bus import Bus

if TYPE_CHECKING:
    from admittance.providers.provider import Provider


async def beat(bus: Bus, provider: Provider, *, instance: str, seconds: float) -> None:
    """Says so often, and whenever it changes, how the provider is; for ever."""
    since = clock.now()

    def now() -> bytes:
        active, message = provider.activity
        fact = ProviderAlive(
            time=clock.now(),
            instance=instance,
            since=since,
            active=active,
            message=beating.shortened(message),
            parameters=provider.understands,
        )
        return encode(fact)

    subject = f"{ALIVE_PROVISIONING}{token(provider.name)}"
    await beating.beat(bus, subject, provider.changes, now, seconds=seconds)
