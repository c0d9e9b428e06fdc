"""A provider as a process: connects, hears requests and cancellations, and ends in order.

`request_worker` works on one request and releases it when it is cancelled; `status_store` stores
and publishes its status. This module receives, and it ends the process:

- A delivery that is not finished when the process ends or crashes goes to another replica.
- A cancellation is heard even if all places for requests are taken: the other requests may wait for
  the capacity that it frees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec
import structlog

from admittance.events.codec import Undecodable, decode
from admittance.events.names import token
from admittance.events.provisioning import ProvisioningCancelled, ProvisioningRequested
from admittance.events.reading import Reader
from admittance.events.requests import ProviderQuery, ProviderReply
from admittance.events.subjects import provider_durable
from admittance.providers.answers import Status
from admittance.providers.health import ProviderState, beat
from admittance.providers.request import Cancellation, Request
from admittance.providers.request_worker import CapacityReleaser, OpenDeliveries, RequestWorker
from admittance.providers.status_store import StatusPublisher, StatusStore
from admittance.runtime.bus import micro
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings
from admittance.sdk import process
from admittance.sdk.outbox import Outbox
from admittance.sdk.requests import IncomingMessage, RequestConsumer, RequestSource

PROGRESS_SECONDS: Final = 2.0
"""How often the server is told which deliveries are under way. It redelivers any other after 6 s.
"""

log = structlog.get_logger()
_query = Reader(ProviderQuery)


class CapacityProvider(ProviderState, Protocol):
    """The part of a `Provider` that its service uses. `Provider.run` starts the service, so the
    service must not import `Provider`."""

    @property
    def grace_seconds(self) -> float: ...

    @property
    def concurrency(self) -> int: ...

    @property
    def has_function(self) -> bool: ...

    async def obtain(self, request: Request) -> Status: ...

    async def free(self, cancellation: Cancellation) -> None: ...

    def report_through(self, report: Callable[[str, Status], Any] | None) -> None: ...


class ProviderService:
    """One running replica of a provider."""

    def __init__(self, provider: CapacityProvider, bus: Bus, settings: Settings) -> None:
        self._provider = provider
        self._bus = bus
        self._settings = settings
        self._outbox = Outbox(bus)
        source = RequestSource(
            provider_durable(provider.name),
            f"admit.provisioning.cancelled.{token(provider.name)}.*.*",
            "no ProvisioningRequestConfig names this class yet, or Admittance is down",
        )
        self._consumer = RequestConsumer(
            bus,
            source,
            self._on_message,
            room=max(4, 2 * provider.concurrency),
            progress_seconds=PROGRESS_SECONDS,
        )
        self._store = StatusStore(bus, provider.name)
        self._requests = OpenDeliveries(self._consumer)
        self._cancellations = OpenDeliveries(self._consumer)
        self._releaser = CapacityReleaser(
            provider.free,
            self._store,
            requests=self._requests,
            cancellations=self._cancellations,
            stop_work=self._stop_work,
        )
        publisher = StatusPublisher(
            provider.name, self._store, self._outbox, secret=process.secret(settings)
        )
        self._worker = RequestWorker(
            provider.obtain,
            self._store,
            publisher,
            self._releaser,
            self._requests,
            concurrency=provider.concurrency,
        )
        self._stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Provides until stop is set."""
        provider = self._provider
        provider.report_through(self._worker.report)
        answering = await micro.serve(
            self._bus,
            f"provider-{provider.name}",
            self._settings.instance,
            {f"admit.api.provider.{token(provider.name)}": self._query},
        )

        async def leave() -> None:
            with suppress(TimeoutError):
                # wait_for runs it as a task, so that our cancellation does not cancel it.
                await asyncio.wait_for(self._end(), provider.grace_seconds + 10.0)
            await self._consumer.stop()
            provider.report_through(None)
            await answering.stop()

        await process.run_until_stopped(
            self._start(),
            (
                self._outbox.run(),
                self._consumer.keep(),
                self._worker.watch_accepted(),
                beat(
                    self._bus,
                    provider,
                    instance=self._settings.instance,
                    seconds=self._settings.beat_seconds,
                ),
            ),
            stop=stop,
            failed=self._consumer.failed,
            end=leave,
        )

    async def _start(self) -> None:
        await self._consumer.start()
        log.info("provider_started", provisioning_class=self._provider.name)

    async def _end(self) -> None:
        self._stopping = True
        await self._consumer.drain()
        running = [*self._worker.running, *self._releaser.running]
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
        await self._worker.stop(request_id)

    # Hearing. -----------------------------------------------------------------------------

    def _on_message(self, message: IncomingMessage) -> None:
        try:
            fact = decode(message.subject, message.data)
        except (Undecodable, msgspec.MsgspecError) as error:
            log.error("not_understood", subject=message.subject, reason=str(error))
            self._consumer.never(message.reply)
            return
        if self._stopping and message.reply:
            self._consumer.again(message.reply)
        elif isinstance(fact, ProvisioningRequested):
            self._worker.on_requested(fact, message.reply)
        elif isinstance(fact, ProvisioningCancelled) and (
            message.reply or self._worker.knows(fact.id) or self._consumer.is_full
        ):
            self._releaser.on_cancelled(fact, message.reply)

    async def _query(self, data: bytes, _: str) -> ProviderReply:
        asked = _query(data)
        stored = (await self._store.get(asked.id)).status
        if stored is None:
            return ProviderReply(id=asked.id, known=self._worker.knows(asked.id))
        return ProviderReply(
            id=stored.id,
            status=stored.status,
            message=stored.message,
            details=stored.details,
            pod_set_updates=stored.pod_set_updates,
            seq=stored.seq or None,
            retryable=stored.retryable,
            retry_after=stored.retry_after,
        )


async def serve(
    provider: CapacityProvider,
    *,
    url: str | None,
    creds: str | None,
    stop: asyncio.Event,
    settings: Settings | None = None,
) -> None:
    """Connects, with retries, and provides until stop is set."""
    if not provider.has_function:
        raise RuntimeError(f"{provider.name} provides nothing: decorate one with @….requested")

    async def work(bus: Bus, settings: Settings) -> None:
        await ProviderService(provider, bus, settings).run(stop)

    await process.serve(
        _program(provider), work, stop=stop, url=url, creds=creds, settings=settings
    )


def run(provider: CapacityProvider, *, url: str | None, creds: str | None) -> None:
    """Runs `serve` as a process of its own, with logs and signals."""

    async def serving(stop: asyncio.Event, settings: Settings) -> None:
        await serve(provider, url=url, creds=creds, stop=stop, settings=settings)

    process.run(_program(provider), serving, url=url)


def _program(provider: CapacityProvider) -> process.Program:
    return process.Program("provider", provider.name, "provisioning_class")
