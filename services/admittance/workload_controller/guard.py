"""Manifests are written by one leader, and it knows which of its writes went through.

A decision is judged by the queues that are in the bucket before it. So no manifest may land there
unknown to the leader: neither one that a predecessor has on its way, nor one of its own that was
given up. Every write of manifests therefore goes in one atomic batch with a guard key, expecting
the guard's last revision; whoever moves the guard, by leading or by giving up, makes all that is
on its way too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from admittance.events.reading import SetAside, number
from admittance.events.subjects import BUCKET
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import Refused, StaleRevision, Superseded, Unavailable
from admittance.runtime.leader import lease_store
from admittance.runtime.telemetry.set_aside import log_set_aside

KEY: Final = "_admittance.manifests"
PAUSE_SECONDS: Final = 0.02


class Guard:
    """The guard as one leader holds it. ``epoch``: of its lease; the guard's value names it."""

    def __init__(self, bus: Bus, epoch: int) -> None:
        self._bus = bus
        self._epoch = epoch
        self._revision: int | None = None

    async def take(self) -> None:
        """From here on nothing that was on its way before is stored. Raises Superseded."""
        while True:
            try:
                self._revision = await self._bus.publish(self._put())
                return
            except StaleRevision:
                pass
            except Unavailable:
                # Without it we would not know what is still to come.
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            with suppress(Unavailable, Refused):
                await self._look()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _look(self) -> None:
        entry = await bucket.get(self._bus, KEY)
        value = entry.value if entry is not None else None
        # An epoch is a place on the log: there is none behind its end.
        epoch = number(value, most=await lease_store.end_of_log(self._bus))
        if epoch is not None and epoch > self._epoch:
            raise Superseded(f"epoch {epoch} writes manifests")
        if value and epoch is None and entry is not None:
            log_set_aside(
                SetAside(f"KV_{BUCKET}", KEY, entry.revision, "it names no epoch: written over")
            )
        self._revision = entry.revision if entry is not None else 0

    def _put(self) -> Outgoing:
        value = str(self._epoch).encode()
        return bucket.put_message(KEY, value, expected=self._revision)

    async def write(self, puts: Sequence[Outgoing]) -> int:
        """All of it or nothing; the revision of the last put, those before it just below.

        Raises StaleRevision, and Unavailable: then some may be there, but nothing will come any
        more once `take` was done.
        """
        last = await self._bus.atomic([self._put(), *puts])
        self._revision = last - len(puts)
        return last
