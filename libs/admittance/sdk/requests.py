"""Receives the requests of a check or provider from its durable consumer.

The workload-controller creates the durable when a manifest names the program. The program itself
has no right to create its durable and waits for it. A delivery is acknowledged when its answer is
on the log; until then its acknowledgement deadline is extended every few seconds. A delivery that
this process does not finish goes to another replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

import structlog

from admittance.backoff import pause_after
from admittance.events.subjects import STREAM
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.pull_consumer import PullConsumer, RawMessage
from admittance.runtime.nats.protocol import Headers, text_of

if TYPE_CHECKING:
    from admittance.runtime.nats.connection import Subscription

PROGRESS_SECONDS: Final = 7.0
"""How often the acknowledgement deadlines of open deliveries are extended. The server redelivers a
delivery without an extended deadline after 30 s.
"""
MISSING_PAUSE_MIN: Final = 0.1
MISSING_PAUSE_MAX: Final = 2.0
MISSING_LOG_SECONDS: Final = 30.0
"""Seconds between two log lines about a missing durable."""
DONE: Final = b"+ACK"
WORKING: Final = b"+WPI"
NEVER: Final = b"+TERM"

log = structlog.get_logger()


class IncomingMessage(NamedTuple):
    """A message for the program: a request or a withdrawal. ``reply``: the reply subject, which
    identifies the delivery of the message. ``reply`` is empty for a message of the plain
    subscription, which needs no acknowledgement.
    """

    subject: str
    data: bytes
    headers: Headers
    reply: str


class RequestSource(NamedTuple):
    """Where a program receives its requests. ``durable``: the name of the program's consumer of the
    log. ``broadcast``: a subject that every replica also subscribes to, because a withdrawal may be
    delivered to another replica than its request. ``why_missing``: text for log lines, why the
    durable may be missing.
    """

    durable: str
    broadcast: str
    why_missing: str


class Acknowledger(Protocol):
    """Acknowledges deliveries or asks for their redelivery. A delivery with an empty reply subject
    needs no acknowledgement.
    """

    def ack(self, reply: str) -> None: ...
    def nak(self, reply: str, delay_seconds: float = 0.0) -> None: ...
    def let_wait(self, reply: str) -> None: ...


class RequestConsumer:
    """Receives the deliveries of one program. ``receive`` is called with each message and must not
    block. Each delivery must be ended with `ack`, `nak` or `term`.

    ``room``: the most open deliveries of this process; a delivery passed to `let_wait` does not
    count.
    """

    def __init__(
        self,
        bus: Bus,
        source: RequestSource,
        receive: Callable[[IncomingMessage], None],
        *,
        room: int,
        progress_seconds: float | None = None,
    ) -> None:
        """``progress_seconds``: replaces `PROGRESS_SECONDS`."""
        self._bus = bus
        self._source = source
        self._receive = receive
        self._pull = PullConsumer(bus, STREAM, self._find, self._on_delivery, batch=room)
        self._broadcast: Subscription | None = None
        self._held: dict[str, float] = {}
        self._resting: set[str] = set()
        self._out: list[tuple[str, bytes]] = []
        self._sending: asyncio.Task[None] | None = None
        self._logged_missing = 0.0
        self._progress = progress_seconds
        self._room = room

    @property
    def held(self) -> int:
        """The number of open deliveries."""
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """Whether `room` is used up, so that the next delivery is pulled only after an open one
        ends or waits.
        """
        return len(self._held) - len(self._resting) >= self._room

    async def start(self) -> None:
        """Subscribes to the plain subjects and starts to pull deliveries."""
        self._broadcast = await self._bus.nc.listen(self._source.broadcast, self._on_broadcast)
        await self._pull.start()

    @property
    def failed(self) -> asyncio.Future[None]:
        """A future that gets the error when no more messages can be received."""
        return self._pull.failed

    async def keep(self) -> None:
        """Extends the acknowledgement deadlines of open deliveries, until cancelled."""
        while True:
            pause = (self._progress or PROGRESS_SECONDS) / 2
            await asyncio.sleep(pause)
            now = clock.monotonic()
            late = [reply for reply, at in self._held.items() if now - at >= pause]
            for reply in late:
                self._held[reply] = now
                self._send(reply, WORKING)

    async def drain(self) -> None:
        """Stops pulling. Deliveries that the server has already sent are still received."""
        await self._pull.drain()

    async def stop(self) -> None:
        """Stops receiving and sends the outstanding acknowledgements."""
        await self._pull.stop()
        if self._broadcast is not None:
            await self._bus.nc.unlisten(self._broadcast)
        while self._sending is not None:
            await asyncio.wait([self._sending])

    # Acknowledgements. ----------------------------------------------------------

    def ack(self, reply: str) -> None:
        """Acknowledges a delivery."""
        self._settle(reply, DONE)

    def term(self, reply: str) -> None:
        """Ends a delivery that no replica can handle."""
        self._settle(reply, NEVER)

    def nak(self, reply: str, delay_seconds: float = 0.0) -> None:
        """Asks the server to deliver the message of a delivery again, after the delay."""
        delay = b' {"delay": %d}' % int(delay_seconds * 1e9) if delay_seconds else b""
        self._settle(reply, b"-NAK" + delay)

    def let_wait(self, reply: str) -> None:
        """Lets another delivery be pulled while the request of the given delivery waits."""
        if reply in self._held and reply not in self._resting:
            self._resting.add(reply)
            self._pull.taken(1)

    def _settle(self, reply: str, word: bytes) -> None:
        if self._held.pop(reply, None) is None:
            return
        if reply in self._resting:
            self._resting.discard(reply)
        else:
            self._pull.taken(1)
        self._send(reply, word)

    def _send(self, reply: str, word: bytes) -> None:
        self._out.append((reply, word))
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._flush())

    async def _flush(self) -> None:
        # A lost acknowledgement does no harm: the program recognises the redelivery.
        try:
            while self._out:
                out, self._out = self._out, []
                await self._bus.publish_unacknowledged(*out)
        finally:
            self._sending = None

    # Messages. -----------------------------------------------------------------------

    def _on_delivery(self, raw: RawMessage) -> None:
        reply = raw.reply.decode()
        self._held[reply] = clock.monotonic()
        self._receive(IncomingMessage(text_of(raw.subject), raw.data, Headers(raw.headers), reply))

    def _on_broadcast(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes) -> None:
        self._receive(IncomingMessage(text_of(subject), data, Headers(headers), ""))

    async def _find(self) -> str:
        name = self._source.durable
        missing = self._pull.missing_count
        if missing:
            since = clock.monotonic() - self._logged_missing
            # After one failure the server may only read its configuration again.
            if missing > 1 and (since >= MISSING_LOG_SECONDS or not self._logged_missing):
                self._logged_missing = clock.monotonic()
                log.warning("durable_missing", durable=name, reason=self._source.why_missing)
            await asyncio.sleep(pause_after(missing, MISSING_PAUSE_MIN, MISSING_PAUSE_MAX))
        else:
            self._logged_missing = 0.0
        return name


K = TypeVar("K", bound=Hashable)


class OpenDeliveries(Generic[K]):
    """The deliveries that are not acknowledged yet, by request; a request can have several open
    deliveries.
    """

    def __init__(self, consumer: Acknowledger) -> None:
        self._consumer = consumer
        self._replies: dict[K, list[str]] = {}
        self._since: dict[K, float] = {}
        """When the first open delivery of each request arrived."""

    def add(self, key: K, reply: str) -> bool:
        """Adds a delivery of a request. Returns True if the added delivery is the only open one of
        its request.
        """
        replies = self._replies.setdefault(key, [])
        replies.append(reply)
        self._since.setdefault(key, clock.monotonic())
        return len(replies) == 1

    def since(self, key: K) -> float | None:
        """When the first open delivery of a request arrived, by `clock.monotonic`; None if no
        delivery is open."""
        return self._since.get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._replies

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._replies))

    def ack(self, key: K) -> None:
        """Acknowledges all deliveries of a request."""
        self._since.pop(key, None)
        for reply in self._replies.pop(key, ()):
            self._consumer.ack(reply)

    def nak(self, key: K, delay_seconds: float = 0.0) -> None:
        """Asks the server to redeliver all deliveries of a request, after the delay."""
        self._since.pop(key, None)
        for reply in self._replies.pop(key, ()):
            self._consumer.nak(reply, delay_seconds)

    def let_wait(self, key: K) -> None:
        """Lets other deliveries be pulled while this request waits."""
        for reply in self._replies.get(key, ()):
            self._consumer.let_wait(reply)

    def hand_back(self) -> None:
        """Asks the server to redeliver all open deliveries to another replica."""
        for replies in self._replies.values():
            for reply in replies:
                self._consumer.nak(reply)
