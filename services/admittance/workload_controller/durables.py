"""Keeps one durable per check controller that any AdmissionCheck names.

It is there before the AdmissionCheck is, so nothing that the controller is asked can be missed. A
new leader compares what the server has with what the bucket asks for, since its predecessor may
have died between the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog

from admittance.api.checks import AdmissionCheck
from admittance.runtime import check_durables
from admittance.runtime.bus import Bus
from admittance.runtime.errors import Refused
from admittance.workload_controller.objects import Objects

log = structlog.get_logger()


class Durables:
    """The durables as one leader made or found them."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._made: set[str] = set()

    async def settle(self, objects: Objects) -> None:
        """Makes every durable that is missing, and deletes those that nobody needs. Raises
        Unavailable.

        What the server refuses to make is logged: others still want their requests.
        """
        wanted = controllers(objects)
        surplus = set(await check_durables.there(self._bus)) - wanted
        for controller in sorted(wanted):
            try:
                await check_durables.make(self._bus, controller)
            except Refused as error:
                log.error("durable_refused", controller=controller, error=str(error))
                continue
            self._made.add(controller)
        for controller in sorted(surplus):
            await self._remove(controller)

    async def before(self, manifests: Iterable[Any]) -> None:
        """Makes the durables that these manifests, about to be written, ask for. Raises Refused or
        Unavailable: then nothing should be written."""
        for manifest in manifests:
            if not isinstance(manifest, AdmissionCheck):
                continue
            controller = manifest.spec.controller_name
            if controller not in self._made:
                await check_durables.make(self._bus, controller)
                self._made.add(controller)
                log.info("durable_made", controller=controller)

    async def after(self, objects: Objects) -> None:
        """Deletes the durables that no AdmissionCheck asks for any more. Raises Unavailable."""
        for controller in sorted(self._made - controllers(objects)):
            await self._remove(controller)

    async def _remove(self, controller: str) -> None:
        await check_durables.remove(self._bus, controller)
        self._made.discard(controller)
        log.info("durable_removed", controller=controller)


def controllers(objects: Objects) -> set[str]:
    """Every controller that an AdmissionCheck names."""
    return {check.spec.controller_name for check in objects.of_kind("admissioncheck")}
