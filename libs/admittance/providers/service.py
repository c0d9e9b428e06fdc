"""A provider as a process: connected, and what it hears handed on; ended without losing anything.

What holds, over all replicas and restarts, stands above those who see to it: `working` has one
request's life, `freeing` what becomes of it when it is taken back, `saying` and `store` what was
said of it. Here is what is heard, and how it ends:

- A delivery that has not come to its end goes to somebody else when this process ends, or dies.
- Where all places are taken, a cancellation is heard all the same: what it frees may be what the
  others wait for.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from admittance.events.codec import Undecodable, decode
from admittance.events.names import token
from admittance.events.provisioning import ProvisioningCancelled, ProvisioningRequested
from admittance.events.reading import Reader
from admittance.events.requests import ProviderQuery, ProviderReply
from admittance.events.subjects import provider_durable
from admittance.providers.freeing import Deliveries, Freeing
from admittance.providers.health import beat
from admittance.providers.saying import Speaker
from admittance.providers.store import Store
from admittance.providers.working import Working
from admittance.runtime.bus import micro
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings
from admittance.sdk import process
from admittance.sdk.outbox import Outbox
from admittance.sdk.requests import Asked, Heard, Hearing

if TYPE_CHECKING:
    from admittance.providers.provider import Provider

PROGRESS_SECONDS: Final = 2.0
"""How often the server is told of what is under way; what it is not told about for 6 s comes again.
"""

log = structlog.get_logger()
_query = Reader(ProviderQuery)


class Service:
    """One running replica of a provider."""

    def __init__(self, provider: Provider, bus: Bus, settings: Settings) -> None:
        self._provider = provider
        self._bus = bus
        self._settings = settings
        self._outbox = Outbox(bus)
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
        self._store = Store(bus, provider.name)
        self._requests = Deliveries(self._hearing)
        self._cancellations = Deliveries(self._hearing)
        self._freeing = Freeing(
            provider,
            self._store,
            requests=self._requests,
            cancellations=self._cancellations,
            stop_work=self._stop_work,
        )
        speaker = Speaker(provider.name, self._store, self._outbox, secret=process.secret(settings))
        self._working = Working(provider, self._store, speaker, self._freeing, self._requests)
        self._stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Provides until stop is set."""
        provider = self._provider
        provider.speaks_by(self._working.report)
        answering = await micro.serve(
            self._bus,
            f"provider-{provider.name}",
            self._settings.instance,
            {f"admit.api.provider.{token(provider.name)}": self._query},
        )

        async def leave() -> None:
            with suppress(TimeoutError):
                # In a task of its own: the end is not cancelled because we were.
                await asyncio.wait_for(self._end(), provider.grace_seconds + 10.0)
            await self._hearing.stop()
            provider.speaks_by(None)
            await answering.stop()

        await process.at_work(
            self._start(),
            (
                self._outbox.run(),
                self._hearing.keep(),
                self._working.look(),
                beat(
                    self._bus,
                    provider,
                    instance=self._settings.instance,
                    seconds=self._settings.beat_seconds,
                ),
            ),
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
        running = [*self._working.running, *self._freeing.running]
        if running:
            await asyncio.wait(running, timeout=self._provider.grace_seconds)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._requests.hand_back()
        self._cancellations.hand_back()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._outbox.emptied()

    async def _stop_work(self, request_id: str) -> None:
        await self._working.stop(request_id)

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
            self._working.requested(fact, heard.reply)
        elif isinstance(fact, ProvisioningCancelled) and (
            heard.reply or self._working.knows(fact.id) or self._hearing.is_full
        ):
            self._freeing.cancelled(fact, heard.reply)

    async def _query(self, data: bytes, _: str) -> ProviderReply:
        asked = _query(data)
        said = (await self._store.get(asked.id)).said
        if said is None:
            return ProviderReply(id=asked.id, known=self._working.knows(asked.id))
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
