"""A check controller that is written with the helper that ships, as a service of the simulation."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from admittance.checks import AdmissionCheckController, Ready, Rejected, Request, Retry, Verdict
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings

CONTROLLER: Final = "ctl-k1"
"""The controller that this service is, in place of an actor."""
REPLICAS: Final = ("k-a", "k-b")


class HelpedCheck:
    """Its replicas share the requests of one durable. ``calm``: from now on it answers Ready."""

    SERVICE = "check"

    def __init__(self, rng: Random) -> None:
        self.calm = False
        self._rng = rng

    async def run(self, bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
        """Answers requests until stop is set."""
        controller = AdmissionCheckController(CONTROLLER)
        controller.check(self._judge)
        await controller._work(bus, settings, stop)

    async def _judge(self, _: Request) -> Verdict:
        rng = self._rng
        await asyncio.sleep(rng.random() * rng.choice((0.01, 0.5, 8.0)))
        if self.calm:
            return Ready("so")
        kind = rng.random()
        if kind < 0.65:
            return Ready("so")
        if kind < 0.95:
            return Retry("not now", after=rng.choice((None, 0, 1, "5s")))
        return Rejected("never")
