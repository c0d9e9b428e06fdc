"""Works on the capacity requests that a provider receives, and releases the capacity of cancelled
requests.

If a redelivered request has a status already, the same status is published again. The deliveries of
a request are acknowledged when its final status, Provisioned or Failed, is on the log. A request
that waits (it is accepted, or obtaining its capacity is retried later) does not count against the
deliveries that this replica may hold.

When a request is cancelled, the cancellation is stored first. After the cancellation is stored, the
work on the request is cancelled, and the provider's function that frees capacity is called until it
returns without an error. If capacity is obtained for a request after its cancellation was stored,
that capacity is freed too. A replica that receives a cancelled request also frees the request's
capacity, because an earlier replica may have crashed after it obtained capacity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from admittance.backoff import Backoff
from admittance.events.provisioning import (
    ProvisioningCancelled,
    ProvisioningFact,
    ProvisioningRequested,
)
from admittance.providers.answers import Accepted, Failed, Provisioned, Status
from admittance.providers.request import Cancellation, Request
from admittance.providers.status_store import CANCELLED, StatusPublisher, StatusStore, StoredStatus
from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError, BusRefused, StaleRevision, is_temporary
from admittance.runtime.tasks import BackgroundTasks, raise_if_cancelled, until_returned
from admittance.sdk.requests import OpenDeliveries
from admittance.sdk.threads import author_backoff
from admittance.sdk.worker import AGAIN_SECONDS

AWAY_PAUSE_MIN: Final = 0.1
AWAY_PAUSE_MAX: Final = 5.0
OBTAINING_FAILED: Final = "obtaining failed"
"""First words of the status of a request after the provider's function raised an error."""
"""The longest pause, in seconds, between two attempts to read or write a request's status while the
bus is not available.
"""
LOOK_SECONDS: Final = 10.0
"""Seconds between two checks whether another replica has finished a request that this replica
accepted.
"""

log = structlog.get_logger()


def _away_backoff() -> Backoff:
    return Backoff(AWAY_PAUSE_MIN, AWAY_PAUSE_MAX)


class CapacityReleaser:
    """Releases the capacity of cancelled requests.

    ``free``: calls the provider's function that frees capacity. ``requests``, ``cancellations``:
    the open deliveries of capacity requests and of cancellations, which are acknowledged after the
    release. ``stop_work``: ends this replica's work on a cancelled request.
    """

    def __init__(
        self,
        free: Callable[[Cancellation], Awaitable[None]],
        store: StatusStore,
        *,
        requests: OpenDeliveries[str],
        cancellations: OpenDeliveries[str],
        stop_work: Callable[[str], Awaitable[None]],
    ) -> None:
        self._free = free
        self._store = store
        self._requests = requests
        self._cancellations = cancellations
        self._stop_work = stop_work
        self._tasks = BackgroundTasks(self._failed)

    @property
    def running(self) -> list[asyncio.Task[None]]:
        """The tasks that release the capacity of cancelled requests now."""
        return list(self._tasks)

    def on_cancelled(self, fact: ProvisioningCancelled, reply: str) -> None:
        """Starts the release of a cancelled request's capacity, but only once if the cancellation
        is delivered twice.
        """
        if self._cancellations.add(fact.id, reply):
            self._tasks.start(self._cancel(fact), name=fact.id)

    def start_release(self, request: dict[str, Any]) -> None:
        """Starts `release` for a cancelled request as a task."""
        self._tasks.start(self.release(request), name=request["id"])

    async def release(self, request: dict[str, Any]) -> None:
        """Frees the capacity of a cancelled request, then acknowledges the request's deliveries. If
        this replica crashes before the acknowledgement, another replica receives the request and
        frees the capacity.
        """
        await self._free_until_done(Cancellation(**request, reason="the request was cancelled"))
        self._requests.ack(request["id"])

    async def _cancel(self, fact: ProvisioningCancelled) -> None:
        identity = identity_of(fact)
        await self._store_cancellation(identity)
        await self._stop_work(fact.id)
        await self._free_until_done(Cancellation(**identity, reason=fact.reason))
        self._requests.ack(fact.id)
        self._cancellations.ack(fact.id)

    async def _store_cancellation(self, request: dict[str, Any]) -> None:
        """Stores the cancellation of a request; retries for as long as the bus is not available."""

        async def store() -> None:
            try:
                await self._store.cancel(request)
            except BusRefused as error:
                if is_temporary(error):
                    raise
                log.error("cancellation_not_stored", id=request["id"], reason=str(error))

        def failed(error: AdmittanceError, _: float) -> None:
            log.debug("cancellation_not_stored_yet", id=request["id"], reason=str(error))

        await until_returned(store, _away_backoff(), failed, on=AdmittanceError)

    async def _free_until_done(self, cancellation: Cancellation) -> None:
        def failed(error: Exception, pause: float) -> None:
            why = f"{type(error).__name__}: {error}"
            log.exception("capacity_not_freed", id=cancellation.id, reason=why, again_seconds=pause)

        await until_returned(lambda: self._free(cancellation), author_backoff(), failed)

    def _failed(self, task: asyncio.Task[Any], error: BaseException) -> None:
        # The exception is a bug in this class. The NATS server does not redeliver the cancellation
        # while this process keeps its delivery open, so the delivery is refused.
        log.error("freeing_failed", id=task.get_name(), exc_info=error)
        self._cancellations.nak(task.get_name(), AGAIN_SECONDS)


class RequestWorker:
    """Works on the capacity requests of one replica, ``concurrency`` at a time.

    ``obtain``: calls the provider's function that obtains capacity. ``deliveries``: the open
    deliveries of capacity requests.
    """

    def __init__(
        self,
        obtain: Callable[[Request], Awaitable[Status]],
        store: StatusStore,
        publisher: StatusPublisher,
        releaser: CapacityReleaser,
        deliveries: OpenDeliveries[str],
        *,
        concurrency: int,
    ) -> None:
        self._obtain = obtain
        self._store = store
        self._publisher = publisher
        self._releaser = releaser
        self._deliveries = deliveries
        self._slots = asyncio.Semaphore(concurrency)
        self._tasks = BackgroundTasks(self._failed)

    @property
    def running(self) -> list[asyncio.Task[None]]:
        """The tasks that work on requests now."""
        return list(self._tasks)

    def knows(self, request_id: str) -> bool:
        """Whether this replica works on the request, or holds its delivery open while the request
        waits.
        """
        return request_id in self._tasks or request_id in self._deliveries

    def on_requested(self, fact: ProvisioningRequested, reply: str) -> None:
        """Starts work on a request, unless the work is already in progress."""
        self._deliveries.add(fact.id, reply)
        if fact.id in self._tasks:
            return
        self._tasks.start(self._work(fact), name=fact.id, key=fact.id)

    async def stop(self, request_id: str) -> None:
        """Cancels this replica's work on a request and waits until that work has ended."""
        task = self._tasks.get(request_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def report(self, request_id: str, status: Status) -> bool:
        """Publishes a new status of an earlier request. Returns False if the request was cancelled
        or is unknown.
        """
        stored = (await self._store.get(request_id)).status
        if stored is None:
            return False
        since = self._deliveries.since(request_id)
        counts = await self._publisher.publish(identity_of(stored), status, since=since)
        if counts and status.ends:
            self._deliveries.ack(request_id)
        elif not counts and isinstance(status, Provisioned):
            self._releaser.start_release(identity_of(stored))
        return counts

    async def watch_accepted(self) -> None:
        """Acknowledges, every `LOOK_SECONDS` until cancelled, the requests that this replica
        accepted and another replica has finished.
        """
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for request_id in [
                identity for identity in self._deliveries if identity not in self._tasks
            ]:
                try:
                    stored = (await self._store.get(request_id)).status
                except AdmittanceError:
                    break
                if stored is not None and stored.status not in ("", "accepted", CANCELLED):
                    self._deliveries.ack(request_id)

    def _failed(self, task: asyncio.Task[Any], error: BaseException) -> None:
        # The exception is a bug: the NATS server must redeliver the request, perhaps to another
        # replica.
        log.error("request_not_handled", id=task.get_name(), exc_info=error)
        self._deliveries.nak(task.get_name(), AGAIN_SECONDS)

    # Step by step. ------------------------------------------------------------------------

    async def _work(self, fact: ProvisioningRequested) -> None:
        stored = await self._stored(fact)
        if stored is not None and stored.status == CANCELLED:
            await self._releaser.release(identity_of(fact))
            return
        if stored is not None and stored.status not in ("", "accepted"):
            await self._publisher.repeat(stored)
            self._deliveries.ack(fact.id)
            return

        async def say(status: Status) -> bool:
            return await self._publish(fact, status)

        last = stored.status or None if stored is not None and not stored.by_helper else None
        request = Request(fact, say, last=last, loop=asyncio.get_running_loop())
        answer = await self._call_obtain(fact, request)
        if await self._publish(fact, answer) and not answer.ends:
            self._deliveries.let_wait(fact.id)

    async def _stored(self, fact: ProvisioningRequested) -> StoredStatus | None:
        """The stored status of a request; None if the request is new. Repeats the read of the
        status for as long as the bus is not available.

        A new request is stored before the work on it starts. Without a stored request another
        replica would answer a query about the request with "unknown", and the provisioning check
        would send the request a second time.
        """
        backoff = _away_backoff()
        while True:
            raise_if_cancelled()
            try:
                stored = await self._store.get(fact.id)
                if stored.status is not None:
                    return stored.status
                await self._store.put(StoredStatus(**identity_of(fact)), stored.revision)
                return None
            except StaleRevision:
                continue
            except AdmittanceError as error:
                log.warning("store_unavailable", id=fact.id, reason=str(error))
                await asyncio.sleep(backoff.next())

    async def _call_obtain(self, fact: ProvisioningRequested, request: Request) -> Status:
        """Calls the provider's function that obtains capacity and returns its status. If the
        function raises, publishes a status that says so, and calls the function again after a
        pause.
        """
        backoff = author_backoff()
        while True:
            raise_if_cancelled()
            async with self._slots:
                if fact.deadline is not None and fact.deadline <= clock.now():
                    return Failed("the request could not be started before its deadline")
                try:
                    return await self._obtain(request)
                except Exception as error:
                    pause = backoff.next()
                    why = f"{type(error).__name__}: {error}"
                    log.exception(
                        "capacity_not_obtained", id=fact.id, reason=why, again_seconds=pause
                    )
                    kind = type(error).__name__
            self._deliveries.let_wait(fact.id)
            # The published status shows only the type of the exception, because the exception's
            # text may be confidential.
            trouble = f"{OBTAINING_FAILED} ({kind}), again in {pause:g} s"
            if not await self._publish_trouble(fact, trouble):
                return Failed(trouble)
            await asyncio.sleep(pause)

    async def _publish_trouble(self, fact: ProvisioningRequested, trouble: str) -> bool:
        """Publishes a status that says why the capacity could not be obtained; the SDK gives this
        status, not the provider. Returns False if the request was cancelled or has a final status.
        """
        try:
            return await self._publisher.publish(
                identity_of(fact), Accepted(trouble), by_helper=True
            )
        except AdmittanceError as error:
            log.warning("trouble_not_reported", id=fact.id, reason=str(error))
            return True

    async def _publish(self, fact: ProvisioningRequested, status: Status) -> bool:
        """Publishes a status of the request, and acknowledges the request if the status is final.
        If the request was cancelled, releases the request's capacity.
        """
        since = self._deliveries.since(fact.id)
        counts = await self._publisher.publish(identity_of(fact), status, since=since)
        raise_if_cancelled()
        if not counts:
            self._releaser.start_release(identity_of(fact))
        elif status.ends:
            self._deliveries.ack(fact.id)
        return counts


def identity_of(fact: ProvisioningFact | StoredStatus) -> dict[str, Any]:
    """Returns the fields of `StoredStatus` that name a capacity request and its workload."""
    return {"id": fact.id, "namespace": fact.namespace, "name": fact.name, "uid": fact.uid}
