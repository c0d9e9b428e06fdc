"""This provider on the bus. All instances work: whoever hears a request makes its object, and what
becomes of an object is seen by everybody and said once.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import Final

from admittance.events.requests import HealthReply
from admittance.events.subjects import PROVIDERS
from admittance.provider_kubernetes.cluster import connect
from admittance.provider_kubernetes.keeper import Keeper
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.runtime import bucket, micro
from admittance.runtime.bus import Bus
from admittance.runtime.errors import StaleRevision
from admittance.runtime.settings import Settings

SERVICE: Final = "provider-kubernetes"
INSTALLATION_KEY: Final = "_kubernetes.installation"
"""In the bucket of providers: no class of capacity has such a key."""


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Provides until stop is set. Raises SetupError."""
    kube = KubeSettings.from_env(os.environ)
    cluster = connect(kube)
    try:
        keeper = Keeper(bus, settings, kube, cluster, kube.installation or await installation(bus))

        async def health(_: bytes, __: str) -> HealthReply:
            return HealthReply(service=SERVICE, instance=settings.instance, ready=keeper.ready)

        service = await micro.serve(
            bus, SERVICE, settings.instance, {}, everyone={"admit.api.health": health}
        )
        try:
            await keeper.run(stop)
        finally:
            await service.stop()
    finally:
        await cluster.close()


async def installation(bus: Bus) -> str:
    """What tells our objects from those of another Admittance in the same cluster: drawn once, and
    kept on the bus."""
    while True:
        entry = await bucket.get(bus, INSTALLATION_KEY, bucket=PROVIDERS)
        if entry is not None and entry.value is not None:
            return entry.value.decode()
        drawn = secrets.token_hex(6).encode()
        expected = entry.revision if entry is not None else 0
        try:
            await bus.publish(
                bucket.put_message(INSTALLATION_KEY, drawn, expected=expected, bucket=PROVIDERS)
            )
        except StaleRevision:
            continue
        return drawn.decode()
