"""A provider without the helper: it stores requests, and tests give its answers."""

from __future__ import annotations

from typing import Any

from admittance.events.codec import decode, encode
from admittance.events.provisioning import (
    ProvisioningCancelled,
    ProvisioningFact,
    ProvisioningRequested,
    ProvisioningStatus,
)
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from support.servers import until


class BareProvider:
    """Receives all requests of its class while it listens. ``booked``: the ids that were
    asked for and not taken back."""

    def __init__(self, bus: Bus, provisioning_class: str = "class") -> None:
        self._bus = bus
        self._class = provisioning_class
        self.received: list[ProvisioningFact] = []

    async def start(self) -> BareProvider:
        for word in ("requested", "cancelled"):
            subject = f"admit.provisioning.{word}.{self._class}.>"
            await self._bus.nc.listen(subject, self._on_message)
        return self

    def _on_message(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        fact = decode(subject.decode(), data)
        assert isinstance(fact, ProvisioningFact)
        self.received.append(fact)

    @property
    def asked(self) -> list[ProvisioningRequested]:
        return [fact for fact in self.received if isinstance(fact, ProvisioningRequested)]

    @property
    def booked(self) -> set[str]:
        ids: set[str] = set()
        for fact in self.received:
            if isinstance(fact, ProvisioningCancelled):
                ids.discard(fact.id)
            else:
                ids.add(fact.id)
        return ids

    async def until_asked(self, times: int = 1) -> ProvisioningRequested:
        """Waits for as many different requests; returns the newest."""
        await until(lambda: len({request.id for request in self.asked}) >= times)
        return self.asked[-1]

    async def publish_status(
        self, to: ProvisioningRequested, kind: type[ProvisioningStatus], **fields: Any
    ) -> None:
        """Answers that request."""
        about = {"namespace": to.namespace, "name": to.name, "uid": to.uid, "id": to.id}
        fact = kind(**{**about, "provisioning_class": self._class, **fields})
        await self._bus.publish(Outgoing(subject_of(fact), encode(fact)))
