"""Answers on their way to the log: pipelined, in order, each one told when the log has it."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AdmittanceError, Busy, Refused
from admittance.runtime.telemetry.logger import LogThrottle

PAUSE_MAX: Final = 2.0

log = structlog.get_logger()


class Outbox:
    """Publishes what is put in, many at once. ``run`` it as a task.

    Messages bear ids, so one whose acknowledgement was lost, or that the log does not take
    now (`Busy`), is simply said again: until the bus answers, however long that takes.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: list[tuple[Outgoing, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, message: Outgoing) -> asyncio.Future[None]:
        """Takes message; done when the log has it. Its exception: Refused, said by the server, but
        never Busy."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, done))
        self._empty.clear()
        self._wake.set()
        return done

    async def emptied(self) -> None:
        """Waits until everything that was put in is on the log, or refused."""
        await self._empty.wait()

    async def run(self) -> None:
        """Publishes, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                taken, self._waiting = self._waiting, []
                await self._publish(taken)
            self._empty.set()

    async def _publish(self, taken: list[tuple[Outgoing, asyncio.Future[None]]]) -> None:
        pause = 0.05
        told = LogThrottle()
        while taken:
            try:
                outcomes = await self._bus.publish_all([message for message, _ in taken])
                again = self._settle(taken, outcomes)
                if not again:
                    return
                (taken, reason) = again
            except AdmittanceError as error:
                reason = error
            if told.due(clock.monotonic()):
                log.warning("answers_not_published_yet", count=len(taken), reason=str(reason))
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX)

    def _settle(
        self, taken: list[tuple[Outgoing, asyncio.Future[None]]], outcomes: list[int | Refused]
    ) -> tuple[list[tuple[Outgoing, asyncio.Future[None]]], AdmittanceError] | None:
        """Those that the log may take later, and why not now; None: there are none."""
        again = []
        reason: Refused | None = None
        for one, outcome in zip(taken, outcomes, strict=True):
            done = one[1]
            if isinstance(outcome, Busy):
                again.append(one)
                reason = outcome
            elif done.done():
                continue
            elif isinstance(outcome, Refused):
                done.set_exception(outcome)
            else:
                done.set_result(None)
        return (again, reason) if reason is not None else None
