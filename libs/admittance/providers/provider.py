"""`Provider`: the class with which you write a capacity provider."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from admittance.events.names import token
from admittance.providers.answers import (
    Accepted,
    BookingExpired,
    CapacityRevoked,
    Failed,
    Provisioned,
    Status,
)
from admittance.providers.request import Cancellation, Request
from admittance.sdk.heartbeats import ChangeSignal
from admittance.sdk.threads import Threads, from_thread

CONCURRENCY: Final = 1000
THREADS: Final = 16
STATUSES: Final = (Accepted, Provisioned, Failed, BookingExpired, CapacityRevoked)

F = TypeVar("F", bound=Callable[..., Any])


class Provider:
    """Provides capacity of one provisioning class, named by ProvisioningRequestConfigs.

    ``parameters``: the msgspec Struct of ``request.parameters``; wrong parameters fail the request
    for good, with the reason. Without it, parameters are a dict of texts. ``concurrency``: the
    requests worked on at once. ``grace_seconds``: how long work under way may take to finish when
    the process ends.
    """

    def __init__(
        self,
        provisioning_class: str,
        *,
        parameters: type[Any] | None = None,
        concurrency: int | None = None,
        grace_seconds: float = 7.0,
    ) -> None:
        token(provisioning_class)  # raises ValueError for a name that has none
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency={concurrency}: at least one request at a time")
        self.name = provisioning_class
        self.shape = parameters
        self.grace_seconds = grace_seconds
        self.activity = (True, "")
        """Whether it can provide, and if not, why. One value, because any thread may change it."""
        self.changes = ChangeSignal()
        self._concurrency = concurrency
        self._requested: Callable[..., Any] | None = None
        self._cancelled: Callable[..., Any] | None = None
        self._threads = Threads(concurrency or THREADS)
        self._report: Callable[[str, Status], Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # For the author. -----------------------------------------------------------------

    def requested(self, function: F) -> F:
        """Decorates the function that obtains capacity: it takes a `Request` and returns
        `Provisioned`, `Failed` or `Accepted`. After `Accepted`, ``request.say`` or `report` gives
        the result (``say_from_thread`` and `report_from_thread` in a plain function).

        After a crash it may be called again for the same ``id``, perhaps in another replica, even
        if it has booked already: it must find its own booking by the id.
        """
        if self._requested is not None:
            raise ValueError(f"{self.name} has such a function: {self._requested.__qualname__}")
        self._requested = function
        return function

    def cancelled(self, function: F) -> F:
        """Decorates the function that frees a booking: it takes a `Cancellation`. It is called
        until it returns, perhaps twice, and also for requests without a booking."""
        if self._cancelled is not None:
            raise ValueError(f"{self.name} has such a function already")
        self._cancelled = function
        return function

    def inactive(self, message: str) -> None:
        """Makes the checks of this class inactive until `ready` is called. Any thread may call
        this."""
        self.activity = (False, message)
        self.changes.tell()

    def ready(self) -> None:
        """Makes the checks of this class active again. Any thread may call this."""
        self.activity = (True, "")
        self.changes.tell()

    @property
    def active(self) -> bool:
        """Whether capacity can be provided."""
        return self.activity[0]

    @property
    def message(self) -> str:
        """Why no capacity can be provided; empty if active."""
        return self.activity[1]

    async def report(self, request_id: str, status: Status) -> bool:
        """Publishes a status of an earlier request, such as an expired booking or revoked
        capacity. False: the request was cancelled or is unknown. Raises RuntimeError if the
        provider is not running."""
        if self._report is None:
            raise RuntimeError(f"{self.name} is not running")
        return bool(await self._report(request_id, status))

    def report_from_thread(self, request_id: str, status: Status) -> bool:
        """`report` outside the event loop: in a plain function or a thread of your own."""
        return from_thread(self.report(request_id, status), self._loop)

    # For the service. ----------------------------------------------------------------

    async def obtain(self, request: Request) -> Status:
        """Calls the author's function once, without a bus; for tests and for the service. Raises
        what the function raises, and TypeError if it returns anything else than a status."""
        if self._requested is None:
            raise RuntimeError(f"{self.name} provides nothing: decorate one with @….requested")
        if self.shape is not None and not isinstance(request.parameters, self.shape):
            try:
                request.parameters = msgspec.convert(
                    request.parameters, self.shape, strict=False, str_keys=True
                )
            except Exception as error:
                return Failed(f"wrong parameters: {error}", retryable=False)
        answer = await self._threads.outcome(self._requested, request)
        if isinstance(answer, STATUSES):
            return answer
        raise TypeError(f"it answered {answer!r}: return Provisioned, Failed or Accepted")

    async def free(self, cancellation: Cancellation) -> None:
        """Calls the function that frees, if one is decorated."""
        if self._cancelled is not None:
            await self._threads.outcome(self._cancelled, cancellation)

    @property
    def concurrency(self) -> int:
        """The requests that one process works on at once."""
        if self._concurrency is not None:
            return self._concurrency
        return CONCURRENCY if inspect.iscoroutinefunction(self._requested) else THREADS

    @property
    def understands(self) -> tuple[str, ...]:
        """The names of the known parameters, for the heartbeat; empty if it accepts any."""
        if self.shape is None:
            return ()
        return tuple(field.encode_name for field in msgspec.structs.fields(self.shape))

    @property
    def has_function(self) -> bool:
        """A function is decorated."""
        return self._requested is not None

    def report_through(self, report: Callable[[str, Status], Any] | None) -> None:
        """Connects `report` to a function of the running event loop; None disconnects it."""
        self._report = report
        self._loop = asyncio.get_running_loop() if report is not None else None

    # Running. -----------------------------------------------------------------------------

    async def serve(
        self,
        url: str | None = None,
        *,
        creds: str | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Provides until stop is set or this is cancelled; for a program with a loop of its own.
        ``url`` and ``creds`` default to ADMIT_NATS_URL and ADMIT_NATS_CREDS."""
        from admittance.providers.service import serve

        await serve(self, url=url, creds=creds, stop=stop or asyncio.Event())

    def run(self, url: str | None = None, *, creds: str | None = None) -> None:
        """Provides until SIGINT or SIGTERM. Arguments as in `serve`."""
        from admittance.providers.service import run

        run(self, url=url, creds=creds)
