"""One request's life: kept, obtained, said; told once more where it is over already.

A request that was answered is answered the same when it is heard again, and nothing is obtained.
Its deliveries are acknowledged when its end is on the log: Provisioned or Failed. What waits,
accepted or to be tried once more, leaves its place to others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from admittance.events.provisioning import ProvisioningRequested
from admittance.providers.answers import Accepted, Failed, Provisioned, Status
from admittance.providers.freeing import (
    AGAIN_SECONDS,
    AWAY_PAUSE_MAX,
    AWAY_PAUSE_MIN,
    Deliveries,
    Freeing,
    about,
)
from admittance.providers.request import Request
from admittance.providers.saying import Speaker
from admittance.providers.store import CANCELLED, Said, Store
from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError, StaleRevision
from admittance.runtime.tasks import go_on

if TYPE_CHECKING:
    from admittance.providers.provider import Provider


PAUSE_MIN: Final = 1.0
PAUSE_MAX: Final = 60.0
LOOK_SECONDS: Final = 10.0
"""How often it is looked whether another replica has ended what was accepted here."""

log = structlog.get_logger()


class Working:
    """The requests that one replica works on. ``open_``: their deliveries."""

    def __init__(
        self,
        provider: Provider,
        store: Store,
        speaker: Speaker,
        freeing: Freeing,
        open_: Deliveries,
    ) -> None:
        self._provider = provider
        self._store = store
        self._speaker = speaker
        self._freeing = freeing
        self._open = open_
        self._room = asyncio.Semaphore(provider.concurrency)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def running(self) -> list[asyncio.Task[None]]:
        """What is under way."""
        return list(self._tasks.values())

    def knows(self, request_id: str) -> bool:
        """It is worked on, or waits here."""
        return request_id in self._tasks or request_id in self._open

    def requested(self, fact: ProvisioningRequested, reply: str) -> None:
        """A request came, perhaps once more."""
        self._open.take(fact.id, reply)
        if fact.id in self._tasks:
            return
        task = asyncio.create_task(self._work(fact), name=fact.id)
        self._tasks[fact.id] = task
        task.add_done_callback(lambda done: self._worked(fact.id, done))

    async def stop(self, request_id: str) -> None:
        """Cancels what is under way for it, and waits until that has ended."""
        task = self._tasks.get(request_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def report(self, request_id: str, status: Status) -> bool:
        """Says something of a request of earlier. False: it was taken back, or is unknown."""
        said = (await self._store.get(request_id)).said
        if said is None:
            return False
        counts = await self._speaker.say(about(said), status)
        if counts and status.ends:
            self._open.done(request_id)
        elif not counts and isinstance(status, Provisioned):
            self._freeing.begin_to_dispose(about(said))
        return counts

    async def look(self) -> None:
        """Acknowledges what was accepted here and has come to its end elsewhere; for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for request_id in [one for one in self._open.ids() if one not in self._tasks]:
                try:
                    said = (await self._store.get(request_id)).said
                except AdmittanceError:
                    break
                if said is not None and said.status not in ("", "accepted", CANCELLED):
                    self._open.done(request_id)

    def _worked(self, request_id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(request_id) is task:
            del self._tasks[request_id]
        if not task.cancelled() and task.exception() is not None:
            # A bug of ours: it comes again, to somebody else perhaps.
            log.error("not_worked", id=request_id, exc_info=task.exception())
            self._open.again(request_id, AGAIN_SECONDS)

    # Step by step. ------------------------------------------------------------------------

    async def _work(self, fact: ProvisioningRequested) -> None:
        found = await self._kept(fact)
        if found is not None and found.status == CANCELLED:
            await self._freeing.dispose(about(fact))
            return
        if found is not None and found.status not in ("", "accepted"):
            await self._speaker.repeat(found)
            self._open.done(fact.id)
            return

        async def say(status: Status) -> bool:
            return await self._say(fact, status)

        last = found.status or None if found is not None and not found.by_helper else None
        request = Request(fact, say, last=last, loop=asyncio.get_running_loop())
        answer = await self._obtain(fact, request)
        if await self._say(fact, answer) and not answer.ends:
            self._open.let_wait(fact.id)

    async def _kept(self, fact: ProvisioningRequested) -> Said | None:
        """What is kept of the request, however long the bus is away; None: it is new. That it is
        worked on is kept from now on, or a replica that is asked would say that nobody knows it,
        and it would be asked for again, beside this one."""
        pause = AWAY_PAUSE_MIN
        while True:
            go_on()
            try:
                found = await self._store.get(fact.id)
                if found.said is not None:
                    return found.said
                await self._store.put(Said(**about(fact)), found.revision)
                return None
            except StaleRevision:
                continue
            except AdmittanceError as error:
                log.warning("store_away", id=fact.id, reason=str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, AWAY_PAUSE_MAX)

    async def _obtain(self, fact: ProvisioningRequested, request: Request) -> Status:
        """What the function answers, called until it does not raise; whoever waits is told that it
        does."""
        pause = PAUSE_MIN
        while True:
            go_on()
            async with self._room:
                if fact.deadline is not None and fact.deadline <= clock.now():
                    return Failed("there was no time for it before its deadline")
                try:
                    return await self._provider.obtain(request)
                except Exception as error:
                    why = f"{type(error).__name__}: {error}"
                    log.exception("not_obtained", id=fact.id, reason=why, again_seconds=pause)
                    kind = type(error).__name__
            self._open.let_wait(fact.id)
            # Of the error only its kind: its words may hold what is nobody's business.
            trouble = f"obtaining it failed ({kind}), again in {pause:g} s"
            if not await self._told(fact, trouble):
                return Failed(trouble)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)

    async def _told(self, fact: ProvisioningRequested, trouble: str) -> bool:
        """Says of it, and not in its author's name, that it is worked on in vain; False: it was
        taken back, or is over."""
        try:
            return await self._speaker.say(about(fact), Accepted(trouble), by_helper=True)
        except AdmittanceError as error:
            log.warning("trouble_not_told", id=fact.id, reason=str(error))
            return True

    async def _say(self, fact: ProvisioningRequested, status: Status) -> bool:
        """Says it, and acknowledges what has come to its end with it; what was taken back meanwhile
        is freed."""
        counts = await self._speaker.say(about(fact), status)
        go_on()
        if not counts:
            self._freeing.begin_to_dispose(about(fact))
        elif status.ends:
            self._open.done(fact.id)
        return counts
