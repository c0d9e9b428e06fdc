"""Ends bookings: reports the end to the workload, then deletes the booking from the bucket. After a
crash in between, the next leader finds the booking and reports again."""

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
    """``providers``: by class; they publish the reports as soon as they run."""

    def __init__(self, bus: Bus, ledger: Ledger, providers: Mapping[str, Provider]) -> None:
        self._bus = bus
        self._ledger = ledger
        self._providers = providers
        self._under_way: dict[str, tuple[PooledBooking, asyncio.Task[None]]] = {}
        self._watched: dict[str, asyncio.Event] = {}

    async def close(self) -> None:
        """Stops all work."""
        tasks = [task for _, task in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def classes(self) -> set[str]:
        """The classes with reports to publish."""
        return {kept.booking.provisioning_class for kept, _ in self._under_way.values()} - {""}

    async def ended(self, request_id: str) -> None:
        """Waits until an ended booking of the request is deleted."""
        if request_id in self._under_way:
            await asyncio.wait([self._under_way[request_id][1]])

    @contextmanager
    def watched(self, request_id: str) -> Iterator[asyncio.Event]:
        """An event for a request that waits for its machines; it is set when they are revoked. The
        waiting request reports that itself."""
        gone = self._watched[request_id] = asyncio.Event()
        try:
            yield gone
        finally:
            del self._watched[request_id]

    def revoke(self, kept: PooledBooking, *, earlier: bool) -> None:
        """The booking's machines were removed. ``earlier``: while no leader was active; a request
        that had not been answered then gets other machines when it is delivered again."""
        log.warning("revoked", pool=kept.pool, id=kept.booking.id)
        waiting = self._watched.get(kept.booking.id)
        if waiting is not None:
            waiting.set()
            self._begin(kept, None)
            return
        said = CapacityRevoked(f"machines of pool {kept.pool} were taken away")
        self._begin(kept, said, only_provisioned=earlier)

    def end(self, kept: PooledBooking, status: BookingExpired) -> None:
        """The booking has expired."""
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
                # Bookings of old versions have no class, so no provider can report them.
                if status is not None and booking.provisioning_class:
                    await self._providers[booking.provisioning_class].report(booking.id, status)
                await self._ledger.forget(kept)
                return
            except (KeyError, RuntimeError, AdmittanceError) as error:
                # The provider does not run yet, or the bus is unavailable.
                log.debug("not_reported_yet", id=booking.id, reason=str(error))
            await asyncio.sleep(AGAIN_SECONDS)

    async def _is_provisioned(self, kept: PooledBooking) -> bool:
        store = StatusStore(self._bus, kept.booking.provisioning_class)
        said = (await store.get(kept.booking.id)).status
        return said is not None and said.status == "provisioned"
