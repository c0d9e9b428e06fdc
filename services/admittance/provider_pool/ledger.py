"""All pools and their bookings, in memory and in the bucket of providers, where the next leader
finds them.

A new booking is in memory first, so that its machines are taken, and is reported only after the
bucket has it. A freed booking is deleted from the bucket first; otherwise it would come back after
a crash. Writes are fenced: a stale leader must not book taken machines or free bookings of its
successor."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from admittance.events.codec import encode
from admittance.events.reader import Reader, SetAside, Unreadable, check_times
from admittance.events.subjects import PROVIDERS
from admittance.provider_pool.bookings import Booking, Bookings, NoRoom, Pods
from admittance.provider_pool.manifests import LED, Pool, key_of, pattern_of, pool_of_key
from admittance.providers import BookingExpired, CapacityRevoked, Provider, Request
from admittance.providers.builtin import stored_requests
from admittance.providers.status_store import CANCELLED, StatusStore
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import EXPECTED, FENCE, Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, Fenced, Superseded
from admittance.runtime.telemetry.logger import log_set_aside

log = structlog.get_logger()


class PooledBooking(NamedTuple):
    """A booking with the name of its pool."""

    pool: str
    booking: Booking


_booking = Reader(Booking)


def read_booking(key: str, value: bytes) -> tuple[str, Booking]:
    """The booking at a key of the bucket of providers, and its pool. Raises Unreadable."""
    booking = _booking(value)
    pool = pool_of_key(key)
    if pool is None or key != key_of(pool, booking.id):
        raise Unreadable("no booking has such a key")
    check_times("booking", (booking.ready_at, booking.expires_at))
    check_times("held", (one.ready_at for one in booking.held))
    if any(amount < 0 for one in booking.held for amount in one.amounts.values()):
        raise Unreadable("held: an amount is negative")
    return pool, booking


class Ledger:
    """``pools``: by name, each with its bookings."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.pools: dict[str, Bookings] = {}
        self._apart: dict[str, list[Booking]] = {}
        """Bookings of pools that are not read yet, not readable, or deleted."""
        self._unread: set[str] = set()
        """Pools with an unreadable manifest."""
        self._unkept: set[str] = set()
        """Requests with a booking that may be missing in the bucket."""
        self.lost = asyncio.Event()
        """Set when another instance has taken over: this ledger is stale."""
        self._led = 0
        self._fence: dict[str, str] = {}

    async def confirm(self) -> None:
        """Confirms that this ledger is current. Raises Superseded if another instance has taken
        over; it may have booked or freed machines."""
        found = await bucket.get(self._bus, LED, bucket=PROVIDERS)
        if found is None or found.revision != self._led:
            self.lost.set()
            raise Superseded("another instance of provider-pool has taken over")

    async def restore(self) -> None:
        """Takes over and reads the stored bookings. A booking of a cancelled request is deleted: no
        message would ever free it."""
        led = bucket.put_message(LED, b"", expected=None, bucket=PROVIDERS)
        self._led = await self._bus.publish(led)
        self._fence = {EXPECTED: str(self._led), FENCE: led.subject}
        found: list[PooledBooking] = []
        for entry in await bucket.read_all(self._bus, pattern_of(), bucket=PROVIDERS):
            assert entry.value is not None, "deleted ones are left out"
            try:
                pool, booking = read_booking(entry.key, entry.value)
            except Unreadable as error:
                # Not written by this service.
                log_set_aside(SetAside(f"KV_{PROVIDERS}", entry.key, entry.revision, str(error)))
                continue
            found.append(PooledBooking(pool, booking))
        asked = await stored_requests(
            self._bus, {one.booking.provisioning_class for one in found} - {""}
        )
        for kept in found:
            known = asked.get(kept.booking.id)
            if known is not None and known.status.status == CANCELLED:
                log.warning("left_over", pool=kept.pool, id=kept.booking.id)
                await self.forget(kept)
            else:
                self._apart.setdefault(kept.pool, []).append(kept.booking)

    # Pools. -------------------------------------------------------------------------------

    def becomes(self, name: str, pool: Pool | None) -> list[PooledBooking]:
        """The pool changed to this; None: it was deleted. Returns the bookings that lost their
        machines; they are freed in memory, not yet in the bucket."""
        self._unread.discard(name)
        known = self.pools.pop(name, None)
        if known is None:
            known = Bookings(pool) if pool is not None else None
        if pool is None or known is None:
            apart = self._apart.pop(name, [])
            lost = [*(known.known.values() if known is not None else ()), *apart]
        else:
            self.pools[name] = known
            known.restore(self._apart.pop(name, ()))
            lost = known.becomes(pool)
        return [PooledBooking(name, one) for one in lost]

    def is_unread(self, name: str) -> None:
        """The pool's manifest is not readable. Its bookings stay: a typing error must not stop
        running jobs."""
        if name not in self.pools:
            self._unread.add(name)

    def all_read(self) -> list[PooledBooking]:
        """All existing pools were read. Returns the bookings of deleted pools; they are freed in
        memory, not yet in the bucket."""
        gone = self._apart.keys() - self._unread
        return [PooledBooking(name, one) for name in sorted(gone) for one in self._apart.pop(name)]

    def classes(self) -> set[str]:
        """The provisioning classes of pools and of bookings."""
        apart = {one.provisioning_class for name in self._apart for one in self._apart[name]}
        return {one.pool.provisioning_class for one in self.pools.values()} | apart - {""}

    # Bookings. ----------------------------------------------------------------------------

    def all(self) -> Iterator[PooledBooking]:
        """Every booking."""
        for name, bookings in self.pools.items():
            yield from (PooledBooking(name, one) for one in bookings.known.values())
        for name, apart in self._apart.items():
            yield from (PooledBooking(name, one) for one in apart)

    def of(self, request_id: str) -> PooledBooking | None:
        """The booking of the request."""
        for name, bookings in self.pools.items():
            if request_id in bookings.known:
                return PooledBooking(name, bookings.known[request_id])
        for name, apart in self._apart.items():
            for one in apart:
                if one.id == request_id:
                    return PooledBooking(name, one)
        return None

    async def kept(self, request_id: str) -> PooledBooking | None:
        """The booking of the request, after making sure that the bucket has it."""
        found = self.of(request_id)
        if found is not None and request_id in self._unkept:
            await self._keep(found)
        return found

    async def book(
        self, request: Request, pods: Sequence[Pods], now: datetime
    ) -> PooledBooking | list[NoRoom]:
        """Books the request in the first pool of its class with room; otherwise returns why each
        pool has none."""
        refusals: list[NoRoom] = []
        for name, bookings in self.pools.items():
            if bookings.pool.provisioning_class != request.provisioning_class:
                continue
            outcome = bookings.book(
                request.id, pods, now, namespace=request.namespace, name=request.name
            )
            if isinstance(outcome, Booking):
                await self._keep(PooledBooking(name, outcome))
                return PooledBooking(name, outcome)
            refusals.append(outcome)
        await self.confirm()
        return refusals

    async def free(self, request_id: str) -> str | None:
        """Frees the booking of the request; returns its pool."""
        found = self.of(request_id)
        if found is None:
            await self.confirm()
            return None
        await self.forget(found)
        self.release(found)
        return found.pool

    def release(self, kept: PooledBooking) -> None:
        """Frees the booking in memory; the bucket still has it."""
        self._unkept.discard(kept.booking.id)
        if kept.pool in self.pools:
            self.pools[kept.pool].free(kept.booking.id)
        apart = self._apart.pop(kept.pool, [])
        left = [one for one in apart if one.id != kept.booking.id]
        if left:
            self._apart[kept.pool] = left

    async def forget(self, kept: PooledBooking) -> None:
        """Deletes the booking from the bucket."""
        key = key_of(kept.pool, kept.booking.id)
        gone = bucket.delete_message(
            key, expected=None, headers=self._fence, ttl_seconds=60.0, bucket=PROVIDERS
        )
        await self._write(gone)

    async def _keep(self, kept: PooledBooking) -> None:
        key = key_of(kept.pool, kept.booking.id)
        put = bucket.put_message(
            key, encode(kept.booking), expected=None, headers=self._fence, bucket=PROVIDERS
        )
        self._unkept.add(kept.booking.id)
        await self._write(put)
        self._unkept.discard(kept.booking.id)

    async def _write(self, message: Outgoing) -> None:
        try:
            await self._bus.publish(message)
        except Fenced:
            self.lost.set()
            raise


AGAIN_SECONDS: Final = 0.2


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
