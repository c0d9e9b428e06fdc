"""A provider as a process: connected, heard, obtained, said; and ended without losing anything.

What holds, over all replicas and restarts:

- A delivery is acknowledged when its end is on the log: Provisioned or Failed. Until then it comes
  again to somebody else when this process dies. One that was accepted is held until then.
- A request that was answered is answered the same when it is heard again, and nothing is obtained.
- A cancellation is written down first, then what is under way is cancelled, then the function that
  frees is called, until it returns. Whoever obtains something for a request that was taken back
  meanwhile finds that written, and frees it, too; and so does whoever hears of the request again,
  since who heard of it before may have died with something in its hands.
- What waits (accepted, or to be tried once more) leaves its place to others. Where all places are
  taken, a cancellation is heard all the same: what it frees may be what the others wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from admittance.events.codec import Undecodable, decode, encode
from admittance.events.names import token
from admittance.events.provisioning import (
    ProvisioningCancelled,
    ProvisioningFact,
    ProvisioningRequested,
)
from admittance.events.requests import ProviderQuery, ProviderReply
from admittance.events.subjects import ALIVE_PROVISIONING, provider_durable
from admittance.events.system import ProviderAlive
from admittance.peers import process
from admittance.peers.hearing import Asked, Heard, Hearing
from admittance.peers.outbox import Outbox
from admittance.providers.answers import Failed, Provisioned, Status
from admittance.providers.request import Cancellation, Request
from admittance.providers.saying import Speaker
from admittance.providers.store import CANCELLED, Said, Store
from admittance.runtime import clock, micro
from admittance.runtime.bus import Bus
from admittance.runtime.errors import AdmittanceError, Refused, StaleRevision
from admittance.runtime.settings import Settings

if TYPE_CHECKING:
    from admittance.providers.provider import Provider

PAUSE_MIN: Final = 1.0
PAUSE_MAX: Final = 60.0
AWAY_PAUSE_MAX: Final = 5.0
AGAIN_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 10.0
"""How often it is looked whether another replica has ended what was accepted here."""
PROGRESS_SECONDS: Final = 2.0
"""How often the server is told of what is under way; what it is not told about for 6 s comes again.
"""

log = structlog.get_logger()


class Service:
    """One running replica of a provider."""

    def __init__(self, provider: Provider, bus: Bus, settings: Settings) -> None:
        self._provider = provider
        self._bus = bus
        self._settings = settings
        self._outbox = Outbox(bus)
        self._store = Store(bus, provider.name)
        self._speaker = Speaker(provider.name, self._store, self._outbox)
        asked = Asked(
            provider_durable(provider.name),
            f"admit.provisioning.cancelled.{token(provider.name)}.*.*",
            "no ProvisioningRequestConfig names this class yet, or Admittance is down",
        )
        self._hearing = Hearing(
            bus,
            asked,
            self._on_heard,
            room=max(4, 2 * provider.concurrency),
            progress_seconds=PROGRESS_SECONDS,
        )
        self._room = asyncio.Semaphore(provider.concurrency)
        self._works: dict[str, asyncio.Task[None]] = {}
        self._open: dict[str, list[str]] = {}
        """Deliveries of requests that have not come to an end."""
        self._freeing: dict[str, list[str]] = {}
        """Deliveries of cancellations that are being dealt with."""
        self._beside: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Provides until stop is set."""
        provider = self._provider
        provider.speaks_by(self._report)
        answering = await micro.serve(
            self._bus,
            f"provider-{provider.name}",
            self._settings.instance,
            {f"admit.api.provider.{token(provider.name)}": self._query},
        )

        async def leave() -> None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end(), provider.grace_seconds + 10.0)
            await self._hearing.stop()
            provider.speaks_by(None)
            await answering.stop()

        await process.at_work(
            self._start(),
            (self._outbox.run(), self._hearing.keep(), self._beat(), self._look()),
            stop=stop,
            failed=self._hearing.failed,
            end=leave,
        )

    async def _start(self) -> None:
        await self._hearing.start()
        log.info("provider_started", provisioning_class=self._provider.name)

    async def _end(self) -> None:
        self._stopping = True
        await self._hearing.drain()
        running = [*self._works.values(), *self._beside]
        if running:
            await asyncio.wait(running, timeout=self._provider.grace_seconds)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for replies in (*self._open.values(), *self._freeing.values()):
            for reply in replies:
                self._hearing.again(reply)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._outbox.emptied(), 1.0)

    async def _beat(self) -> None:
        provider = self._provider
        seconds = self._settings.beat_seconds
        subject = f"{ALIVE_PROVISIONING}{token(provider.name)}"
        while True:
            provider.changed.clear()
            beat = ProviderAlive(
                time=clock.now(),
                instance=self._settings.instance,
                active=provider.active,
                message=provider.message,
                parameters=provider.understands,
            )
            if self._bus.nc.is_connected:
                await self._bus.tell((subject, encode(beat)))
            with suppress(TimeoutError):
                await asyncio.wait_for(provider.changed.wait(), seconds)

    async def _query(self, data: bytes, _: str) -> ProviderReply:
        asked = msgspec.json.decode(data, type=ProviderQuery)
        said = (await self._store.get(asked.id)).said
        if said is None:
            open_ = asked.id in self._works or asked.id in self._open
            return ProviderReply(id=asked.id, known=open_)
        return ProviderReply(
            id=said.id,
            status=said.status,
            message=said.message,
            details=said.details,
            pod_set_updates=said.pod_set_updates,
            seq=said.seq or None,
            retryable=said.retryable,
            retry_after=said.retry_after,
        )

    # Hearing. -----------------------------------------------------------------------------

    def _on_heard(self, heard: Heard) -> None:
        try:
            fact = decode(heard.subject, heard.data)
        except (Undecodable, msgspec.MsgspecError) as error:
            log.error("not_understood", subject=heard.subject, reason=str(error))
            self._hearing.never(heard.reply)
            return
        if self._stopping and heard.reply:
            self._hearing.again(heard.reply)
        elif isinstance(fact, ProvisioningRequested):
            self._on_requested(fact, heard.reply)
        elif isinstance(fact, ProvisioningCancelled) and (
            heard.reply or fact.id in self._works or fact.id in self._open or self._hearing.is_full
        ):
            self._on_cancelled(fact, heard.reply)

    def _on_requested(self, fact: ProvisioningRequested, reply: str) -> None:
        self._open.setdefault(fact.id, []).append(reply)
        if fact.id in self._works:
            return
        task = asyncio.create_task(self._work(fact), name=fact.id)
        self._works[fact.id] = task
        task.add_done_callback(lambda done: self._worked(fact.id, done))

    def _on_cancelled(self, fact: ProvisioningCancelled, reply: str) -> None:
        if fact.id in self._freeing:
            self._freeing[fact.id].append(reply)
            return
        self._freeing[fact.id] = [reply]
        self._do(self._free(fact))

    def _worked(self, request_id: str, task: asyncio.Task[None]) -> None:
        if self._works.get(request_id) is task:
            del self._works[request_id]
        if not task.cancelled() and task.exception() is not None:
            # A bug of ours: it comes again, to somebody else perhaps.
            log.error("not_worked", id=request_id, exc_info=task.exception())
            for reply in self._open.pop(request_id, ()):
                self._hearing.again(reply, AGAIN_SECONDS)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def _close(self, request_id: str) -> None:
        for reply in self._open.pop(request_id, ()):
            self._hearing.done(reply)

    # One request. -------------------------------------------------------------------------

    async def _work(self, fact: ProvisioningRequested) -> None:
        found = await self._patiently(fact)
        if found is not None and found.status == CANCELLED:
            await self._dispose(fact)
            return
        if found is not None and found.status not in ("", "accepted"):
            await self._speaker.repeat(found)
            self._close(fact.id)
            return

        async def say(status: Status) -> bool:
            return await self._say(fact, status)

        last = (found.status or None) if found is not None else None
        answer = await self._obtain(fact, Request(fact, say, last=last))
        if await self._say(fact, answer) and not answer.ends:
            for reply in self._open.get(fact.id, ()):
                self._hearing.let_wait(reply)

    async def _patiently(self, fact: ProvisioningRequested) -> Said | None:
        """What is kept of the request, however long the bus is away; None: it is new. That it is
        worked on is kept from now on, or a replica that is asked would say that nobody knows it,
        and it would be asked for again, beside this one."""
        pause = 0.1
        while True:
            try:
                found = await self._store.get(fact.id)
                if found.said is not None:
                    return found.said
                await self._store.put(Said(**_about(fact)), found.revision)
                return None
            except StaleRevision:
                continue
            except AdmittanceError as error:
                log.warning("store_away", id=fact.id, reason=str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, AWAY_PAUSE_MAX)

    async def _obtain(self, fact: ProvisioningRequested, request: Request) -> Status:
        pause = PAUSE_MIN
        while True:
            async with self._room:
                if fact.deadline is not None and fact.deadline <= clock.now():
                    return Failed("there was no time for it before its deadline")
                try:
                    return await self._provider.obtain(request)
                except Exception:
                    log.exception("not_obtained", id=fact.id, again_seconds=pause)
            for reply in self._open.get(fact.id, ()):
                self._hearing.let_wait(reply)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)

    async def _say(self, fact: ProvisioningRequested, status: Status) -> bool:
        """Says it, and acknowledges what has come to its end with it; what was taken back meanwhile
        is freed."""
        counts = await self._speaker.say(_about(fact), status)
        if not counts:
            self._do(self._dispose(fact))
        elif status.ends:
            self._close(fact.id)
        return counts

    async def _dispose(self, fact: ProvisioningRequested | Said) -> None:
        """Frees what may have been obtained for a request that was taken back. Its delivery is
        acknowledged only then: who dies in between leaves it to the next one."""
        await self._call_free(Cancellation(**_about(fact), reason="it was taken back meanwhile"))
        self._close(fact.id)

    async def _report(self, request_id: str, status: Status) -> bool:
        said = (await self._store.get(request_id)).said
        if said is None:
            return False
        counts = await self._speaker.say(_about(said), status)
        if counts and status.ends:
            self._close(request_id)
        elif not counts and isinstance(status, Provisioned):
            self._do(self._dispose(said))
        return counts

    async def _look(self) -> None:
        """Acknowledges what was accepted here and has come to its end elsewhere."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for request_id in [one for one in self._open if one not in self._works]:
                try:
                    said = (await self._store.get(request_id)).said
                except AdmittanceError:
                    break
                if said is not None and said.status not in ("", "accepted", CANCELLED):
                    self._close(request_id)

    # Freeing. -----------------------------------------------------------------------------

    async def _free(self, fact: ProvisioningCancelled) -> None:
        about = _about(fact)
        pause = 0.1
        while True:
            try:
                await self._store.cancel(about)
                break
            except Refused as error:
                log.error("not_noted", id=fact.id, reason=str(error))
                break
            except AdmittanceError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, AWAY_PAUSE_MAX)
        work = self._works.get(fact.id)
        if work is not None:
            work.cancel()
            await asyncio.wait([work])
        await self._call_free(Cancellation(**about, reason=fact.reason))
        self._close(fact.id)
        for reply in self._freeing.pop(fact.id, ()):
            self._hearing.done(reply)

    async def _call_free(self, cancellation: Cancellation) -> None:
        pause = PAUSE_MIN
        while True:
            try:
                await self._provider.free(cancellation)
                return
            except Exception:
                log.exception("not_freed", id=cancellation.id, again_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)


def _about(fact: ProvisioningFact | Said) -> dict[str, Any]:
    return {"id": fact.id, "namespace": fact.namespace, "name": fact.name, "uid": fact.uid}


async def serve(
    provider: Provider,
    *,
    url: str | None,
    creds: str | None,
    stop: asyncio.Event,
    settings: Settings | None = None,
) -> None:
    """Connects, however long that takes, and provides until stop is set."""
    if not provider.has_function:
        raise RuntimeError(f"{provider.name} provides nothing: decorate one with @….requested")

    async def work(bus: Bus, settings: Settings) -> None:
        await Service(provider, bus, settings).run(stop)

    await process.serve(_peer(provider), work, stop=stop, url=url, creds=creds, settings=settings)


def run(provider: Provider, *, url: str | None, creds: str | None) -> None:
    """`serve` as a whole process, with its logs and signals."""

    async def serving(stop: asyncio.Event, settings: Settings) -> None:
        await serve(provider, url=url, creds=creds, stop=stop, settings=settings)

    process.run(_peer(provider), serving, url=url)


def _peer(provider: Provider) -> process.Peer:
    return process.Peer("provider", provider.name, "provisioning_class")
