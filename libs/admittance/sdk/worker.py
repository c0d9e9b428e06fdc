"""One running replica of a check controller or provider: receives requests, sends heartbeats, and
ends in order.

To end, the replica (1) hands deliveries that arrive from now on to other replicas and stops
pulling, (2) lets work under way finish within the grace period, (3) waits until the answers of that
work are on the log and then acknowledges their deliveries. After a ``kill -9`` at any point the
server redelivers every request that was not acknowledged.
"""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog

from admittance.events.codec import Undecodable, decode
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import PASSING
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import end_tasks
from admittance.sdk.outbox import Outbox
from admittance.sdk.program import Program, beat
from admittance.sdk.requests import IncomingMessage, RequestConsumer, RequestSource

AGAIN_SECONDS: Final = 5.0
"""Seconds before a request is redelivered after a bug ended the work on the request."""

P = TypeVar("P", bound=Program)
log = structlog.get_logger()


class Worker(ABC, Generic[P]):
    """One replica of the program ``program``. A subclass defines how it handles a fact, what its
    heartbeat contains, and how its work ends.
    """

    def __init__(
        self,
        program: P,
        bus: Bus,
        settings: Settings,
        source: RequestSource,
        *,
        log_name: str,
        progress_seconds: float | None = None,
    ) -> None:
        """``log_name``: the beginning of the names of the program's log events.
        ``progress_seconds``: how often the acknowledgement deadlines of open deliveries are
        extended.
        """
        self._program = program
        self._bus = bus
        self._settings = settings
        self._log_name = log_name
        self._outbox = Outbox(bus)
        self._consumer = RequestConsumer(
            bus,
            source,
            self._on_message,
            room=max(4, 2 * program.concurrency),
            progress_seconds=progress_seconds,
        )
        self._has_started = False
        self._stopping = False

    # Methods that a subclass defines. -----------------------------------------------------

    @abstractmethod
    def _on_fact(self, fact: object, message: IncomingMessage) -> None:
        """Handles a request or withdrawal that the program received. The method must return at
        once, without blocking.
        """

    @abstractmethod
    def _heartbeat(self) -> tuple[str, bytes]:
        """Returns subject and payload of the current heartbeat."""

    def _beside(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Further coroutines of the subclass that run until the replica ends."""
        return ()

    @abstractmethod
    async def _finish(self, grace_seconds: float) -> None:
        """Waits for work under way, cancels the work that still runs after ``grace_seconds``, and
        hands the deliveries of cancelled work to other replicas.
        """

    @abstractmethod
    async def report(self, about: Any, answer: Any) -> bool:
        """Publishes an answer that the author's program gives later."""

    # Running. -----------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Answers requests until ``stop`` is set."""
        metrics = self._program.metrics.metrics(lambda: self._consumer.held)
        async with show_metrics(self._settings, *metrics):
            await self._run(stop)

    async def _run(self, stop: asyncio.Event) -> None:
        program = self._program
        program.report_through(self.report)
        await run_until_stopped(
            self._start(stop),
            (
                self._outbox.run(),
                self._consumer.keep(),
                beat(
                    self._bus,
                    program.changes,
                    self._counted_heartbeat,
                    seconds=self._settings.beat_seconds,
                ),
                *self._beside(),
            ),
            stop=stop,
            failed=self._consumer.failed,
            end=self._leave,
        )

    def _counted_heartbeat(self) -> tuple[str, bytes]:
        self._program.metrics.beat()
        return self._heartbeat()

    async def _start(self, stop: asyncio.Event) -> None:
        await self._consumer.start()
        with suppress(*PASSING):
            # The server refuses what this login may not do before it answers the ping.
            await self._bus.nc.flush()
        if stop.is_set():
            return
        self._has_started = True
        log.info(f"{self._log_name}_started", **{self._program.log_field: self._program.name})

    async def _leave(self) -> None:
        with suppress(TimeoutError):
            # ``wait_for`` runs the coroutine that ends the replica as a task of its own, so that a
            # cancellation of the present task does not cancel the end.
            await asyncio.wait_for(self._end(), self._program.grace_seconds + 10.0)
        self._program.report_through(None)

    async def _end(self) -> None:
        self._stopping = True
        finishing = asyncio.create_task(self._finish(self._program.grace_seconds))
        await self._consumer.drain()
        await finishing
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._outbox.emptied()
        # Lets the tasks run that waited for their answers to be on the log: these tasks acknowledge
        # their deliveries.
        await asyncio.sleep(0)
        await self._consumer.stop()
        if self._has_started:
            log.info(f"{self._log_name}_ended", handed_back=self._consumer.held)

    def _on_message(self, message: IncomingMessage) -> None:
        try:
            fact = decode(message.subject, message.data)
            if self._stopping and message.reply:
                self._consumer.nak(message.reply)
            else:
                self._on_fact(fact, message)
        except (Undecodable, msgspec.MsgspecError) as error:
            log.error("message_unreadable", subject=message.subject, reason=str(error))
            self._consumer.term(message.reply)
        except Exception:
            # The exception is a bug, perhaps only of this version: another replica may handle the
            # delivery.
            log.exception("message_not_handled", subject=message.subject)
            self._consumer.nak(message.reply, AGAIN_SECONDS)


async def run_until_stopped(
    start: Coroutine[Any, Any, None],
    beside: Iterable[Coroutine[Any, Any, None]],
    *,
    stop: asyncio.Event,
    failed: asyncio.Future[None],
    end: Callable[[], Awaitable[None]],
) -> None:
    """Runs ``start``, then waits until ``stop`` is set. ``end`` is always awaited, while the
    coroutines of ``beside`` still run. The coroutines of ``beside`` and ``failed`` end only with an
    error, which is raised.
    """
    tasks = [asyncio.create_task(work) for work in beside]
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(start)
    try:
        watched: list[asyncio.Future[Any]] = [stopping, failed, *tasks]
        await asyncio.wait([starting, *watched], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for task in watched:
            if task.done():
                task.result()
    finally:
        starting.cancel()
        await end()
        await end_tasks(*tasks, stopping, starting)


def secret(settings: Settings) -> bytes:
    """The key for the hashes of message ids: equal for all replicas with the same credentials, and
    not guessable by other programs.
    """
    creds = settings.connection.creds
    if creds is None:
        return b""
    try:
        return hashlib.blake2b(Path(creds).read_bytes(), digest_size=32).digest()
    except OSError:
        return b""
