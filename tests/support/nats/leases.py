"""Leases as another instance would take them."""

from __future__ import annotations

import msgspec

from admittance.events import subjects
from admittance.events.names import token
from admittance.events.system import Barrier, Epoch
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, get
from admittance.runtime.bus.bus import EXPECTED, Bus, Outgoing
from admittance.runtime.leader.lease_store import alive_key, epoch_subject, fence

_encode = msgspec.json.Encoder().encode


async def take_epoch(bus: Bus, domain: str, owner: str, *, expected: int) -> int:
    """Takes over a domain with the last epoch ``expected``. Returns the new epoch. Raises
    StaleRevision if another instance was faster."""
    content = Epoch(domain=domain, owner=owner, time=clock.now())
    headers = {EXPECTED: str(expected)}
    return await bus.publish(Outgoing(epoch_subject(domain), _encode(content), headers))


async def publish_barrier(bus: Bus, domain: str, owner: str, epoch: int) -> int:
    """Publishes a fenced barrier. Its echo follows all decisions before it. Raises Fenced."""
    content = Barrier(domain=domain, owner=owner, epoch=epoch)
    subject = f"{subjects.BARRIER}{token(domain)}"
    return await bus.publish(Outgoing(subject, _encode(content), fence(domain, epoch)))


async def is_alive(bus: Bus, service: str, instance: str) -> bool:
    """Whether the heartbeat of the instance has not expired."""
    entry: Entry | None = await get(bus, alive_key(service, instance), bucket=subjects.CLAIMS)
    return entry is not None and entry.value is not None
