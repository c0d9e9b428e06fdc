"""Publishes answers to the log: pipelined, in order, each with a future for its outcome."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from admittance.backoff import Backoff
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, BusRefused, Busy
from admittance.runtime.telemetry.logger import LogThrottle

PAUSE_MIN: Final = 0.05
PAUSE_MAX: Final = 2.0

log = structlog.get_logger()


class Outbox:
    """Publishes messages, many at once. Call `run` as a task to publish the queued messages.

    Messages must have ids: a message is published again if its acknowledgement was lost or the
    log refused it as `Busy`.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: list[tuple[Outgoing, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, message: Outgoing) -> asyncio.Future[None]:
        """Queues a message. The returned future is done when the message is on the log, or fails
        with BusRefused (but never Busy).
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, done))
        self._empty.clear()
        self._wake.set()
        return done

    async def emptied(self) -> None:
        """Waits until every queued message is on the log or refused."""
        await self._empty.wait()

    async def run(self) -> None:
        """Publishes the queued messages until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                taken, self._waiting = self._waiting, []
                await self._publish(taken)
            self._empty.set()

    async def _publish(self, taken: list[tuple[Outgoing, asyncio.Future[None]]]) -> None:
        backoff = Backoff(PAUSE_MIN, PAUSE_MAX)
        throttle = LogThrottle()
        while taken:
            try:
                outcomes = await self._bus.publish_all([message for message, _ in taken])
                again = self._settle(taken, outcomes)
                if not again:
                    return
                (taken, reason) = again
            except AdmittanceError as error:
                reason = error
            if throttle.due(clock.monotonic()):
                log.warning("answers_not_published_yet", count=len(taken), reason=str(reason))
            await asyncio.sleep(backoff.next())

    def _settle(
        self, taken: list[tuple[Outgoing, asyncio.Future[None]]], outcomes: list[int | BusRefused]
    ) -> tuple[list[tuple[Outgoing, asyncio.Future[None]]], AdmittanceError] | None:
        """Returns the messages to publish again and the reason; None if all outcomes are known."""
        again = []
        reason: BusRefused | None = None
        for message, outcome in zip(taken, outcomes, strict=True):
            done = message[1]
            if isinstance(outcome, Busy):
                again.append(message)
                reason = outcome
            elif done.done():
                continue
            elif isinstance(outcome, BusRefused):
                done.set_exception(outcome)
                # Marks the exception as retrieved: the task that waited may have been cancelled.
                done.exception()
            else:
                done.set_result(None)
        return (again, reason) if reason is not None else None
