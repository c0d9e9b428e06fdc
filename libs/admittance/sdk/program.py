"""A check controller or provider as its author writes it, its heartbeats, and how it runs as a
process. Heartbeats are published periodically, and at once after a change in any thread.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ClassVar, Final, TypeVar

import structlog
import uvloop

from admittance.backoff import Backoff
from admittance.events.base import clipped_message
from admittance.events.names import token
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AccessDenied, BusUnavailable, SetupError, is_temporary
from admittance.runtime.nats.connection_options import (
    VARIABLES,
    BadOptions,
    ConnectionOptions,
    connection_options,
    names_a_login,
)
from admittance.runtime.process.admin import admin_port
from admittance.runtime.process.settings import Settings
from admittance.runtime.process.startup import collect_garbage_less_often
from admittance.runtime.process.supervise import stop_on_signals
from admittance.runtime.tasks import set_within
from admittance.runtime.telemetry import logs
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.sdk.program_metrics import ProgramMetrics
from admittance.sdk.threads import Threads

HEARTBEAT_PAUSE_SECONDS: Final = 1.0
"""Shortest time between two heartbeats."""
HEARTBEAT_MESSAGE_MAX: Final = 1024
"""The most characters of a heartbeat's message that receivers keep."""


class ChangeSignal:
    """Signals a change to event loops, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def send(self) -> None:
        """Sets the events of all listeners, if there are any."""
        with self._lock:
            for loop, changed in self._listeners:
                # ``call_soon_threadsafe`` raises RuntimeError if the event loop has ended; then its
                # listener does not exist any more.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(changed.set)

    @contextmanager
    def listener(self) -> Iterator[asyncio.Event]:
        """Returns an event of the running loop that each change sets."""
        listener = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._listeners.append(listener)
        try:
            yield listener[1]
        finally:
            with self._lock:
                self._listeners.remove(listener)


async def beat(
    bus: Bus, changes: ChangeSignal, heartbeat: Callable[[], tuple[str, bytes]], *, seconds: float
) -> None:
    """Publishes ``heartbeat()``, a subject and a payload, every ``seconds`` and after each change,
    until cancelled."""
    pause = min(HEARTBEAT_PAUSE_SECONDS, seconds / 2)
    with changes.listener() as changed:
        while True:
            changed.clear()
            if bus.nc.is_connected:
                await bus.publish_unacknowledged(heartbeat())
            await asyncio.sleep(pause)
            await set_within(changed, seconds - pause)


def heartbeat_message(message: str) -> str:
    """A message cut to the length that a heartbeat may have."""
    return clipped_message(message, HEARTBEAT_MESSAGE_MAX)


PEOPLE: Final = frozenset({"owner", "user", "approver", "viewer", "admin"})
"""The roles of people in credentials files."""
THREADS: Final = 16
GRACE_SECONDS: Final = 7.0
"""Seconds that work in progress may take after a stop: less than the ten seconds after which
container engines kill a container.
"""
CONNECT_PAUSE_MIN: Final = 0.2
CONNECT_PAUSE_MAX: Final = 5.0
RESTART_PAUSE: Final = 1.0

F = TypeVar("F", bound=Callable[..., Any])
log = structlog.get_logger()


class Program(ABC):
    """The base class of `AdmissionCheckController` and `Provider`: the author's functions, and how
    they run.

    ``main``: the author's function that answers a request. ``release``: the author's function that
    frees what was booked for a withdrawn request. Coroutine functions run in the event loop, plain
    functions in threads.
    """

    kind: ClassVar[str]
    """Check or provider: the service name in settings and the name of the connection."""
    log_field: ClassVar[str]
    """The log field with the program's name."""
    needed_login: ClassVar[str] = "admit auth add"
    """The command that adds the program's user to a locked server, without the program's name."""
    default_concurrency: ClassVar[int]
    """How many requests at once a coroutine function answers; for a plain function it is
    `THREADS`.
    """

    def __init__(
        self,
        name: str,
        *,
        parameters: type[Any] | None,
        concurrency: int | None,
        grace_seconds: float,
    ) -> None:
        token(name)  # `token` raises ValueError for an empty name
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency={concurrency} must be at least 1")
        self.name = name
        self.shape = parameters
        self.grace_seconds = grace_seconds
        self.changes = ChangeSignal()
        """Each signal of a change sends a heartbeat at once."""
        self.main: Callable[..., Any] | None = None
        self.release: Callable[..., Any] | None = None
        self.threads = Threads(concurrency or THREADS)
        self.metrics = ProgramMetrics(name)
        self._concurrency = concurrency
        self._publish: Callable[..., Any] | None = None
        self._bus: Bus | None = None
        self._not_connected = "starting"
        self._has_login = True
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def concurrency(self) -> int:
        """How many requests one process works on at once."""
        if self._concurrency is not None:
            return self._concurrency
        return self.default_concurrency if inspect.iscoroutinefunction(self.main) else THREADS

    @property
    def is_running(self) -> bool:
        """Whether `report` can publish an answer now."""
        return self._publish is not None

    def _only(self, function: F, present: Callable[..., Any] | None, what: str) -> F:
        """Returns ``function``. Raises ValueError if the author has already given a function
        (``present``) for the same purpose."""
        if present is not None:
            raise ValueError(
                f"{self.name} has a {what} already: the function {present.__qualname__}"
            )
        return function

    async def free(self, withdrawn: Any) -> None:
        """Calls the author's release function for a withdrawn request, if the author gave one."""
        if self.release is not None:
            await self.threads.outcome(self.release, withdrawn)

    def report_through(self, publish: Callable[..., Any] | None) -> None:
        """Connects `report` to a function of the running event loop; None disconnects it."""
        self._publish = publish
        self._loop = asyncio.get_running_loop() if publish is not None else None

    async def _report(self, about: Any, answer: Any) -> bool:
        if self._publish is None:
            raise RuntimeError(f"the program {self.name} is not running")
        return bool(await self._publish(about, answer))

    # Running. -----------------------------------------------------------------------------

    async def serve(
        self,
        url: str | None = None,
        *,
        creds: str | None = None,
        connection: ConnectionOptions | None = None,
        admin: str | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Answers requests until ``stop`` is set or the call is cancelled; for a program with an
        event loop of its own. ``url`` defaults to ADMIT_NATS_URL, and ``connection`` to the other
        variables ADMIT_NATS_…. ``creds``: a credentials file, in place of another login. ``admin``:
        HOST:PORT of an admin port with ``/livez``, ``/readyz`` and ``/metrics``; defaults to
        ADMIT_ADMIN. Retries the connection while the servers do not answer or refuse the
        credentials. Raises SetupError for a wrong setting.
        """
        settings = self._settings(url, creds, connection, admin)
        await self._serve(settings, stop=stop or asyncio.Event())

    def run(
        self,
        url: str | None = None,
        *,
        creds: str | None = None,
        connection: ConnectionOptions | None = None,
        admin: str | None = None,
    ) -> None:
        """Answers requests until SIGINT, SIGTERM or SIGHUP. The arguments are those of `serve`.
        A wrong setting ends the process with exit status 1 and one last line, ``error: …``.
        """
        collect_garbage_less_often()
        try:
            uvloop.run(self._run(self._settings(url, creds, connection, admin)))
        except SetupError as error:
            sys.exit(f"error: {' '.join(str(error).split())}")

    def _settings(
        self,
        url: str | None,
        creds: str | None,
        connection: ConnectionOptions | None,
        admin: str | None,
    ) -> Settings:
        self._has_login = bool(creds or connection) or names_a_login(os.environ, url or "")
        if creds is not None and connection is None:
            try:
                connection = connection_options(url=url, given={"creds": creds})
            except BadOptions as error:
                raise SetupError(str(error)) from None
        elif creds is not None:
            raise SetupError("creds and connection are both given: put the file into connection")
        return Settings.from_env(
            self.kind, url=url, connection=connection, admin=admin, own_variables=True
        )

    async def _run(self, settings: Settings) -> None:
        logs.configure(self.name, settings.instance, settings.json_logs, level=settings.log_level)
        stop = asyncio.Event()
        stop_on_signals(stop)
        await self._serve(settings, stop=stop)

    async def _serve(self, settings: Settings, *, stop: asyncio.Event) -> None:
        """Answers requests until ``stop`` is set. Restarts with a new connection after a failure of
        the bus (`errors.is_temporary`).
        """
        if self.main is None:
            raise RuntimeError(self._without_main())
        async with admin_port(settings) as port:
            with ExitStack() as readiness:
                if port is not None:
                    readiness.enter_context(port.ready_if(self.name, self._why_not_ready))
                await self._serve_connected(settings, stop)

    async def _why_not_ready(self) -> str:
        """Why the program cannot answer requests now; empty if it can."""
        if self._bus is None:
            return self._not_connected
        if not self._bus.nc.is_connected:
            return "no connection to the bus"
        return self.why_inactive

    async def _serve_connected(self, settings: Settings, stop: asyncio.Event) -> None:
        throttle = LogThrottle()
        while (bus := await self._connected(settings, stop)) is not None:
            self._bus = bus
            try:
                with self._unless_denied(bus, stop) as ended:
                    await self._work(bus, settings, ended)
                return
            except Exception as error:
                if not is_temporary(error):
                    raise
                self._not_connected = " ".join(str(error).split())
                if throttle.due(clock.monotonic()):
                    log.warning(
                        "connection_restarted", **{self.log_field: self.name}, reason=str(error)
                    )
            finally:
                self._bus = None
                await bus.close()
            await set_within(stop, RESTART_PAUSE)

    @contextmanager
    def _unless_denied(self, bus: Bus, stop: asyncio.Event) -> Iterator[asyncio.Event]:
        """Returns an event that is set with ``stop``, and when the server denies a right to a
        program that names no login of its own, or that of a person: the login of a person is
        not that of a program, so the program could only wait. Raises SetupError at the end of the
        block in that case.
        """
        if self._has_login and bus.nc.role not in PEOPLE:
            yield stop
            return
        ended = asyncio.Event()
        denied: list[str] = []

        def on_denied(subject: str) -> None:
            denied.append(subject)
            ended.set()

        async def follow() -> None:
            await stop.wait()
            ended.set()

        following = asyncio.ensure_future(follow())
        bus.nc.on_denied.append(on_denied)
        bus.logs_denials = False
        try:
            yield ended
        finally:
            following.cancel()
        if denied and not stop.is_set():
            raise self._without_login("the login that it uses may not read its requests")

    def _without_login(self, reason: str) -> SetupError:
        return SetupError(
            f"the {self.kind} {self.name} has no login of its own, and {reason}: make one with "
            f"`{self.needed_login} {self.name} -o FILE`, and start the program with "
            f"{VARIABLES['creds']}=FILE"
        )

    async def _connected(self, settings: Settings, stop: asyncio.Event) -> Bus | None:
        """Returns a connection, or None if ``stop`` was set first."""
        backoff = Backoff(CONNECT_PAUSE_MIN, CONNECT_PAUSE_MAX)
        throttle = LogThrottle()
        while not stop.is_set():
            try:
                return await Bus.connect(
                    settings.url, name=f"{self.kind} {self.name}", access=settings.connection
                )
            except (SetupError, BusUnavailable) as error:
                self._not_connected = " ".join(str(error).split())
                if isinstance(error, AccessDenied) and not self._has_login:
                    # After the colon comes what a person would do.
                    refusal = self._not_connected.partition(": ")[0]
                    raise self._without_login(refusal) from None
                if throttle.due(clock.monotonic()):
                    log.warning(
                        "not_connected_yet", **{self.log_field: self.name}, reason=str(error)
                    )
            await set_within(stop, backoff.next())
        return None

    @property
    @abstractmethod
    def why_inactive(self) -> str:
        """Why the author's program says that it can answer no request; empty if it can."""

    @abstractmethod
    async def _work(self, bus: Bus, settings: Settings, stop: asyncio.Event) -> None:
        """Runs one replica with this connection until ``stop`` is set."""

    @abstractmethod
    def _without_main(self) -> str:
        """The error text for a program without a main function."""
