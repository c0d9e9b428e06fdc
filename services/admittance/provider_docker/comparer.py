"""What runs is compared with what is booked: who has lost workers is told, and those that are
nobody's are removed. In one look at the engine for all of them, however many there are.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

import structlog

from admittance.provider_docker.engine import Away, Denied, Engine
from admittance.provider_docker.settings import DockerSettings
from admittance.provider_docker.workers import HOST_DETAIL, Found, lost, told_of
from admittance.providers import CapacityRevoked, Provider
from admittance.providers.builtin import is_orphan, stored_requests
from admittance.providers.health import InactiveReasons
from admittance.providers.status_store import StoredStatus
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.tasks import set_within


class EventListener(threading.Thread):
    """Calls ``heard`` in the loop for each event; ``ended`` gets why there are no more."""

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
        """Until the engine is away."""
        reason = "the engine ended them"
        try:
            self._engine.listen(self._installation, lambda: self._tell(self._heard))
        except Exception as error:  # whatever a client may raise: it is begun again
            reason = str(error)
        self._tell(lambda: None if self._ended.done() else self._ended.set_result(reason))

    def _tell(self, what: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(what)


ENGINE: Final = "engine"
AGAIN_SECONDS: Final = 1.0
GATHER_SECONDS: Final = 0.2
"""Workers end many at once: so long their events are waited for, before it is compared."""

log = structlog.get_logger()


class Comparer:
    """``open_``: requests that are worked on; whoever does looks after their workers. ``ready``: it
    was compared once."""

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
        """Compares from time to time, and when a worker has ended, for ever."""
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
        """Waits until the engine has answered once more."""
        self._due.set()
        async with self._compared:
            await self._compared.wait()

    async def listen(self) -> None:
        """Hears the engine's events, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            ended = loop.create_future()
            EventListener(self._engine, self._installation, loop, self._due.set, ended).start()
            reason = await ended
            log.debug("events_ended", reason=reason)
            self._due.set()
            await asyncio.sleep(AGAIN_SECONDS)

    async def compare(self) -> None:
        """Once. Raises Away."""
        before = await stored_requests(self._bus, self._providers)
        workers = await self._engine.workers()
        self._tell_of_others(workers)
        there: dict[str, list[Found]] = {}
        for one in workers:
            if one.installation == self._installation and one.provisioning_class in self._providers:
                there.setdefault(one.request_id, []).append(one)
        for name, said in before.values():
            mine = there.get(said.id, [])
            # What had been provisioned before it was looked for is lost if it is not there now.
            gone = lost(said.details, mine) if said.status == "provisioned" else ()
            if gone:
                await self._revoke(
                    name, said, told_of(gone, mine, said.details.get(HOST_DETAIL, ""))
                )
        # And what is there has had a word before, unless nobody asks for it.
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
            # Not running yet: the next comparison finds it again.
            return

    def _tell_of_others(self, workers: Collection[Found]) -> None:
        """Those of another installation are left alone: it may be at work. One whose bus was lost
        is not, and only a person knows that."""
        others = Counter(one.installation for one in workers)
        del others[self._installation]
        if others.keys() - self._others:
            log.info("workers_of_others", ours=self._installation, others=dict(others))
        self._others = set(others)
