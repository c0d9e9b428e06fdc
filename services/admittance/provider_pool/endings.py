"""Bookings that are over: told to whoever has one, and only then forgotten by the bucket, so that
what crashes in between is told by whoever finds it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import structlog

from admittance.provider_pool.ledger import Ledger, PooledBooking
from admittance.providers import BookingExpired, CapacityRevoked, Provider
from admittance.providers.status_store import StatusStore
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError

AGAIN_SECONDS: Final = 0.2

log = structlog.get_logger()


class Endings:
    """``providers``: by class; those that say it, from when they run."""

    def __init__(self, bus: Bus, ledger: Ledger, providers: Mapping[str, Provider]) -> None:
        self._bus = bus
        self._ledger = ledger
        self._providers = providers
        self._under_way: dict[str, tuple[PooledBooking, asyncio.Task[None]]] = {}
        self._watched: dict[str, asyncio.Event] = {}

    async def close(self) -> None:
        """Ends what was begun."""
        tasks = [task for _, task in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def classes(self) -> set[str]:
        """Of which something is to be said."""
        return {kept.booking.provisioning_class for kept, _ in self._under_way.values()} - {""}

    async def ended(self, request_id: str) -> None:
        """Waits until what was booked for the request before, and is over, is forgotten."""
        if request_id in self._under_way:
            await asyncio.wait([self._under_way[request_id][1]])

    @contextmanager
    def watched(self, request_id: str) -> Iterator[asyncio.Event]:
        """While somebody waits for its machines: set when they are taken away. Nothing else is said
        then, for whoever waits says it."""
        gone = self._watched[request_id] = asyncio.Event()
        try:
            yield gone
        finally:
            del self._watched[request_id]

    def revoke(self, kept: PooledBooking, *, earlier: bool) -> None:
        """Its machines were taken away. ``earlier``: while nobody kept the pools; who had not been
        told of machines then is booked others when its request comes again."""
        log.warning("revoked", pool=kept.pool, id=kept.booking.id)
        waiting = self._watched.get(kept.booking.id)
        if waiting is not None:
            waiting.set()
            self._begin(kept, None)
            return
        said = CapacityRevoked(f"machines of pool {kept.pool} were taken away")
        self._begin(kept, said, only_provisioned=earlier)

    def end(self, kept: PooledBooking, status: BookingExpired) -> None:
        """It is over by itself."""
        self._begin(kept, status)

    def _begin(
        self,
        kept: PooledBooking,
        status: BookingExpired | CapacityRevoked | None,
        *,
        only_provisioned: bool = False,
    ) -> None:
        request_id = kept.booking.id
        if request_id in self._under_way:
            return
        work = self._end(kept, status, only_provisioned=only_provisioned)
        task = asyncio.create_task(work)
        self._under_way[request_id] = kept, task
        task.add_done_callback(lambda _: self._under_way.pop(request_id, None))

    async def _end(
        self,
        kept: PooledBooking,
        status: BookingExpired | CapacityRevoked | None,
        *,
        only_provisioned: bool,
    ) -> None:
        booking = kept.booking
        while True:
            try:
                await self._ledger.confirm()
                if only_provisioned and not await self._is_provisioned(kept):
                    status = None
                # What was booked before bookings had a class is nobody's to tell of.
                if status is not None and booking.provisioning_class:
                    await self._providers[booking.provisioning_class].report(booking.id, status)
                await self._ledger.forget(kept)
                return
            except (KeyError, RuntimeError, AdmittanceError) as error:
                # Its provider does not run yet, or the bus is away.
                log.debug("not_reported_yet", id=booking.id, reason=str(error))
            await asyncio.sleep(AGAIN_SECONDS)

    async def _is_provisioned(self, kept: PooledBooking) -> bool:
        store = StatusStore(self._bus, kept.booking.provisioning_class)
        said = (await store.get(kept.booking.id)).status
        return said is not None and said.status == "provisioned"
