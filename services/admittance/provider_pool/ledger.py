"""All pools of machines and their bookings, in memory and in the bucket of providers, where the
next leader finds the bookings.

A new booking takes its machines in memory first; the provider reports the booking after the bucket
has it. A booking that is freed is deleted from the bucket first, so that it cannot come back after
a crash. Writes are fenced, so a stale leader cannot book machines that the new leader has booked,
or free the new leader's bookings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

import structlog

from admittance.events.codec import encode
from admittance.events.reader import SetAside, Unreadable
from admittance.events.subjects import PROVIDERS
from admittance.providers import BookingExpired, CapacityRevoked, Provider, Request
from admittance.providers.builtin import ObjectSteps, OrphanSweep
from admittance.providers.status_store import StatusStore
from admittance.provisioning.machine_pool import LEADER, Pool, key_of, pattern_of
from admittance.provisioning.pool_bookings import Booking, Bookings, NoRoom, Pods, read_booking
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import EXPECTED, FENCE, Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, Fenced, Superseded
from admittance.runtime.tasks import BackgroundTasks
from admittance.runtime.telemetry.logger import log_set_aside

STEPS: Final = ObjectSteps("provider-pool")

log = structlog.get_logger()


class PooledBooking(NamedTuple):
    """A booking together with the name of its pool."""

    pool: str
    booking: Booking


class Ledger:
    """All pools of machines with their bookings. ``pools``: the bookings of each pool, by the
    pool's name."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.pools: dict[str, Bookings] = {}
        self._without_pool: dict[str, list[Booking]] = {}
        """By pool name: the bookings of each pool with a manifest that is not read yet, not
        readable, or deleted."""
        self._unreadable: set[str] = set()
        """The names of pools with an unreadable manifest."""
        self._unconfirmed: set[str] = set()
        """Ids of requests with a booking that may not be stored in the bucket yet."""
        self.superseded = asyncio.Event()
        """The event that is set when another instance has become leader, so that this ledger is
        stale."""
        self._revision = 0
        self._fence: dict[str, str] = {}

    async def confirm(self) -> None:
        """Raises Superseded if another instance has become leader: it may have booked or freed
        machines."""
        leader = await bucket.get(self._bus, LEADER, bucket=PROVIDERS)
        if leader is None or leader.revision != self._revision:
            self.superseded.set()
            raise Superseded("another instance of provider-pool has taken over")

    async def restore(self) -> None:
        """Makes this instance the only writer of bookings, and reads the stored bookings. Stored
        bookings of cancelled requests are deleted, because no later message would free them.
        """
        led = bucket.put_message(LEADER, b"", expected=None, bucket=PROVIDERS)
        self._revision = await self._bus.publish(led)
        self._fence = {EXPECTED: str(self._revision), FENCE: led.subject}
        bookings: list[PooledBooking] = []
        for entry in await bucket.read_all(self._bus, pattern_of(), bucket=PROVIDERS):
            assert entry.value is not None, "deleted entries are not read"
            try:
                pool, booking = read_booking(entry.key, entry.value)
            except Unreadable as error:
                # Another program wrote this entry of the bucket, so the entry is not a booking.
                log_set_aside(SetAside(f"KV_{PROVIDERS}", entry.key, entry.revision, str(error)))
                continue
            bookings.append(PooledBooking(pool, booking))
        classes = {pooled.booking.provisioning_class for pooled in bookings} - {""}
        orphans = OrphanSweep(self._bus, STEPS, classes, only_cancelled=True)
        stored = await orphans.sweep(
            [(booking.booking.id, partial(self._delete_orphan, booking)) for booking in bookings]
        )
        for pooled in bookings:
            request = stored.get(pooled.booking.id)
            status = request.status if request is not None else None
            if not orphans.is_orphan(pooled.booking.id, status):
                self._without_pool.setdefault(pooled.pool, []).append(pooled.booking)

    async def _delete_orphan(self, pooled: PooledBooking) -> None:
        log.warning("left_over", pool=pooled.pool, id=pooled.booking.id)
        await self.delete(pooled)

    # Pools. -------------------------------------------------------------------------------

    def change_pool(self, name: str, pool: Pool | None) -> list[PooledBooking]:
        """Applies the new state ``pool`` of a pool; None if the pool was deleted. Returns the
        bookings that lost machines, which are freed in memory, but not in the bucket.
        """
        self._unreadable.discard(name)
        known = self.pools.pop(name, None)
        if known is None:
            known = Bookings(pool) if pool is not None else None
        if pool is None or known is None:
            waiting = self._without_pool.pop(name, [])
            lost = [*(known.known.values() if known is not None else ()), *waiting]
        else:
            self.pools[name] = known
            known.restore(self._without_pool.pop(name, ()))
            lost = known.change(pool)
        return [PooledBooking(name, booking) for booking in lost]

    def keep_unreadable(self, name: str) -> None:
        """Keeps the bookings of a pool with an unreadable manifest: a typing error must not stop
        running jobs."""
        if name not in self.pools:
            self._unreadable.add(name)

    def all_read(self) -> list[PooledBooking]:
        """Records that all existing pools were read. Returns the bookings of deleted pools, which
        are freed in memory, but not in the bucket.
        """
        gone = self._without_pool.keys() - self._unreadable
        return [
            PooledBooking(name, booking)
            for name in sorted(gone)
            for booking in self._without_pool.pop(name)
        ]

    def classes(self) -> set[str]:
        """The provisioning classes of all pools and all bookings."""
        booked = {
            booking.provisioning_class
            for name in self._without_pool
            for booking in self._without_pool[name]
        }
        return {known.pool.provisioning_class for known in self.pools.values()} | booked - {""}

    # Bookings. ----------------------------------------------------------------------------

    def all(self) -> Iterator[PooledBooking]:
        """All bookings of all pools, also of deleted pools."""
        for name, bookings in self.pools.items():
            yield from (PooledBooking(name, booking) for booking in bookings.known.values())
        for name, waiting in self._without_pool.items():
            yield from (PooledBooking(name, booking) for booking in waiting)

    def of(self, request_id: str) -> PooledBooking | None:
        """The booking of the request; None if the request has no booking."""
        for name, bookings in self.pools.items():
            if request_id in bookings.known:
                return PooledBooking(name, bookings.known[request_id])
        for name, waiting in self._without_pool.items():
            for booking in waiting:
                if booking.id == request_id:
                    return PooledBooking(name, booking)
        return None

    async def confirmed(self, request_id: str) -> PooledBooking | None:
        """Returns the booking of the request once the booking is stored in the bucket; None: the
        request has no booking."""
        pooled = self.of(request_id)
        if pooled is not None and request_id in self._unconfirmed:
            await self._store(pooled)
        return pooled

    async def book(
        self, request: Request, pods: Sequence[Pods], now: datetime
    ) -> PooledBooking | list[NoRoom]:
        """Books the request in the first pool of its provisioning class that has room. If no pool
        has room, returns the reason for each pool.
        """
        refusals: list[NoRoom] = []
        for name, bookings in self.pools.items():
            if bookings.pool.provisioning_class != request.provisioning_class:
                continue
            outcome = bookings.book(
                request.id, pods, now, namespace=request.namespace, name=request.name
            )
            if isinstance(outcome, Booking):
                await self._store(PooledBooking(name, outcome))
                return PooledBooking(name, outcome)
            refusals.append(outcome)
        await self.confirm()
        return refusals

    async def free(self, request_id: str) -> str | None:
        """Frees the booking of the request. Returns the name of the booking's pool; None if there
        was no booking.
        """
        pooled = self.of(request_id)
        if pooled is None:
            await self.confirm()
            return None
        await self.delete(pooled)
        self.release(pooled)
        return pooled.pool

    def release(self, pooled: PooledBooking) -> None:
        """Frees the booking in memory only. The bucket of providers still has the booking."""
        self._unconfirmed.discard(pooled.booking.id)
        if pooled.pool in self.pools:
            self.pools[pooled.pool].free(pooled.booking.id)
        waiting = self._without_pool.pop(pooled.pool, [])
        left = [booking for booking in waiting if booking.id != pooled.booking.id]
        if left:
            self._without_pool[pooled.pool] = left

    async def delete(self, pooled: PooledBooking) -> None:
        """Deletes the booking from the bucket."""
        key = key_of(pooled.pool, pooled.booking.id)
        gone = bucket.delete_message(
            key, expected=None, headers=self._fence, ttl_seconds=60.0, bucket=PROVIDERS
        )
        await self._write(gone)

    async def _store(self, pooled: PooledBooking) -> None:
        key = key_of(pooled.pool, pooled.booking.id)
        put = bucket.put_message(
            key, encode(pooled.booking), expected=None, headers=self._fence, bucket=PROVIDERS
        )
        self._unconfirmed.add(pooled.booking.id)
        await self._write(put)
        self._unconfirmed.discard(pooled.booking.id)

    async def _write(self, message: Outgoing) -> None:
        try:
            await self._bus.publish(message)
        except Fenced:
            self.superseded.set()
            raise


AGAIN_SECONDS: Final = 0.2


class BookingEnder:
    """Ends bookings: reports the end of a booking to the workload, then deletes the booking from
    the bucket. After a crash between report and deletion, the next leader finds the booking and
    reports its end again.

    ``providers``: the providers by provisioning class; a provider publishes reports once it runs.
    """

    def __init__(self, bus: Bus, ledger: Ledger, providers: Mapping[str, Provider]) -> None:
        self._bus = bus
        self._ledger = ledger
        self._providers = providers
        self._ending: dict[str, PooledBooking] = {}
        self._tasks = BackgroundTasks()
        self._waiting: dict[str, asyncio.Event] = {}

    async def close(self) -> None:
        """Stops all work of ending bookings."""
        await self._tasks.end()

    def classes(self) -> set[str]:
        """The provisioning classes of the bookings that are being ended."""
        return {pooled.booking.provisioning_class for pooled in self._ending.values()} - {""}

    async def ended(self, request_id: str) -> None:
        """If the end of the request's booking is under way, waits until it is complete."""
        if (task := self._tasks.get(request_id)) is not None:
            await asyncio.wait([task])

    @contextmanager
    def waiting(self, request_id: str) -> Iterator[asyncio.Event]:
        """Yields an event that is set when the machines for which the request waits are revoked.
        Then the work on the request, which waits for the machines, reports the revocation itself.
        """
        revoked = self._waiting[request_id] = asyncio.Event()
        try:
            yield revoked
        finally:
            del self._waiting[request_id]

    def revoke(self, pooled: PooledBooking, *, earlier: bool) -> None:
        """Ends a booking after its machines were removed from the pool. ``earlier``: whether the
        machines were removed while no leader was active; then the end is reported only if the
        request was provisioned. A request without a final answer gets other machines when it is
        delivered again.
        """
        log.warning("revoked", pool=pooled.pool, id=pooled.booking.id)
        waiting = self._waiting.get(pooled.booking.id)
        if waiting is not None:
            waiting.set()
            self._begin(pooled, None)
            return
        status = CapacityRevoked(f"machines of pool {pooled.pool} were taken away")
        self._begin(pooled, status, only_provisioned=earlier)

    def end(self, pooled: PooledBooking, status: BookingExpired) -> None:
        """Ends a booking that has expired; reports the status ``status`` to its workload."""
        self._begin(pooled, status)

    def _begin(
        self,
        pooled: PooledBooking,
        status: BookingExpired | CapacityRevoked | None,
        *,
        only_provisioned: bool = False,
    ) -> None:
        request_id = pooled.booking.id
        if request_id in self._ending:
            return
        work = self._end(pooled, status, only_provisioned=only_provisioned)
        self._ending[request_id] = pooled
        task = self._tasks.start(work, name=f"end booking {request_id}", key=request_id)
        task.add_done_callback(lambda _: self._ending.pop(request_id, None))

    async def _end(
        self,
        pooled: PooledBooking,
        status: BookingExpired | CapacityRevoked | None,
        *,
        only_provisioned: bool,
    ) -> None:
        booking = pooled.booking
        while True:
            try:
                await self._ledger.confirm()
                if only_provisioned and not await self._is_provisioned(pooled):
                    status = None
                # A booking made by an old version has no provisioning class, so no provider can
                # report its end.
                if status is not None and booking.provisioning_class:
                    await self._providers[booking.provisioning_class].report(booking.id, status)
                await self._ledger.delete(pooled)
                return
            except (KeyError, RuntimeError, AdmittanceError) as error:
                # The provider of the booking's class has not started yet, or the bus is not
                # available: the report is repeated.
                log.debug("not_reported_yet", id=booking.id, reason=str(error))
            await asyncio.sleep(AGAIN_SECONDS)

    async def _is_provisioned(self, pooled: PooledBooking) -> bool:
        store = StatusStore(self._bus, pooled.booking.provisioning_class)
        status = (await store.get(pooled.booking.id, from_leader=True)).status
        return status is not None and status.status == "provisioned"
