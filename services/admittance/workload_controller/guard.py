"""Ensures that only the current leader writes manifests, and that it knows which writes were
stored.

A decision is judged by the queues that are in the bucket before it. So no manifest may be stored
without the leader's knowledge: neither a late write of a previous leader, nor a write of its own
that it gave up. Every write of manifests is therefore one atomic batch with a guard key that
expects the guard's last revision. Moving the guard, at takeover or when giving up a write, makes
every earlier write fail.
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
    """The guard of one leader. ``epoch``: its lease epoch, which is the guard's value."""

    def __init__(self, bus: Bus, epoch: int) -> None:
        self._bus = bus
        self._epoch = epoch
        self._revision: int | None = None

    async def take(self) -> None:
        """Moves the guard, so that no earlier write can be stored any more. Raises Superseded."""
        while True:
            try:
                self._revision = await self._bus.publish(self._put())
                return
            except StaleRevision:
                pass
            except Unavailable:
                # Without the guard an earlier write could still be stored.
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            with suppress(Unavailable, Refused):
                await self._look()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _look(self) -> None:
        entry = await bucket.get(self._bus, KEY)
        value = entry.value if entry is not None else None
        # An epoch is a log sequence, so a greater one than the log's end is invalid.
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
        """Writes all puts or none. Returns the revision of the last put; the others precede it
        without gaps.

        Raises StaleRevision, or Unavailable: then the puts may be stored, but not after a later
        `take`.
        """
        last = await self._bus.atomic([self._put(), *puts])
        self._revision = last - len(puts)
        return last
