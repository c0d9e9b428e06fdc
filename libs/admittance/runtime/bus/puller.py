"""Reads the log: deliveries in batches, in the order of the stream, across restarts.

With ``ack="all"``, for services that apply facts in order, one acknowledgement covers a fact and
everything before it. A redelivery would break the order: messages sent to a broken connection
arrive again only after ``ack_wait``, behind newer facts. Therefore each renewal creates a new
consumer that starts after the last acknowledged fact, skips facts that were returned before, and
then deletes the old consumer. A crash between the steps of a renewal leaves at least one consumer
with a correct acknowledged sequence, and the next reader starts from the newest of these
consumers.

A program that may not create consumers passes ``request``: another service then makes the one
consumer of the program anew, with ``ack="all"``.

With ``ack="explicit"``, for workers that share work, there is one durable consumer. Each delivery
is acknowledged separately; without an acknowledgement it is redelivered to any worker after
``ack_wait``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from math import exp
from typing import Final, Literal

import msgspec

from admittance.events import subjects
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import Consumers
from admittance.runtime.bus.pull_consumer import ConsumerRequest, PullConsumer, RawMessage
from admittance.runtime.errors import AccessDenied, BusRefused, BusUnavailable, Superseded
from admittance.runtime.nats.protocol import Headers, text_of

CALM_RATE: Final = 300.0
"""Up to this number of facts per second there is no pause before a batch."""
CROWDED_RATE: Final = 600.0
"""When facts arrive at this rate or faster, the pause is `CROWDED_PAUSE`."""
CROWDED_PAUSE: Final = 0.003
"""Seconds. The start of a workload waits for two pauses, and meanwhile its quota is unused: longer
pauses would cost more than they save.
"""
RATE_MEMORY: Final = 0.3
"""Time in seconds after which the measured rate of facts counts a fact only one third."""


class Pace:
    """Computes how long to collect facts before a batch, from the rate at which they arrive.

    Each batch has a fixed cost: three round trips and several task switches. At a low rate of facts
    each fact is handled without a pause. At hundreds of facts per second the fixed cost would
    dominate; then a pause of a few milliseconds makes all facts faster.
    """

    def __init__(self) -> None:
        self._level = 0.0
        self._at = 0.0

    def record(self, count: int, now: float) -> None:
        """Records the arrival of facts, from which the rate is computed. ``now``: monotonic
        seconds.
        """
        self._level = self._level * exp((self._at - now) / RATE_MEMORY) + count
        self._at = now

    def pause(self, now: float) -> float:
        """The seconds for which the reader waits for more facts before it takes the next batch;
        often 0.
        """
        rate = self._level * exp((self._at - now) / RATE_MEMORY) / RATE_MEMORY
        return CROWDED_PAUSE * min(1.0, max(0.0, (rate - CALM_RATE) / (CROWDED_RATE - CALM_RATE)))


CREATE_PATIENCE_SECONDS: Final = (1.5, 3.0, 6.0)
"""How long a reader waits for a new consumer, before it makes one with another name. A cluster may
choose a server as the first leader of a consumer that is lost, and then elects another one for 4 to
9 s.
"""
ACK_SOON_SECONDS: Final = 0.05
"""Most seconds by which `ack_soon` delays an acknowledgement."""


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One delivery of a message of the log. ``deliveries``: how often the message was delivered,
    this delivery included.
    """

    subject: str
    data: bytes
    headers: Mapping[str, str]
    sequence: int
    nanoseconds: int = 0
    reply: str = ""
    deliveries: int = 1

    @property
    def time(self) -> datetime:
        """The time at which the server stored the message."""
        return clock.from_nanoseconds(self.nanoseconds)


class Puller:
    """Reads the facts under ``filters``; the module's docstring describes the two kinds of
    acknowledgement.

    ``name``: the name of the durable. With ``ack="all"``, the consumers are named
    ``<name>-<generation>-<n>``, where ``generation`` is the epoch of the lease. Each consumer
    continues where the newest consumer before it stopped, and a reader of an older generation gets
    Superseded. Without an earlier consumer the reader starts at the first fact on the log.
    ``request``: makes the consumer in place of the Puller, after the given sequence, or where the
    maker decides.
    """

    def __init__(
        self,
        bus: Bus,
        name: str,
        filters: Sequence[str],
        *,
        ack: Literal["all", "explicit"] = "all",
        generation: int = 0,
        batch: int = 1000,
        ack_wait: float = 30.0,
        request: ConsumerRequest | None = None,
    ) -> None:
        self._bus = bus
        self._request = request
        self._name = name
        self._consumers = Consumers(bus, subjects.STREAM, name, filters, ack_wait=ack_wait)
        self._ack_all = ack == "all"
        self._generation = generation
        self._batch = batch
        self.floor = 0
        """Every message of the log up to this sequence is acknowledged."""
        self.last = 0
        """The newest sequence returned by `batch`."""
        self.pending = 0
        """The lag: the number of facts on the log after the newest received fact."""
        self._round = 0
        self._replaced = 0
        """Deliveries up to this sequence came from consumers that were replaced."""
        self._consumed = 0
        self._newest = 0
        self._late: list[tuple[int, bytes]] = []
        self._buffer: list[RawMessage] = []
        self._ready = asyncio.Event()
        self._pull: PullConsumer | None = None
        self._pace = Pace()
        self._soon: Delivery | None = None
        self._soon_timer: asyncio.TimerHandle | None = None
        self._tidying: asyncio.Task[None] | None = None

    @property
    def consumer(self) -> str:
        """The name of the current consumer."""
        return self._pull.consumer if self._pull is not None else ""

    @property
    def idle(self) -> bool:
        """Whether `batch` has returned all facts of the log, as far as this process knows."""
        return not self.pending and not self._buffer

    async def start(self) -> None:
        """Creates the consumer of the reader; without this call, the first `batch` creates the
        consumer. Raises Superseded if a newer generation has taken over.
        """
        if self._pull is not None:
            return
        make = self._create_generation if self._ack_all else self._ensure_durable
        if self._request is not None:
            make = self._requested
        pull = PullConsumer(self._bus, subjects.STREAM, make, self._on_raw, batch=self._batch)
        self._pull = pull
        try:
            await pull.start()
        except BaseException:
            self._pull = None
            raise
        pull.failed.add_done_callback(lambda _: self._ready.set())

    async def batch(self) -> list[Delivery]:
        """The deliveries received since the last call: at least one, at most a batch. Waits without
        limit for the first delivery, and at a high rate a little longer for more.

        Raises Superseded if a newer generation has taken over.
        """
        await self.start()
        pull = self._pull
        assert pull is not None
        while True:
            if pull.failed.done():
                pull.failed.result()
            if self._buffer:
                break
            self._ready.clear()
            await self._ready.wait()
        pause = self._pace.pause(clock.monotonic())
        if pause and len(self._buffer) < self._batch:
            await asyncio.sleep(pause)
        raws, self._buffer = self._buffer[: self._batch], self._buffer[self._batch :]
        pull.taken(len(raws))
        self._pace.record(len(raws), clock.monotonic())
        deliveries = [_delivery(raw) for raw in raws]
        self.last = deliveries[-1].sequence
        return deliveries

    async def ack(self, delivery: Delivery) -> None:
        """Acknowledges the delivery (with ``ack="all"``, also everything before it), and waits for
        the server's confirmation. Raises BusUnavailable without a confirmation: then the message
        may be delivered again.
        """
        if self._ack_all:
            self.floor = max(self.floor, delivery.sequence)
            if delivery.sequence <= self._replaced:
                # The consumer was replaced: the new consumer delivers the same fact again, which is
                # skipped and acknowledged (`_on_raw`). At the latest, the next acknowledgement
                # covers the redelivered fact.
                self._ack_late()
                return
        await self._bus.request(delivery.reply, b"+ACK", timeout=5.0)

    def ack_soon(self, delivery: Delivery) -> None:
        """Acknowledges, within `ACK_SOON_SECONDS` and without confirmation, everything up to the
        delivery; only with ``ack="all"``. If the acknowledgement is lost, the next leader reads
        some facts again and skips them, because they are applied.
        """
        self.floor = max(self.floor, delivery.sequence)
        self._soon = delivery
        if self._soon_timer is None:
            loop = asyncio.get_running_loop()
            self._soon_timer = loop.call_later(ACK_SOON_SECONDS, self._ack_now)

    def _ack_now(self) -> None:
        self._soon_timer = None
        if self._soon is not None and self._soon.sequence > self._replaced:
            self._publish_ack(self._soon.reply)
        self._ack_late()

    async def again(self, delivery: Delivery, delay_seconds: float) -> None:
        """Asks for a redelivery after the delay, of seconds, not minutes; only with
        ``ack="explicit"``.
        """
        if self._ack_all:
            raise ValueError("redelivery with ack=all would break the order")
        nak = b'-NAK {"delay": %d}' % int(delay_seconds * 1e9)
        await self._bus.nc.publish(delivery.reply, nak)

    async def working(self, delivery: Delivery) -> None:
        """Restarts the delivery's ``ack_wait``; only with ``ack="explicit"``."""
        await self._bus.nc.publish(delivery.reply, b"+WPI")

    async def close(self) -> None:
        """Stops reading. The reader's consumer stays on the server for the next leader."""
        if self._soon_timer is not None:
            self._soon_timer.cancel()
            self._ack_now()
        self._end_tidying()
        pull, self._pull = self._pull, None
        if pull is not None:
            await pull.stop()

    # Received messages. -----------------------------------------------------------------

    def _on_raw(self, raw: RawMessage) -> None:
        self.pending = raw.pending
        pull = self._pull
        if self._ack_all:
            if raw.consumed != self._consumed + 1 and pull is not None:
                # A delivery of the consumer was missed, so later deliveries must not be returned to
                # the caller.
                pull.renew()
                pull.taken(1)
                return
            self._consumed = raw.consumed
            if raw.sequence <= self._newest:
                self._late.append((raw.sequence, raw.reply))
                if raw.sequence <= self.floor:
                    self._ack_late()
                if pull is not None:
                    pull.taken(1)
                return
            self._newest = raw.sequence
        self._buffer.append(raw)
        self._ready.set()

    def _ack_late(self) -> None:
        done = [reply for sequence, reply in self._late if sequence <= self.floor]
        if done:
            self._late = [late for late in self._late if late[0] > self.floor]
            self._publish_ack(done[-1].decode())

    def _publish_ack(self, reply: str) -> None:
        said = asyncio.ensure_future(self._bus.nc.publish(reply, b"+ACK"))
        said.add_done_callback(lambda task: task.cancelled() or task.exception())

    # Consumers. -------------------------------------------------------------------------

    async def _create_generation(self) -> str:
        """Replaces all older consumers by a new one that starts after the acknowledged sequence."""
        if self._round:
            # This reader knows the acknowledged sequence from its own reading, so it need not ask
            # the server. A cluster without one of its servers needs seconds to list consumers, so
            # the new consumer does not wait for the list.
            name = await self._create_next()
            self._end_tidying()
            self._tidying = asyncio.create_task(self._tidy(name))
            return name
        known = await self._not_superseded()
        if known:
            # Use the floor of the newest consumer: an older consumer, of a paused leader, may have
            # acknowledged less.
            generation, number, _, floor = max(known)
            self.floor = max(self.floor, floor)
            if generation == self._generation:
                self._round = number
        name = await self._create_next()
        await self._delete(old for _, _, old, _ in known)
        return name

    async def _not_superseded(self) -> list[tuple[int, int, str, int]]:
        known = await self._consumers.generations()
        newer = [name for generation, _, name, _ in known if generation > self._generation]
        if newer:
            raise Superseded(f"consumer {newer[0]} replaces generation {self._generation}")
        return known

    async def _create_next(self) -> str:
        # Messages that were received but not returned yet stay valid: they are in order, and
        # repeated ones are skipped.
        self._begin_again()
        start = self.floor + 1
        settings = {
            "ack_policy": "all",
            "deliver_policy": "by_start_sequence" if start > 1 else "all",
            **({"opt_start_seq": start} if start > 1 else {}),
        }
        why = ""
        for patience in CREATE_PATIENCE_SECONDS:
            name = self._next_name()
            try:
                self.pending = await self._consumers.create(name, settings, timeout=patience)
            except AccessDenied:
                raise
            except BusUnavailable as error:
                why = str(error)
            else:
                return name
        raise BusUnavailable(f"no consumer {name} was made in time: {why}")

    def _next_name(self) -> str:
        name = ""
        while not name or name in self._consumers.foreign:
            self._round += 1
            name = f"{self._name}-{self._generation}-{self._round}"
        return name

    async def _tidy(self, current: str) -> None:
        """Deletes the consumers that ``current`` replaced. Ends the reading if a newer generation
        has taken over: then ``current`` itself is deleted."""
        try:
            known = await self._not_superseded()
            await self._delete(old for _, _, old, _ in known if old != current)
        except Superseded as error:
            with suppress(BusRefused, BusUnavailable):
                await self._delete([current])
            if self._pull is not None:
                self._pull.fail(error)
        except (BusRefused, BusUnavailable):
            return  # the next renewal of the consumer deletes the old consumers

    async def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(BusRefused):
                await self._consumers.delete(name)

    def _end_tidying(self) -> None:
        tidying, self._tidying = self._tidying, None
        if tidying is not None:
            tidying.cancel()

    def _begin_again(self) -> None:
        self._consumed = 0
        self._late = []
        self._replaced = self._newest

    async def _requested(self) -> str:
        assert self._request is not None
        self._begin_again()
        made = await self._request(self.floor if self._round else None)
        self._round += 1
        self.floor = max(self.floor, made.after)
        self.pending = made.pending
        return made.name

    async def _ensure_durable(self) -> str:
        self.pending = await self._consumers.ensure_durable()
        return self._name


def _delivery(raw: RawMessage) -> Delivery:
    return Delivery(
        text_of(raw.subject),
        raw.data,
        Headers(raw.headers) if raw.headers else _NO_HEADERS,
        raw.sequence,
        raw.nanoseconds,
        raw.reply.decode(),
        raw.deliveries,
    )


_NO_HEADERS: Final[Mapping[str, str]] = {}
