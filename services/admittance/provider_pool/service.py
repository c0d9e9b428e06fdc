"""Reads the MachinePools and answers the requests of all provisioning classes that a pool
serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import structlog

from admittance.api.checks import Foreign
from admittance.events.reader import SetAside, Unreadable
from admittance.events.subjects import BUCKET
from admittance.lease import service_domain
from admittance.provider_pool.ledger import STEPS, BookingEnder, Ledger, PooledBooking
from admittance.providers import (
    Accepted,
    BookingExpired,
    Cancellation,
    Failed,
    Provider,
    Provisioned,
    Request,
    Status,
)
from admittance.providers.builtin import provider_of
from admittance.providers.provider import ProviderService
from admittance.provisioning.machine_pool import POOLS, BadPool, Pool, pool_of, pool_of_manifest
from admittance.provisioning.pool_bookings import Booking, Bookings, Pods
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, follow_bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import Superseded
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import set_within, task_group
from admittance.runtime.telemetry.logger import log_set_aside
from admittance.runtime.telemetry.object_faults import faults
from admittance.workload.bucket_reader import read_manifest

SERVICE: Final = STEPS.service
TICK_SECONDS: Final = 1.0

log = structlog.get_logger()


class PoolReconciler:
    """Runs one provider for each provisioning class that pools serve, and keeps the bookings."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self._bus = bus
        self._settings = settings
        self._ledger = Ledger(bus)
        self._providers: dict[str, Provider] = {}
        self._ender = BookingEnder(bus, self._ledger, self._providers)
        self._stop = asyncio.Event()
        self._loaded = asyncio.Event()
        self._changed = asyncio.Event()
        """The event that is set when pools have changed, because a changed pool may serve a
        provisioning class that has no provider yet."""
        self.ready = False

    @property
    def pools(self) -> dict[str, Bookings]:
        """The bookings of each pool, by the pool's name."""
        return self._ledger.pools

    async def run(self) -> None:
        """Reads pools and serves requests until cancelled. Raises the error of the first task that
        fails, and Superseded if another instance has become leader."""
        await self._ledger.restore()
        async with task_group() as tasks:
            tasks.create_task(self._watch(), name="pools")
            tasks.create_task(self._expire(), name="expiry")
            tasks.create_task(self._serve(tasks), name="classes")
            tasks.create_task(self._watch_successor(), name="successor")

    async def _watch_successor(self) -> None:
        # Superseded is raised even if the newer leader has ended: this instance must then start
        # again and read the bookings that the newer leader made.
        await self._ledger.superseded.wait()
        raise Superseded("another instance of provider-pool has taken over")

    async def close(self) -> None:
        """Stops all work of this instance; the bookings stay in the bucket."""
        self.ready = False
        self._stop.set()
        self._changed.set()
        await self._ender.close()

    # Pools. -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        await follow_bucket(self._bus, (POOLS,), self._apply_batch, self._on_loaded)

    def _apply_batch(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._read(entry)
        self._changed.set()

    def _on_loaded(self, _: int) -> None:
        for lost in self._ledger.all_read():
            self._ender.revoke(lost, earlier=True)
        self._loaded.set()
        self.ready = True
        log.info("serving", pools=len(self.pools))

    def _read(self, entry: Entry) -> None:
        name = pool_of_manifest(entry.key)
        if name is None:
            # The service reports a manifest with a wrong key, because some program wrote the
            # manifest without validation.
            if entry.value is not None:
                log.error("bad_pool", key=entry.key, reason="a MachinePool has no namespace")
            return
        try:
            pool = _pool(name, entry)
        except (BadPool, Unreadable) as error:
            self._ledger.keep_unreadable(name)
            log_set_aside(SetAside(f"KV_{BUCKET}", entry.key, entry.revision, str(error)))
            return
        try:
            losses = list(self._ledger.change_pool(name, pool))
        except Exception as error:
            faults.record(SERVICE, "change a pool", f"machine pool {name}", error)
            self._ledger.keep_unreadable(name)
            return
        for lost in losses:
            self._ender.revoke(lost, earlier=not self._loaded.is_set())

    # Bookings. ----------------------------------------------------------------------------

    async def obtain(self, request: Request) -> Status:
        """Books machines for the request in the first pool of its provisioning class that has room,
        and waits until the machines are ready.
        """
        await self._loaded.wait()
        await self._ender.ended(request.id)
        pooled = await self._ledger.confirmed(request.id)
        if pooled is None:
            wanted = [
                Pods(pod_set.count, pod_set.requests, pod_set.node_selector)
                for pod_set in request.pod_sets
            ]
            outcome = await self._ledger.book(request, wanted, clock.now())
            if isinstance(outcome, list):
                ever = any(refusal.ever for refusal in outcome)
                message = (
                    "; ".join(refusal.message for refusal in outcome) or "no pool has this class"
                )
                return Failed(message, retryable=ever or not outcome)
            pooled = outcome
        wait = (pooled.booking.ready_at - clock.now()).total_seconds()
        if wait > 0:
            with self._ender.waiting(request.id) as revoked:
                await request.say(
                    Accepted(f"booting, ready at {pooled.booking.ready_at:%H:%M:%SZ}")
                )
                if await set_within(revoked, wait):
                    return Failed(f"machines of pool {pooled.pool} were taken away")
        return _provisioned(pooled)

    async def free(self, cancellation: Cancellation) -> None:
        """Frees the booking of the request."""
        await self._loaded.wait()
        pool = await self._ledger.free(cancellation.id)
        if pool is not None:
            log.info("freed", pool=pool, id=cancellation.id, reason=cancellation.reason)

    async def _expire(self) -> None:
        await self._loaded.wait()
        while True:
            now = clock.now()
            for pooled in [
                booked for booked in self._ledger.all() if _is_expired(booked.booking, now)
            ]:
                self._ledger.release(pooled)
                message = f"the booking expired after {_seconds(pooled.booking):g} s"
                self._ender.end(pooled, BookingExpired(message))
            await asyncio.sleep(self._pause(now))

    def _pause(self, now: datetime) -> float:
        ends = (pooled.booking.expires_at for pooled in self._ledger.all())
        soonest = min((end for end in ends if end is not None), default=None)
        if soonest is None:
            return TICK_SECONDS
        return min(TICK_SECONDS, max(0.02, (soonest - now).total_seconds()))

    # Classes. -----------------------------------------------------------------------------

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        await self._loaded.wait()
        while True:
            classes = self._ledger.classes() | self._ender.classes()
            for name in sorted(classes - self._providers.keys()):
                provider = self._providers[name] = provider_of(STEPS, name, self.obtain, self.free)
                service = ProviderService(provider, self._bus, self._settings)
                tasks.create_task(service.run(self._stop), name=name)
            self._changed.clear()
            await self._changed.wait()
            if self._stop.is_set():
                return


def _pool(name: str, entry: Entry) -> Pool | None:
    if entry.value is None:
        return None
    manifest = read_manifest(entry.key, entry.value)
    return pool_of(name, manifest.parameters if isinstance(manifest, Foreign) else None)


def _provisioned(pooled: PooledBooking) -> Provisioned:
    held = pooled.booking.held
    machines = ",".join(f"{machine.kind}-{machine.number}" for machine in held[:20])
    kinds = ",".join(sorted({machine.kind for machine in held}))
    details = {"pool": pooled.pool, "machine": kinds, "machines": machines}
    return Provisioned(f"booked in pool {pooled.pool}: {machines}", details)


def _is_expired(booking: Booking, now: datetime) -> bool:
    return booking.expires_at is not None and booking.expires_at <= now


def _seconds(booking: Booking) -> float:
    """The seconds from the time when the machines were ready until the booking expired."""
    assert booking.expires_at is not None, "the booking has expired"
    return (booking.expires_at - booking.ready_at).total_seconds()


__all__ = ["SERVICE", "run"]


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs the pool provider while this instance leads, until ``stop`` is set."""

    def begin(_: int) -> PoolReconciler:
        return PoolReconciler(bus, settings)

    await LeaderElectedService(bus, settings, SERVICE, service_domain(SERVICE), begin).run(stop)
