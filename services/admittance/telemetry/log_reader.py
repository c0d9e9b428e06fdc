"""Reads the facts about workloads in the order of the log, and keeps the position on the server.

A fact is acknowledged when the spans that were made up to it have been exported or dropped. After a
restart the facts behind the last acknowledged one are read again, and give spans with the same ids.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

import msgspec
import structlog

from admittance.events.names import token
from admittance.events.reading_requests import ConsumerReply, TelemetryConsumer
from admittance.events.requests import Events, EventsReply, Reply, Request
from admittance.events.subjects import (
    TELEMETRY_CONSUMER,
    TELEMETRY_DURABLE,
    TELEMETRY_FILTERS,
    WorkloadName,
)
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.pull_consumer import MadeConsumer
from admittance.runtime.bus.puller import Delivery, Puller
from admittance.runtime.errors import Unavailable
from admittance.runtime.tasks import raise_if_cancelled
from admittance.runtime.telemetry import tracing
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.traces.spans import LoggedFact

BATCH: Final = 200
AGAIN_SECONDS: Final = 1.0
"""Pause before a request to the workload-controller is repeated."""
STANDBY_SECONDS: Final = 5.0
"""Seconds after which a standby instance asks again for the consumer of the log."""

R = TypeVar("R", bound=Reply)
log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class _Read(NamedTuple):
    """A fact that was read, and how many spans were queued after it."""

    delivery: Delivery
    queued: int


class LogReader:
    """Reads the log as ``instance``. ``reader``: the instance that reads the log while this
    instance stands by. ``trouble``: why the log cannot be read now; empty if the log can be read.
    """

    def __init__(self, bus: Bus, instance: str) -> None:
        self.reader = ""
        self.trouble = ""
        self._bus = bus
        self._instance = instance
        self._unfinished: deque[_Read] = deque()
        self._throttle = LogThrottle()
        self._puller = Puller(
            bus,
            TELEMETRY_DURABLE,
            TELEMETRY_FILTERS,
            batch=BATCH,
            request=self._make_consumer,
        )

    @property
    def lag(self) -> int:
        """How many facts are not read yet."""
        return self._puller.pending

    async def start(self) -> None:
        """Waits until this instance may read the log."""
        await self._puller.start()

    async def batch(self) -> list[Delivery]:
        """The next facts, at least one."""
        return await self._puller.batch()

    def made_spans(self, delivery: Delivery, queued: int) -> None:
        """Records that ``queued`` spans in all were queued when the spans up to the delivery had
        been made."""
        self._unfinished.append(_Read(delivery, queued))

    def acknowledge(self, finished: int) -> None:
        """Acknowledges the facts whose spans are among the first ``finished`` ones."""
        last = None
        while self._unfinished and self._unfinished[0].queued <= finished:
            last = self._unfinished.popleft()
        if last is not None:
            self._puller.ack_soon(last.delivery)

    async def close(self) -> None:
        """Stops reading. The NATS server keeps the position of the consumer in the log."""
        await self._puller.close()

    async def history(self, workload: WorkloadName, also: Iterable[str]) -> list[LoggedFact]:
        """All facts on the log, in order, about a workload, about those of its family that are
        stored now, and about others of the namespace, by their names."""
        subject = f"admit.api.events.{token(workload.namespace)}"
        names = tuple(also)
        found: list[LoggedFact] = []
        while True:
            after = found[-1].sequence if found else 0
            request = Events(workload=workload.name, also=names, family=True, after=after)
            page = await self._ask(subject, request, EventsReply)
            found += [
                LoggedFact(one.sequence, one.time, one.subject, bytes(one.data), one.trace)
                for one in page.entries
            ]
            if page.complete or not page.entries:
                return found

    async def _make_consumer(self, after: int | None) -> MadeConsumer:
        """Waits until this instance has the consumer of the log."""
        request = TelemetryConsumer(instance=self._instance, after=after)
        while True:
            made = await self._ask(TELEMETRY_CONSUMER, request, ConsumerReply)
            if not made.reader:
                self.reader = ""
                log.info("reading", after=made.after, unread=made.pending)
                return MadeConsumer(made.consumer, made.after, made.pending, made.last)
            if made.reader != self.reader:
                log.info("standing_by", reader=made.reader)
            self.reader = made.reader
            await asyncio.sleep(STANDBY_SECONDS)

    async def _ask(self, subject: str, request: Request, reply: type[R]) -> R:
        """The answer of the workload-controller; waits until it has one without an error."""
        while True:
            try:
                answer = await self._bus.request(subject, _encode(request))
                found = msgspec.json.decode(answer, type=reply)
                self.trouble = found.error
            except Unavailable as error:
                self.trouble = str(error)
            if not self.trouble:
                return found
            raise_if_cancelled()
            if self._throttle.due(clock.monotonic()):
                log.warning("waiting_for_workload_controller", reason=self.trouble)
            await asyncio.sleep(AGAIN_SECONDS)


def logged_fact(one: Delivery) -> LoggedFact:
    """The delivery as the makers of spans read it."""
    trace = tracing.extract(one.headers)
    return LoggedFact(one.sequence, one.time, one.subject, one.data, trace)
