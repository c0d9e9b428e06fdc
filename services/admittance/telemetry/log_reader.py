"""Reads the facts about workloads in the order of the log; the NATS server keeps the position of
the reader.

A fact is acknowledged when all spans made from this fact and earlier facts have been exported or
dropped. After a restart the facts behind the last acknowledged fact are read again, and give spans
with the same ids.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

import msgspec
import structlog

from admittance.events.names import token
from admittance.events.requests.base import Reply, Request
from admittance.events.requests.history import Events, EventsReply
from admittance.events.requests.reading import ConsumerReply, TelemetryConsumer
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
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.tasks import raise_if_cancelled
from admittance.runtime.telemetry import tracing
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.traces.spans import LoggedFact

BATCH: Final = 200
AGAIN_SECONDS: Final = 1.0
"""Seconds before a failed request to the workload-controller is repeated."""
STANDBY_SECONDS: Final = 5.0
"""Seconds after which a standby instance asks again for the consumer of the log."""

R = TypeVar("R", bound=Reply)
log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class _Read(NamedTuple):
    """A fact that was read, and how many spans had been queued in all when the spans of this fact
    were made."""

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
        """How many facts on the log the telemetry service has not read yet."""
        return self._puller.pending

    async def start(self) -> None:
        """Waits until this instance may read the log."""
        await self._puller.start()

    async def batch(self) -> list[Delivery]:
        """Returns the next facts of the log, at least one; waits for the first."""
        return await self._puller.batch()

    def made_spans(self, delivery: Delivery, queued: int) -> None:
        """Records that all spans of the delivery are made. ``queued``: how many spans were queued
        in all, up to and with the spans of this delivery."""
        self._unfinished.append(_Read(delivery, queued))

    def acknowledge(self, finished: int) -> None:
        """Acknowledges the facts that all have their spans among the first ``finished`` spans:
        these were exported or dropped."""
        last = None
        while self._unfinished and self._unfinished[0].queued <= finished:
            last = self._unfinished.popleft()
        if last is not None:
            self._puller.ack_soon(last.delivery)

    async def close(self) -> None:
        """Stops reading. The NATS server keeps the position of the consumer in the log."""
        await self._puller.close()

    async def history(self, workload: WorkloadName, also: Iterable[str]) -> list[LoggedFact]:
        """Returns, in the order of the log, all facts about a workload, about the stored workloads
        of its family, and about the workloads ``also`` of the same namespace."""
        subject = f"admit.api.events.{token(workload.namespace)}"
        names = tuple(also)
        facts: list[LoggedFact] = []
        after = 0
        while True:
            request = Events(workload=workload.name, also=names, family=True, after=after)
            page = await self._ask(subject, request, EventsReply)
            facts += [
                LoggedFact(
                    entry.sequence, entry.time, entry.subject, bytes(entry.data), entry.trace
                )
                for entry in page.entries
            ]
            if page.complete or page.covered() <= after:
                return facts
            after = page.covered()

    async def _make_consumer(self, after: int | None) -> MadeConsumer:
        """Waits until the workload-controller gives this instance the telemetry consumer of the
        log."""
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
        """Returns the answer of the workload-controller; repeats the request until an answer comes
        without an error."""
        while True:
            try:
                answer = await self._bus.request(subject, _encode(request))
                answered = msgspec.json.decode(answer, type=reply)
                self.trouble = answered.error
            except BusUnavailable as error:
                self.trouble = str(error)
            if not self.trouble:
                return answered
            raise_if_cancelled()
            if self._throttle.due(clock.monotonic()):
                log.warning("waiting_for_workload_controller", reason=self.trouble)
            await asyncio.sleep(AGAIN_SECONDS)


def logged_fact(delivery: Delivery) -> LoggedFact:
    """The delivery as a `LoggedFact`, from which spans are made."""
    trace = tracing.extract(delivery.headers)
    return LoggedFact(delivery.sequence, delivery.time, delivery.subject, delivery.data, trace)
