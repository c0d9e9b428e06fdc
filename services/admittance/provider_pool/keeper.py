"""The one that leads: reads the pools, keeps their bookings in the bucket of providers, and answers
for every class that a pool is of.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from admittance.api.foreign import Foreign
from admittance.api.manifest import ManifestError, decode_object
from admittance.events.codec import encode
from admittance.events.names import plain, token
from admittance.events.subjects import PROVIDERS
from admittance.provider_pool.booking import Booking, Bookings, NoRoom, Pods
from admittance.provider_pool.manifests import GROUP, KIND, BadPool, Pool, pool_of
from admittance.providers import (
    Accepted,
    BookingExpired,
    Cancellation,
    CapacityRevoked,
    Failed,
    Provider,
    Provisioned,
    Request,
    Status,
)
from admittance.providers.service import Service
from admittance.runtime import bucket, clock
from admittance.runtime.bucket import BucketReader, Entry
from admittance.runtime.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.settings import Settings

SERVICE: Final = "provider-pool"
PATTERN: Final = f"{token(f'{KIND.lower()}.{GROUP}')}.>"
BOOKED: Final = "_pool"
"""First token of the keys of bookings: no class of capacity has it."""
TICK_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 0.2

log = structlog.get_logger()


class Keeper:
    """The pools, their bookings, and one provider for each class."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self._bus = bus
        self._settings = settings
        self.pools: dict[str, Bookings] = {}
        self._kept: dict[str, list[Booking]] = {}
        """Bookings of pools that were not read yet, or are no more."""
        self._providers: dict[str, Provider] = {}
        self._beside: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._loaded = asyncio.Event()
        self._changed = asyncio.Event()
        """Pools came, went, or are of another class."""
        self.ready = False

    async def run(self) -> None:
        """Works until cancelled. Raises what ends one of its parts."""
        await self._restore()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(), name="pools")
                tasks.create_task(self._expire(), name="expiry")
                tasks.create_task(self._serve(tasks), name="classes")
        except* AdmittanceError as group:
            raise group.exceptions[0] from None

    async def close(self) -> None:
        """Ends what was begun; bookings stay."""
        self.ready = False
        self._stop.set()
        self._changed.set()
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    async def _restore(self) -> None:
        for entry in await bucket.read_all(self._bus, f"{BOOKED}.>", bucket=PROVIDERS):
            assert entry.value is not None, "deleted ones are left out"
            pool = plain(entry.key.split(".")[1])
            booking = msgspec.json.decode(entry.value, type=Booking)
            self._kept.setdefault(pool, []).append(booking)

    # Pools. -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        reader = BucketReader(self._bus, (PATTERN,))
        try:
            async for entries in reader.batches():
                for entry in entries:
                    await self._read(entry)
                self._changed.set()
                if reader.loaded.is_set() and not self._loaded.is_set():
                    self._loaded.set()
                    self.ready = True
                    log.info("serving", pools=len(self.pools))
        finally:
            await reader.close()

    async def _read(self, entry: Entry) -> None:
        name = plain(entry.key.rpartition(".")[2])
        try:
            pool = self._pool(name, entry)
        except (BadPool, ManifestError, msgspec.MsgspecError) as error:
            # What is booked stays booked: a slip of the pen must not stop anybody's job.
            log.error("bad_pool", pool=name, reason=str(error))
            return
        known = self.pools.get(name)
        if known is not None:
            empty = Pool(
                name=name,
                provisioning_class=known.pool.provisioning_class,
                booking_seconds=0,
                machines=(),
            )
            served = known.pool.provisioning_class
            lost = known.becomes(pool or empty)
            if pool is None:
                del self.pools[name]
            elif pool.provisioning_class != served:
                lost += [one for id in list(known.known) if (one := known.free(id)) is not None]
            self._revoke(served, name, lost)
        elif pool is not None:
            bookings = self.pools[name] = Bookings(pool)
            bookings.restore(self._kept.pop(name, ()))
            self._revoke(pool.provisioning_class, name, bookings.becomes(pool))

    def _pool(self, name: str, entry: Entry) -> Pool | None:
        if entry.value is None:
            return None
        manifest = decode_object(entry.value).manifest
        return pool_of(name, manifest.parameters if isinstance(manifest, Foreign) else None)

    def _revoke(self, served: str, name: str, lost: list[Booking]) -> None:
        for booking in lost:
            log.warning("revoked", pool=name, id=booking.id)
            said = CapacityRevoked(f"machines of pool {name} were taken away")
            self._start(self._end(served, name, booking.id, said))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _end(self, served: str, name: str, request_id: str, status: Status) -> None:
        """Says that a booking is over, and forgets it then: what crashes in between is said again,
        by whoever finds it kept."""
        while True:
            provider = self._providers.get(served)
            try:
                if provider is not None:
                    await provider.report(request_id, status)
                    await self._forget(name, request_id)
                    return
            except (RuntimeError, AdmittanceError) as error:
                log.debug("not_reported_yet", id=request_id, reason=str(error))
            await asyncio.sleep(AGAIN_SECONDS)

    # Bookings. ----------------------------------------------------------------------------

    def _key(self, pool: str, request_id: str) -> str:
        digest = hashlib.blake2b(request_id.encode(), digest_size=16).hexdigest()
        return f"{BOOKED}.{token(pool)}.{digest}"

    async def _keep(self, pool: str, booking: Booking) -> None:
        key = self._key(pool, booking.id)
        put = bucket.put_message(key, encode(booking), expected=None, bucket=PROVIDERS)
        await self._bus.publish(put)

    async def _forget(self, pool: str, request_id: str) -> None:
        key = self._key(pool, request_id)
        gone = bucket.delete_message(key, expected=None, ttl_seconds=60.0, bucket=PROVIDERS)
        await self._bus.publish(gone)

    def _of(self, request_id: str) -> tuple[str, Bookings] | None:
        for name, bookings in self.pools.items():
            if request_id in bookings.known:
                return name, bookings
        return None

    async def obtain(self, request: Request) -> Status:
        """Books it in the first pool of its class that has room, and waits until it is there."""
        await self._loaded.wait()
        wanted = [Pods(one.count, one.requests, one.node_selector) for one in request.pod_sets]
        found = self._of(request.id)
        refusals: list[NoRoom] = []
        if found is None:
            for name, bookings in self.pools.items():
                if bookings.pool.provisioning_class != request.provisioning_class:
                    continue
                outcome = bookings.book(request.id, wanted, clock.now())
                if isinstance(outcome, NoRoom):
                    refusals.append(outcome)
                    continue
                # In memory first, so that nobody else gets it; and told only when it is kept.
                await self._keep(name, outcome)
                found = name, bookings
                break
        if found is None:
            ever = any(one.ever for one in refusals)
            told = "; ".join(one.message for one in refusals) or "no pool is of this class"
            return Failed(told, retryable=ever or not refusals)
        name, bookings = found
        booking = bookings.known[request.id]
        return await self._until_ready(request, name, booking)

    async def _until_ready(self, request: Request, name: str, booking: Booking) -> Status:
        wait = (booking.ready_at - clock.now()).total_seconds()
        if wait > 0:
            await request.say(Accepted(f"booting, ready at {booking.ready_at:%H:%M:%SZ}"))
            await asyncio.sleep(wait)
            if self._of(request.id) is None:
                return Failed(f"machines of pool {name} were taken away")
        kinds = sorted({held.kind for held in booking.held})
        machines = ",".join(f"{held.kind}-{held.number}" for held in booking.held[:20])
        details = {"pool": name, "machine": ",".join(kinds), "machines": machines}
        return Provisioned(f"booked in pool {name}: {machines}", details)

    async def free(self, cancellation: Cancellation) -> None:
        """Nothing is booked for that request any more."""
        await self._loaded.wait()
        found = self._of(cancellation.id)
        if found is None:
            await self._free_kept(cancellation.id)
            return
        name, bookings = found
        # Forgotten first: what is gone from memory and not from the bucket would come back.
        await self._forget(name, cancellation.id)
        bookings.free(cancellation.id)
        log.info("freed", pool=name, id=cancellation.id, reason=cancellation.reason)

    async def _free_kept(self, request_id: str) -> None:
        """The same of a booking whose pool is no more."""
        for name, kept in self._kept.items():
            if any(one.id == request_id for one in kept):
                await self._forget(name, request_id)
                self._kept[name] = [one for one in kept if one.id != request_id]
                return

    async def _expire(self) -> None:
        await self._loaded.wait()
        while True:
            now = clock.now()
            for name, bookings in list(self.pools.items()):
                for booking in bookings.expired(now):
                    bookings.free(booking.id)
                    said = BookingExpired(f"kept {bookings.pool.booking_seconds:g} s for it")
                    served = bookings.pool.provisioning_class
                    self._start(self._end(served, name, booking.id, said))
            await asyncio.sleep(self._pause(now))

    def _pause(self, now: datetime) -> float:
        ends = [end for one in self.pools.values() if (end := one.next_end()) is not None]
        soonest = min(ends, default=None)
        if soonest is None:
            return TICK_SECONDS
        return min(TICK_SECONDS, max(0.02, (soonest - now).total_seconds()))

    # Classes. -----------------------------------------------------------------------------

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        await self._loaded.wait()
        while True:
            wanted = {one.pool.provisioning_class for one in self.pools.values()}
            for name in sorted(wanted - self._providers.keys()):
                provider = self._providers[name] = Provider(name)
                provider.requested(self.obtain)
                provider.cancelled(self.free)
                service = Service(provider, self._bus, self._settings)
                tasks.create_task(service.run(self._stop), name=name)
            self._changed.clear()
            await self._changed.wait()
            if self._stop.is_set():
                return
