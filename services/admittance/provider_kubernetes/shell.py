"""This provider on the bus. All instances work: whoever hears a request makes its object, and what
becomes of an object is seen by everybody and said once.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from admittance.events.requests import HealthReply
from admittance.provider_kubernetes.cluster import connect
from admittance.provider_kubernetes.keeper import Keeper
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.providers.builtin import installation
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process import health
from admittance.runtime.process.settings import Settings

SERVICE: Final = "provider-kubernetes"


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Provides until stop is set. Raises SetupError."""
    kube = KubeSettings.from_env(os.environ)
    cluster = connect(kube)
    try:
        ours = kube.installation or await installation(bus, "kubernetes")
        keeper = Keeper(bus, settings, kube, cluster, ours)

        def told() -> HealthReply:
            return HealthReply(
                service=SERVICE,
                instance=settings.instance,
                ready=keeper.ready,
                details=health.told(keeper.trouble),
            )

        async with health.answered(bus, SERVICE, settings.instance, told):
            await keeper.run(stop)
    finally:
        await cluster.close()
