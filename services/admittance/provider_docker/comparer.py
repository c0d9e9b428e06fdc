"""Compares running containers with the requests: reports lost workers and removes orphans. One
listing of the engine serves all requests."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

import structlog

from admittance.provider_docker.engine import Away, Denied, DockerSettings, Engine
from admittance.provider_docker.workers import HOST_DETAIL, Found, lost, told_of
from admittance.providers import CapacityRevoked, Provider
from admittance.providers.builtin import is_orphan, stored_requests
from admittance.providers.health import InactiveReasons
from admittance.providers.status_store import StoredStatus
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.tasks import set_within


class EventListener(threading.Thread):
    """Follows the engine's events in a thread. Calls ``heard`` in the loop for each event;
    ``ended`` gets the reason when they end.

    A blocked read of events cannot be cancelled, so the thread is a daemon and never joined."""

    def __init__(
        self,
        engine: Engine,
        installation: str,
        loop: asyncio.AbstractEventLoop,
        heard: Callable[[], None],
        ended: asyncio.Future[str],
    ) -> None:
        super().__init__(name="engine events", daemon=True)
        self._engine = engine
        self._installation = installation
        self._loop = loop
        self._heard = heard
        self._ended = ended

    def run(self) -> None:
        """Runs until the engine ends the events."""
        reason = "the engine ended them"
        try:
            self._engine.listen(self._installation, lambda: self._tell(self._heard))
        except Exception as error:  # any error of the client: the caller starts again
            reason = str(error)
        self._tell(lambda: None if self._ended.done() else self._ended.set_result(reason))

    def _tell(self, what: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(what)


ENGINE: Final = "engine"
AGAIN_SECONDS: Final = 1.0
GATHER_SECONDS: Final = 0.2
"""Many workers end at once: the comparison waits this long for further events."""

log = structlog.get_logger()


class Comparer:
    """``open_``: requests in progress; their workers are handled there. ``ready``: the first
    comparison is done."""

    def __init__(
        self,
        bus: Bus,
        ours: DockerSettings,
        engine: Engine,
        installation: str,
        providers: Mapping[str, Provider],
        open_: Collection[str],
        troubles: InactiveReasons,
    ) -> None:
        self._bus = bus
        self._ours = ours
        self._engine = engine
        self._installation = installation
        self._providers = providers
        self._open = open_
        self._troubles = troubles
        self._due = asyncio.Event()
        self._compared = asyncio.Condition()
        self._others: set[str] = set()
        self.ready = False

    async def run(self) -> None:
        """Compares periodically and after each event of a worker, until cancelled."""
        while True:
            self._due.clear()
            pause = self._ours.sweep_seconds
            try:
                await self.compare()
            except Away as error:
                self._troubles.begin(ENGINE, str(error))
                pause = min(pause, AGAIN_SECONDS)
            except (AdmittanceError, Denied) as error:
                log.warning("not_compared", reason=str(error))
            else:
                self.ready = True
                self._troubles.end(ENGINE)
                async with self._compared:
                    self._compared.notify_all()
            if await set_within(self._due, pause):
                await asyncio.sleep(min(GATHER_SECONDS, pause))

    async def compared(self) -> None:
        """Waits for the next successful comparison."""
        self._due.set()
        async with self._compared:
            await self._compared.wait()

    async def listen(self) -> None:
        """Follows the engine's events until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            ended = loop.create_future()
            EventListener(self._engine, self._installation, loop, self._due.set, ended).start()
            reason = await ended
            log.debug("events_ended", reason=reason)
            self._due.set()
            await asyncio.sleep(AGAIN_SECONDS)

    async def compare(self) -> None:
        """Compares once. Raises Away."""
        before = await stored_requests(self._bus, self._providers)
        workers = await self._engine.workers()
        self._tell_of_others(workers)
        there: dict[str, list[Found]] = {}
        for one in workers:
            if one.installation == self._installation and one.provisioning_class in self._providers:
                there.setdefault(one.request_id, []).append(one)
        for name, said in before.values():
            mine = there.get(said.id, [])
            # Requests are read before the listing: a provisioned worker that is not listed is lost.
            gone = lost(said.details, mine) if said.status == "provisioned" else ()
            if gone:
                await self._revoke(
                    name, said, told_of(gone, mine, said.details.get(HOST_DETAIL, ""))
                )
        # Requests are read again after the listing: a listed worker without a request is an orphan.
        after = await stored_requests(self._bus, self._providers)
        for request_id, mine in there.items():
            asked = after.get(request_id)
            if is_orphan(asked.status if asked is not None else None):
                for one in mine:
                    if request_id not in self._open:
                        await self._remove(one)

    async def _remove(self, orphan: Found) -> None:
        log.info("orphan", id=orphan.request_id, container=orphan.name)
        try:
            await self._engine.remove(orphan.container)
        except Denied as error:
            log.warning("not_removed", container=orphan.name, reason=str(error))

    async def _revoke(self, name: str, said: StoredStatus, told: str) -> None:
        log.warning("revoked", id=said.id, reason=told)
        try:
            await self._providers[name].report(said.id, CapacityRevoked(told, said.details))
        except RuntimeError:
            # The provider does not run yet: the next comparison reports it.
            return

    def _tell_of_others(self, workers: Collection[Found]) -> None:
        """Logs workers of other installations once. They are left alone, because that installation
        may still run; only an operator knows."""
        others = Counter(one.installation for one in workers)
        del others[self._installation]
        if others.keys() - self._others:
            log.info("workers_of_others", ours=self._installation, others=dict(others))
        self._others = set(others)
