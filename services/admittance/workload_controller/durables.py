"""Keeps one durable consumer for each check controller that an AdmissionCheck names, and one for
each provisioning class that a ProvisioningRequestConfig names.

A durable consumer is created before the manifest that requires it is written, so the controller or
provider misses no request. A new leader compares the server's durables with the manifests, since
the previous leader may have ended after it created a durable and before it wrote the manifest.

The durable of a provisioning class outlives the last manifest that names the class, as long as the
provider of the class has requests or unread cancellations: otherwise the provider would never free
booked capacity.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import structlog

from admittance.api.checks import AdmissionCheck, ProvisioningRequestConfig
from admittance.control.manifests.objects import Objects
from admittance.events.reader import Unreadable
from admittance.events.subjects import CAPACITY
from admittance.provisioning.records import read_record
from admittance.runtime import clock
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import ProgramDurables, check_durables, provider_durables
from admittance.runtime.errors import BusRefused

DurableKey: TypeAlias = tuple[ProgramDurables, str]

UNHEARD_SECONDS: Final = 86_400.0
"""Seconds after which the durable of a provisioning class that no manifest names is deleted, even
if it has unread messages.
"""

log = structlog.get_logger()


class Durables:
    """The durable consumers that one leader of the workload-controller has created or found."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._made: set[DurableKey] = set()
        self._owed: dict[DurableKey, float] = {}
        """The durables that no manifest requires and that are kept for a while, each with the time
        when the leader first found it unused.
        """

    @property
    def has_pending_deletions(self) -> bool:
        """Whether some durables must be deleted later, so that `after` must be called from time to
        time."""
        return bool(self._owed)

    async def settle(self, objects: Objects) -> None:
        """Creates the durables that manifests require and the server lacks, and deletes unused
        durables. Raises BusUnavailable if the bus does not answer.

        If the server refuses to create a durable, the refusal is logged and the other durables are
        still made.
        """
        wanted = required_durables(objects)
        there = {
            (kind, name)
            for kind in (check_durables, provider_durables)
            for name in await kind.existing(self._bus)
        }
        for durable in _sorted(wanted):
            kind, name = durable
            try:
                await kind.make(self._bus, name)
            except BusRefused as error:
                log.error("durable_refused", durable=kind.durable(name), error=str(error))
                continue
            self._made.add(durable)
        for durable in _sorted(there - wanted):
            await self._remove(durable)

    async def before(self, manifests: Iterable[Any]) -> None:
        """Creates the durables that ``manifests`` require; called before these manifests are
        written. Raises BusRefused or BusUnavailable if a durable cannot be created: then the
        manifests should not be written.
        """
        for manifest in manifests:
            one = _of(manifest)
            if one is None or one in self._made:
                continue
            kind, name = one
            await kind.make(self._bus, name)
            self._made.add(one)
            log.info("durable_made", durable=kind.durable(name))

    async def after(self, objects: Objects) -> None:
        """Deletes the durables that no manifest requires any more. Raises BusUnavailable if the bus
        does not answer.
        """
        wanted = required_durables(objects)
        for durable in wanted & self._owed.keys():
            del self._owed[durable]
        for durable in _sorted(self._made - wanted):
            await self._remove(durable)

    async def _remove(self, durable: DurableKey) -> None:
        kind, name = durable
        if kind is provider_durables and await self._is_owed(name):
            since = self._owed.setdefault(durable, clock.monotonic())
            if clock.monotonic() - since < UNHEARD_SECONDS:
                self._made.add(durable)
                return
        await kind.remove(self._bus, name)
        self._made.discard(durable)
        self._owed.pop(durable, None)
        log.info("durable_removed", durable=kind.durable(name))

    async def _is_owed(self, provisioning_class: str) -> bool:
        """Whether the provider of the class still has requests or unread messages."""
        # The request records are read before the consumer: once a record is deleted, the last
        # messages about the request are on the log.
        for entry in await bucket.read_all(self._bus, f"{CAPACITY}.>"):
            try:
                record = read_record(entry.key, entry.value)
            except Unreadable:
                continue  # another program wrote the request record
            if record.spec.provisioning_class_name == provisioning_class:
                return True
        info = (await provider_durables.existing(self._bus)).get(provisioning_class, {})
        return bool(info.get("num_pending") or info.get("num_ack_pending"))


def required_durables(objects: Objects) -> set[DurableKey]:
    """The durables that the stored manifests require."""
    kinds = ("admissioncheck", "provisioningrequestconfig")
    required = (_of(manifest) for kind in kinds for manifest in objects.of_kind(kind))
    return {durable for durable in required if durable is not None}


def _of(manifest: Any) -> DurableKey | None:
    if isinstance(manifest, AdmissionCheck):
        return check_durables, manifest.spec.controller_name
    if isinstance(manifest, ProvisioningRequestConfig):
        return provider_durables, manifest.spec.provisioning_class_name
    return None


def _sorted(wanted: Iterable[DurableKey]) -> list[DurableKey]:
    return sorted(wanted, key=lambda one: one[0].durable(one[1]))
