"""Compares the engine's worker containers with the requests: reports lost workers and removes
orphans.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from admittance.provider_docker.engine import (
    STEPS,
    DockerSettings,
    Engine,
    EngineDenied,
    EngineUnavailable,
)
from admittance.provider_docker.workers import (
    HOST_DETAIL,
    ListedWorker,
    lost_message,
    missing_containers,
)
from admittance.providers import CapacityRevoked, Provider
from admittance.providers.builtin import OrphanSweep, OtherInstallations, stored_requests
from admittance.providers.health import InactiveReasons
from admittance.providers.status_store import StoredStatus
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.tasks import set_within
from admittance.runtime.telemetry.object_faults import faults


class EventListener(threading.Thread):
    """Reads the engine's events in a thread. Calls ``on_event`` in the event loop for each event;
    the future ``ended`` gets the reason when the stream of events ends.

    A blocked read cannot be cancelled, so the thread is a daemon and is never joined."""

    def __init__(
        self,
        engine: Engine,
        installation: str,
        loop: asyncio.AbstractEventLoop,
        on_event: Callable[[], None],
        ended: asyncio.Future[str],
    ) -> None:
        super().__init__(name="engine events", daemon=True)
        self._engine = engine
        self._installation = installation
        self._loop = loop
        self._on_event = on_event
        self._ended = ended

    def run(self) -> None:
        """Reads events of the engine until the engine closes the connection."""
        reason = "the engine ended them"
        try:
            self._engine.listen(self._installation, lambda: self._call(self._on_event))
        # Any error only ends this thread: the caller starts another event listener.
        except Exception as error:
            reason = str(error)
        self._call(lambda: None if self._ended.done() else self._ended.set_result(reason))

    def _call(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # A RuntimeError means that the event loop has ended.
            self._loop.call_soon_threadsafe(function)


ENGINE: Final = "engine"
AGAIN_SECONDS: Final = 1.0
GATHER_SECONDS: Final = 0.2
"""Seconds by which a comparison after an event is delayed, so that one comparison serves several
events: many workers may end at once.
"""

log = structlog.get_logger()


class WorkerComparer:
    """Compares the engine's worker containers with the requests. ``in_progress``: the ids of
    requests with workers that are being started; the comparison removes none of these workers as
    orphans. ``ready``: whether the first comparison of workers with requests is done.
    """

    def __init__(
        self,
        bus: Bus,
        docker: DockerSettings,
        engine: Engine,
        installation: str,
        providers: Mapping[str, Provider],
        in_progress: Collection[str],
        reasons: InactiveReasons,
    ) -> None:
        self._bus = bus
        self._docker = docker
        self._engine = engine
        self._installation = installation
        self._providers = providers
        self._orphans = OrphanSweep(bus, STEPS, providers, in_progress)
        self._others = OtherInstallations(installation, "workers_of_others")
        self._reasons = reasons
        self._due = asyncio.Event()
        self._compared = asyncio.Condition()
        self.ready = False

    async def run(self) -> None:
        """Compares workers with requests, periodically and after each event of a worker, until
        cancelled.
        """
        while True:
            self._due.clear()
            pause = self._docker.sweep_seconds
            try:
                await self.compare()
            except EngineUnavailable as error:
                self._reasons.begin(ENGINE, str(error))
                pause = min(pause, AGAIN_SECONDS)
            except EngineDenied as error:
                self._reasons.begin(ENGINE, f"the engine does not list its containers: {error}")
            except AdmittanceError as error:
                log.warning("comparison_failed", reason=str(error))
            except Exception as error:
                # An unexpected container must not end the process: the next process would read the
                # same list.
                reason = faults.record(STEPS.service, "compare workers", "the engine", error)
                self._reasons.begin(ENGINE, f"the engine's list of containers: {reason}")
            else:
                self.ready = True
                self._reasons.end(ENGINE)
                async with self._compared:
                    self._compared.notify_all()
            if await set_within(self._due, pause):
                await asyncio.sleep(min(GATHER_SECONDS, pause))

    async def compared(self) -> None:
        """Causes a comparison and waits until one succeeds."""
        self._due.set()
        async with self._compared:
            await self._compared.wait()

    async def listen(self) -> None:
        """Listens to the engine's events until cancelled. Each event of a worker causes a
        comparison.
        """
        loop = asyncio.get_running_loop()
        while True:
            ended = loop.create_future()
            EventListener(self._engine, self._installation, loop, self._due.set, ended).start()
            reason = await ended
            log.debug("events_ended", reason=reason)
            self._due.set()
            await asyncio.sleep(AGAIN_SECONDS)

    async def compare(self) -> None:
        """Compares workers with requests once. Raises Away if the engine does not answer."""
        before = await stored_requests(self._bus, self._providers)
        workers = await self._engine.workers()
        self._others.log(worker.installation for worker in workers)
        mine: dict[str, list[ListedWorker]] = {}
        for worker in workers:
            if (
                worker.installation == self._installation
                and worker.provisioning_class in self._providers
            ):
                mine.setdefault(worker.request_id, []).append(worker)
        for name, status in before.values():
            booked = mine.get(status.id, [])
            # The store of requests was read before the list of the engine's containers, so a worker
            # of a provisioned request that is not in the list is lost.
            work = self._compare_with(name, status, booked)
            await STEPS.attempt("compare workers", status.id, work)
        await self._orphans.sweep(
            [
                (listed_worker.request_id, partial(self._remove, listed_worker))
                for each in mine.values()
                for listed_worker in each
            ]
        )

    async def _compare_with(
        self, name: str, status: StoredStatus, booked: list[ListedWorker]
    ) -> None:
        if status.status != "provisioned":
            return
        gone = missing_containers(status.details, booked)
        if gone:
            host = status.details.get(HOST_DETAIL, "")
            await self._revoke(name, status, lost_message(gone, booked, host))

    async def _remove(self, orphan: ListedWorker) -> None:
        log.info("orphan", id=orphan.request_id, container=orphan.name)
        try:
            await self._engine.remove(orphan.container)
        except EngineDenied as error:
            log.warning("worker_not_removed", container=orphan.name, reason=str(error))

    async def _revoke(self, name: str, status: StoredStatus, reason: str) -> None:
        log.warning("revoked", id=status.id, reason=reason)
        # A RuntimeError means that the provider does not run yet; the next comparison reports the
        # lost workers.
        with suppress(RuntimeError):
            await self._providers[name].report(status.id, CapacityRevoked(reason, status.details))
