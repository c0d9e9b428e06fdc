"""`Provider`, the class with which you write a capacity provider, and `ProviderService`, which runs
one replica of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ClassVar, Final, TypeVar

import msgspec
import structlog

from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.provisioning import ProvisioningCancelled, ProvisioningRequested
from admittance.events.reader import Reader
from admittance.events.requests.services import ProviderQuery, ProviderReply
from admittance.events.subjects import ALIVE_PROVISIONING, provider_durable
from admittance.events.system import ProviderAlive
from admittance.providers.answers import (
    Accepted,
    BookingExpired,
    CapacityRevoked,
    Failed,
    Provisioned,
    Status,
)
from admittance.providers.request import Request
from admittance.providers.request_worker import CapacityReleaser, RequestWorker
from admittance.providers.status_store import StatusPublisher, StatusStore
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats import micro
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import end_tasks
from admittance.sdk.program import GRACE_SECONDS, Program, heartbeat_message
from admittance.sdk.requests import IncomingMessage, OpenDeliveries, RequestSource
from admittance.sdk.threads import from_thread
from admittance.sdk.worker import Worker, secret

STATUSES: Final = (Accepted, Provisioned, Failed, BookingExpired, CapacityRevoked)
PROGRESS_SECONDS: Final = 2.0
"""Seconds between two messages in which a provider tells the NATS server which deliveries are in
progress. A delivery for which the NATS server gets no progress message is redelivered after 6 s.
"""

F = TypeVar("F", bound=Callable[..., Any])
log = structlog.get_logger()
_query = Reader(ProviderQuery)


class Provider(Program):
    """Provides the capacity of one provisioning class; ProvisioningRequestConfigs name the class.

    ``parameters``: the msgspec Struct into which ``request.parameters`` is decoded; a request with
    parameters that do not fit the Struct fails permanently, with the reason. Without
    ``parameters``, ``request.parameters`` is a dict of texts. ``concurrency``: how many requests
    one process works on at once. ``grace_seconds``: how long the requests in progress may take to
    finish when the process is asked to end.
    """

    kind: ClassVar[str] = "provider"
    needed_login: ClassVar[str] = "admit auth add provider NAME --class"
    log_field: ClassVar[str] = "provisioning_class"
    default_concurrency: ClassVar[int] = 1000

    def __init__(
        self,
        provisioning_class: str,
        *,
        parameters: type[Any] | None = None,
        concurrency: int | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        super().__init__(
            provisioning_class,
            parameters=parameters,
            concurrency=concurrency,
            grace_seconds=grace_seconds,
        )
        self.activity = (True, "")
        """Whether the provider can provide capacity, and the reason if not. The two values are one
        tuple, because any thread may set them, and both must change at once.
        """

    # Methods for the author of a provider. --------------------------------------------

    def requested(self, function: F) -> F:
        """Decorates the function that obtains capacity: the function takes a `Request` and returns
        `Provisioned`, `Failed` or `Accepted`. After `Accepted`, ``request.say`` or `report`
        publishes the result (``say_from_thread`` and `report_from_thread` in a plain function).

        After a crash the function that obtains capacity may be called again for the same ``id``,
        perhaps in another replica, even if it has already booked the capacity. Called again, the
        function must find its own booking by the id.
        """
        self.main = self._only(function, self.main, "requested function")
        return function

    def cancelled(self, function: F) -> F:
        """Decorates the function that frees a booking: the function takes a `Cancellation`. The
        function that frees a booking is called until it returns without an error, perhaps twice,
        and also for requests without a booking.
        """
        self.release = self._only(function, self.release, "cancelled function")
        return function

    def inactive(self, message: str) -> None:
        """Makes the AdmissionChecks that use the provider's class inactive until `ready` is called.
        Any thread may call `inactive`.
        """
        self.activity = (False, message)
        self.changes.send()

    def ready(self) -> None:
        """Makes the AdmissionChecks that use the provider's class active again. Any thread may call
        `ready`.
        """
        self.activity = (True, "")
        self.changes.send()

    @property
    def active(self) -> bool:
        """Whether the provider can provide capacity."""
        return self.activity[0]

    @property
    def message(self) -> str:
        """Why the provider can provide no capacity; "" if it can."""
        return self.activity[1]

    async def report(self, request_id: str, status: Status) -> bool:
        """Publishes a new status of an earlier request, such as `BookingExpired` or
        `CapacityRevoked`. Returns False if the request was cancelled or is unknown. Raises
        RuntimeError if the provider is not running.
        """
        return await self._report(request_id, status)

    def report_from_thread(self, request_id: str, status: Status) -> bool:
        """Like `report`, but called outside the event loop: from a plain function or from a thread
        of your own.
        """
        return from_thread(self.report(request_id, status), self._loop)

    # Methods for the service. --------------------------------------------------------

    async def obtain(self, request: Request) -> Status:
        """Calls the function of `requested` once for the request and returns its status. `obtain`
        needs no bus, so tests may call it too. Raises what the function raises, and TypeError if
        the function returns anything else than a status.
        """
        if self.main is None:
            raise RuntimeError(self._without_main())
        if self.shape is not None and not isinstance(request.parameters, self.shape):
            try:
                request.parameters = msgspec.convert(
                    request.parameters, self.shape, strict=False, str_keys=True
                )
            except Exception as error:
                return Failed(f"wrong parameters: {error}", retryable=False)
        answer = await self.threads.outcome(self.main, request)
        if isinstance(answer, STATUSES):
            return answer
        raise TypeError(
            f"the requested function returned {answer!r}: return Provisioned, Failed or Accepted"
        )

    @property
    def understands(self) -> tuple[str, ...]:
        """The names of the parameters that the provider knows, for its heartbeat; empty if the
        provider accepts any parameters.
        """
        if self.shape is None:
            return ()
        return tuple(field.encode_name for field in msgspec.structs.fields(self.shape))

    @property
    def why_inactive(self) -> str:
        """Why the provider can provide no capacity; empty if it can."""
        active, message = self.activity
        return "" if active else f"inactive: {message}".rstrip(": ")

    async def _work(self, bus: Bus, settings: Settings, stop: asyncio.Event) -> None:
        await ProviderService(self, bus, settings).run(stop)

    def _without_main(self) -> str:
        return f"{self.name} provides nothing: decorate one with @….requested"


class ProviderService(Worker[Provider]):
    """One running replica of a provider.

    The service handles a cancellation even if as many requests as allowed are in progress, because
    other requests may wait for the capacity that the cancellation frees.
    """

    def __init__(self, provider: Provider, bus: Bus, settings: Settings) -> None:
        source = RequestSource(
            provider_durable(provider.name),
            f"admit.provisioning.cancelled.{token(provider.name)}.*.*",
            "no ProvisioningRequestConfig names this class yet, or Admittance is down",
        )
        super().__init__(
            provider,
            bus,
            settings,
            source,
            log_name="provider",
            progress_seconds=PROGRESS_SECONDS,
        )
        self._provider = provider
        self._since = clock.now()
        self._store = StatusStore(bus, provider.name)
        self._requests = OpenDeliveries[str](self._consumer)
        self._cancellations = OpenDeliveries[str](self._consumer)
        self._releaser = CapacityReleaser(
            provider.free,
            self._store,
            requests=self._requests,
            cancellations=self._cancellations,
            stop_work=self._stop_work,
        )
        publisher = StatusPublisher(
            provider.name,
            self._store,
            self._outbox,
            secret=secret(settings),
            published=provider.metrics.answered,
        )
        self._worker = RequestWorker(
            self._obtain,
            self._store,
            publisher,
            self._releaser,
            self._requests,
            concurrency=provider.concurrency,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Answers capacity requests until ``stop`` is set."""
        # The provider answers queries before it sends its first heartbeat: the provisioning check
        # sends queries right after that heartbeat.
        answering = await micro.serve(
            self._bus.nc,
            f"provider-{self._provider.name}",
            self._settings.instance,
            {f"admit.api.provider.{token(self._provider.name)}": self._query},
        )
        try:
            await super().run(stop)
        finally:
            await answering.stop()

    def _heartbeat(self) -> tuple[str, bytes]:
        active, message = self._provider.activity
        alive = ProviderAlive(
            time=clock.now(),
            instance=self._settings.instance,
            since=self._since,
            active=active,
            message=heartbeat_message(message),
            parameters=self._provider.understands,
        )
        return f"{ALIVE_PROVISIONING}{token(self._provider.name)}", encode(alive)

    def _beside(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._worker.watch_accepted(),)

    async def _finish(self, grace_seconds: float) -> None:
        if running := self._running():
            await asyncio.wait(running, timeout=grace_seconds)
        running = self._running()
        await end_tasks(*running)
        self._requests.hand_back()
        self._cancellations.hand_back()

    def _running(self) -> list[asyncio.Task[None]]:
        return [*self._worker.running, *self._releaser.running]

    async def _stop_work(self, request_id: str) -> None:
        await self._worker.stop(request_id)

    async def _obtain(self, request: Request) -> Status:
        try:
            return await self._provider.obtain(request)
        except Exception:
            self._provider.metrics.failed()
            raise

    async def report(self, about: str, answer: Status) -> bool:
        """Publishes a new status of an earlier request. Returns False if the request was cancelled
        or is unknown.
        """
        return await self._worker.report(about, answer)

    def _on_fact(self, fact: object, message: IncomingMessage) -> None:
        if isinstance(fact, ProvisioningRequested):
            self._provider.metrics.requested()
            self._worker.on_requested(fact, message.reply)
        elif isinstance(fact, ProvisioningCancelled) and (
            message.reply or self._worker.knows(fact.id) or self._consumer.is_full
        ):
            self._releaser.on_cancelled(fact, message.reply)

    async def _query(self, data: bytes, _: str) -> ProviderReply:
        query = _query(data)
        stored = (await self._store.get(query.id)).status
        if stored is None:
            return ProviderReply(id=query.id, known=self._worker.knows(query.id))
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
