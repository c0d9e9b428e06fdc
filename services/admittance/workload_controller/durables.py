"""Keeps one durable per check controller that any AdmissionCheck names, and one per class of
capacity that any ProvisioningRequestConfig names.

It is there before the manifest is, so nothing that the program is asked can be missed. A new leader
compares what the server has with what the bucket asks for, since its predecessor may have died
between the two.

That of a class outlives the last manifest that names it for as long as something was asked of its
provider, or it has yet to hear that something was taken back: what is booked would never be freed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import structlog

from admittance.api.checks import AdmissionCheck, ProvisioningRequestConfig
from admittance.control.objects import Objects
from admittance.events.reading import Unreadable
from admittance.events.subjects import CAPACITY
from admittance.provisioning.records import read_record
from admittance.runtime import clock
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import PeerDurables, check_durables, provider_durables
from admittance.runtime.errors import Refused

DurableKey: TypeAlias = tuple[PeerDurables, str]

UNHEARD_SECONDS: Final = 86_400.0
"""What nobody has read by then, of a class that no manifest names, is nobody's."""

log = structlog.get_logger()


class Durables:
    """The durables as one leader made or found them."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._made: set[DurableKey] = set()
        self._owed: dict[DurableKey, float] = {}
        """Those that no manifest names and that stay for a while, and since when."""

    @property
    def owes(self) -> bool:
        """Some are to be deleted later: `after` is to be called now and then."""
        return bool(self._owed)

    async def settle(self, objects: Objects) -> None:
        """Makes every durable that is missing, and deletes those that nobody needs. Raises
        Unavailable.

        What the server refuses to make is logged: others still want their requests.
        """
        wanted = named(objects)
        there = {
            (kind, name)
            for kind in (check_durables, provider_durables)
            for name in await kind.there(self._bus)
        }
        for one in _sorted(wanted):
            kind, name = one
            try:
                await kind.make(self._bus, name)
            except Refused as error:
                log.error("durable_refused", durable=kind.durable(name), error=str(error))
                continue
            self._made.add(one)
        for one in _sorted(there - wanted):
            await self._remove(one)

    async def before(self, manifests: Iterable[Any]) -> None:
        """Makes the durables that these manifests, about to be written, ask for. Raises Refused or
        Unavailable: then nothing should be written."""
        for manifest in manifests:
            one = _of(manifest)
            if one is None or one in self._made:
                continue
            kind, name = one
            await kind.make(self._bus, name)
            self._made.add(one)
            log.info("durable_made", durable=kind.durable(name))

    async def after(self, objects: Objects) -> None:
        """Deletes the durables that no manifest asks for any more. Raises Unavailable."""
        wanted = named(objects)
        for one in wanted & self._owed.keys():
            del self._owed[one]
        for one in _sorted(self._made - wanted):
            await self._remove(one)

    async def _remove(self, one: DurableKey) -> None:
        kind, name = one
        if kind is provider_durables and await self._is_owed(name):
            since = self._owed.setdefault(one, clock.monotonic())
            if clock.monotonic() - since < UNHEARD_SECONDS:
                self._made.add(one)
                return
        await kind.remove(self._bus, name)
        self._made.discard(one)
        self._owed.pop(one, None)
        log.info("durable_removed", durable=kind.durable(name))

    async def _is_owed(self, provisioning_class: str) -> bool:
        """Its provider has to hear of something, or will have to."""
        # Requests first: where one is gone, all that there is to hear of it is on the log.
        for entry in await bucket.read_all(self._bus, f"{CAPACITY}.>"):
            try:
                record = read_record(entry.key, entry.value)
            except Unreadable:
                continue  # written by another hand
            if record.spec.provisioning_class_name == provisioning_class:
                return True
        found = (await provider_durables.there(self._bus)).get(provisioning_class, {})
        return bool(found.get("num_pending") or found.get("num_ack_pending"))


def named(objects: Objects) -> set[DurableKey]:
    """Every program that a manifest names."""
    kinds = ("admissioncheck", "provisioningrequestconfig")
    found = (_of(manifest) for kind in kinds for manifest in objects.of_kind(kind))
    return {one for one in found if one is not None}


def _of(manifest: Any) -> DurableKey | None:
    if isinstance(manifest, AdmissionCheck):
        return check_durables, manifest.spec.controller_name
    if isinstance(manifest, ProvisioningRequestConfig):
        return provider_durables, manifest.spec.provisioning_class_name
    return None


def _sorted(wanted: Iterable[DurableKey]) -> list[DurableKey]:
    return sorted(wanted, key=lambda one: one[0].durable(one[1]))
