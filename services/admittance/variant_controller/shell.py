"""Watch, decide, state: the variant-controller on the bus.

One instance is active; the others stand by. A stale one is harmless: what it states is a wish, and
the workload-controller asks the same policy before it grants one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from admittance.api.configuration import GATES
from admittance.events.requests import HealthReply
from admittance.lease.domains import VARIANT_CONTROLLER
from admittance.runtime import micro
from admittance.runtime.alone import work_alone
from admittance.runtime.bus import Bus
from admittance.runtime.leading import Leading
from admittance.runtime.metrics import Gauge, served
from admittance.runtime.settings import Settings
from admittance.variant_controller.decide import Families
from admittance.variant_controller.keeper import SERVICE, Keeper
from admittance.variant_controller.said import GATHER

GATE: Final = "ConcurrentAdmission"


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until it is our turn, then keeps the families; until stop is set."""
    leading = Leading(bus, SERVICE, settings.instance, ttl_seconds=settings.lease_seconds)
    enabled = (GATES | settings.configuration.feature_gates)[GATE]
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

    def begin(epoch: int) -> Keeper:
        keepers[:] = [Keeper(bus, settings, Families(enabled=enabled, gather=GATHER), epoch)]
        return keepers[-1]

    def gates() -> dict[tuple[str, ...], float]:
        leads = leading.tenure.leads()
        found = keepers[-1].core.gates_open() if leads and keepers else {}
        return {(queue,): count for queue, count in found.items()}

    figures = Gauge(
        "preemption_gate_open", "Families of which a variant may preempt", ("cluster_queue",), gates
    )
    async with served(settings.metrics, (figures,)):
        service = await micro.serve(
            bus, SERVICE, settings.instance, {}, everyone={"admit.api.health": health}
        )
        try:
            await work_alone(leading, VARIANT_CONTROLLER, begin, stop=stop)
        finally:
            await service.stop()
