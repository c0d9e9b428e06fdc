"""Watch, decide, state: the variant-controller on the bus.

One instance is active; the others stand by. A stale one is harmless: what it states is a wish, and
the workload-controller asks the same policy before it grants one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from admittance.api.configuration import GATES
from admittance.lease.domains import VARIANT_CONTROLLER
from admittance.runtime.bus.bus import Bus
from admittance.runtime.leader.leader_elected_service import Alone
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry.metrics import Gauge, served
from admittance.variant_controller.keeper import SERVICE, Keeper
from admittance.variants.decide import Families
from admittance.variants.said import GATHER

__all__ = ["SERVICE", "run"]

GATE: Final = "ConcurrentAdmission"


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until it is our turn, then keeps the families; until stop is set."""
    enabled = (GATES | settings.configuration.feature_gates)[GATE]

    def begin(epoch: int) -> Keeper:
        return Keeper(bus, settings, Families(enabled=enabled, gather=GATHER), epoch)

    alone = Alone(
        bus, settings, SERVICE, VARIANT_CONTROLLER, begin, lag=lambda keeper: keeper.core.pending
    )

    def gates() -> dict[tuple[str, ...], float]:
        keeper = alone.work
        found = keeper.core.gates_open() if keeper is not None else {}
        return {(queue,): count for queue, count in found.items()}

    figures = Gauge(
        "preemption_gate_open", "Families of which a variant may preempt", ("cluster_queue",), gates
    )
    async with served(settings.metrics, (figures,)):
        await alone.run(stop)
