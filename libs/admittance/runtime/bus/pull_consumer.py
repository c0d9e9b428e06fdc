"""A pull consumer that always has an open pull request, so that messages arrive at once.

The pull request is renewed when half of it is used, so no timer and no round trip delays a message.
A pull subscription can go silent after a restart of the server, so the server sends heartbeats.
When the heartbeats stop, after a reconnect, and when the consumer is missing, this module creates
inbox, consumer and request again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import nats.errors
from nats.aio.subscription import Subscription

from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import is_temporary
from admittance.runtime.nats.protocol import description, status
from admittance.runtime.telemetry.logger import logger

OWN_HEARTBEAT_SECONDS: Final = 2.0
OTHER_HEARTBEAT_SECONDS: Final = 0.3
"""How often the server sends a heartbeat for an open pull request: if the server of the connection
holds the consumer itself, and if another server may hold it. In the second case a request can be
lost while the connection stays.
"""
SILENCE: Final = 2.5
"""After this number of heartbeat intervals without a message, the consumer may be gone."""
EXPIRES: Final = 30.0
"""Seconds for which the server keeps one pull request open."""
BYTES: Final = 8 * 1024 * 1024
"""The most bytes that one pull request asks for. nats-server disconnects a client that has not read
64 MiB of what was sent to it, which a busy reader of long messages would otherwise reach. It must
be more than the longest message.
"""

SHORT: Final = 4096
"""Messages of up to so many bytes do not count as held bytes: their number is limited."""

log = logger()
_encode = msgspec.json.Encoder().encode


class RawMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that a consumer delivered. ``consumed``: the consumer's count of deliveries."""

    subject: bytes
    reply: bytes
    data: bytes
    headers: bytes
    sequence: int
    consumed: int
    deliveries: int
    nanoseconds: int
    pending: int


class MadeConsumer(NamedTuple):
    """A consumer that another service made. ``after``: the sequence after which the consumer
    begins. ``pending``: how many messages the consumer has to deliver. ``last``: the newest
    sequence of the stream.
    """

    name: str
    after: int
    pending: int
    last: int


ConsumerRequest: TypeAlias = Callable[[int | None], Awaitable[MadeConsumer]]
"""A function that creates the consumer to begin after a sequence of the log; None: the function
chooses the beginning."""


def read_reply(reply: bytes) -> tuple[int, int, int, int, int]:
    """Returns deliveries, sequence, consumer sequence, nanoseconds and pending count of a
    ``$JS.ACK.…`` reply subject.

    The reply subject has 9 tokens, or more in the newer form with domain and account before the
    stream.
    """
    parts = reply.split(b".")
    at = 4 if len(parts) == 9 else 6
    return (
        int(parts[at]),
        int(parts[at + 1]),
        int(parts[at + 2]),
        int(parts[at + 3]),
        int(parts[at + 4]),
    )


def heartbeat_of(server: Mapping[str, Any]) -> float:
    """Seconds between two heartbeats for a pull request. ``server``: what the server of the
    connection says of itself."""
    holds = server.get("jetstream") and not server.get("cluster")
    return OWN_HEARTBEAT_SECONDS if holds else OTHER_HEARTBEAT_SECONDS


def look_after(beat: float, quiet: float) -> float:
    """In how many seconds a consumer may have been silent for too long. ``beat``: seconds between
    heartbeats. ``quiet``: seconds since the last message; if that is too long already, the server
    is asked again after one heartbeat."""
    return max(beat, SILENCE * beat - quiet)


class PullConsumer:
    """Keeps pull requests for up to ``batch`` messages open.

    ``make`` creates or finds the consumer and returns its name; it is called at each renewal.
    ``receive`` is called with each message, in order, and must not block. While the reader has not
    handled messages of `BYTES` bytes, no further messages are requested.
    """

    def __init__(
        self,
        bus: Bus,
        stream: str,
        make: Callable[[], Awaitable[str]],
        receive: Callable[[RawMessage], None],
        *,
        batch: int,
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._make = make
        self._receive = receive
        self._batch = batch
        self.consumer = ""
        self.missing_count = 0
        """The number of pull requests in a row for which the server had no such consumer."""
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """A future that gets the error when the consumer cannot be created again."""
        self._inbox: Subscription | None = None
        self._subject = ""
        self._open = 0
        self._held = 0
        self._received = 0
        self._long: deque[tuple[int, int]] = deque()
        """The long messages that the reader has not handled, oldest first: the number of each among
        the received messages, and its bytes."""
        self._held_bytes = 0
        self._last_message_at = clock.monotonic()
        self._wake = asyncio.Event()
        self._renew = False
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    @property
    def heartbeat_seconds(self) -> float:
        """Seconds between two heartbeats of the server for an open pull request."""
        return self._bus.heartbeat_seconds or heartbeat_of(self._bus.nc.server_info)

    async def start(self) -> None:
        """Creates the consumer and opens the pull request. Raises the exceptions of ``make``, the
        function that creates the consumer.
        """
        await self._recreate()
        self._bus.reconnected.append(self.renew)
        self._task = asyncio.create_task(self._run(), name=f"pull-{self._stream}")

    def renew(self) -> None:
        """Causes inbox, consumer and pull request to be created again soon."""
        self._renew = True
        self._wake.set()

    def fail(self, error: Exception) -> None:
        """Ends the reading of the consumer with the error, which the reader then raises."""
        if not self.failed.done():
            self.failed.set_exception(error)
            # The exception is marked as retrieved, because a reader that has ended does not
            # retrieve it.
            self.failed.exception()

    def taken(self, count: int) -> None:
        """Records that the reader handled ``count`` messages, so that the server may send as many
        more.
        """
        self._held -= count
        handled = self._received - self._held
        while self._long and self._long[0][0] <= handled:
            self._held_bytes -= self._long.popleft()[1]
        if self._open + self._held <= self._batch // 2:
            self._wake.set()

    async def drain(self) -> None:
        """Ends the open pull request of the consumer. Messages that the server has already sent are
        still received. Call `stop` afterwards.
        """
        await self._end()
        if self._inbox is not None and self._bus.nc.is_connected:
            with suppress(nats.errors.Error, TimeoutError, asyncio.TimeoutError):
                # The server stops sending when it has read the unsubscription, and then answers the
                # ping.
                await self._inbox.unsubscribe()
                await self._bus.nc.flush(timeout=2)

    async def stop(self) -> None:
        """Ends the pull request; the consumer stays."""
        await self._end()
        if self._inbox is not None:
            with suppress(nats.errors.Error):
                await self._bus.nc.unlisten(self._inbox)
        if not self.failed.done():
            self.failed.cancel()

    async def _end(self) -> None:
        self._stopped = True
        with suppress(ValueError):
            self._bus.reconnected.remove(self.renew)
        if self._task is not None:
            # nats-py swallows a cancellation while it flushes, so the flag ends the loop.
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not self._stopped:
            await self._pause()
            self._wake.clear()
            try:
                if self._renew or await self._silent():
                    await self._recreate()
                else:
                    await self._request_more()
            except Exception as error:
                if is_temporary(error) or isinstance(error, nats.errors.Error):
                    # The server is not available or still reads its store: renew soon.
                    self._renew = True
                    await asyncio.sleep(0.05)
                    self._wake.set()
                    continue
                # Bugs are reported to the reader too, because otherwise the reader would wait
                # without end and seem healthy.
                self.fail(error)
                return

    async def _pause(self) -> None:
        """Waits until there is something to do, or the server may have been silent for too long."""
        quiet = clock.monotonic() - self._last_message_at
        # A consumer without messages spends most of its CPU here, so no exception ends the wait.
        loop = asyncio.get_running_loop()
        seconds = look_after(self.heartbeat_seconds, quiet)
        timer = loop.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _silent(self) -> bool:
        silence = SILENCE * self.heartbeat_seconds
        if clock.monotonic() - self._last_message_at < silence or not self._open:
            return False
        if not self._bus.nc.is_connected:
            return False
        # This process may have been busy, so it reads the messages that have arrived before it
        # checks the server.
        try:
            await self._bus.nc.flush(timeout=1)
        except (nats.errors.Error, TimeoutError):
            # The server does not answer the ping. If the server is only paused, the pull request
            # stays open at the server; if the connection is lost, the client's own pings notice it.
            return False
        return clock.monotonic() - self._last_message_at >= silence

    async def _recreate(self) -> None:
        self._renew = False
        await self._bus.connected(timeout=3600.0)
        if self._inbox is not None:
            old, self._inbox = self._inbox, None
            await self._bus.nc.unlisten(old)
        self._open = 0
        self.consumer = await self._make()
        subject = self._bus.nc.new_inbox()
        self._inbox = await self._bus.nc.listen(subject, self._on_message)
        self._subject = subject
        self._last_message_at = clock.monotonic()
        await self._request_more()

    async def _request_more(self) -> None:
        count = self._batch - self._open - self._held
        if count < max(1, self._batch // 2) and self._open:
            return
        if count <= 0 or self._held_bytes >= BYTES:
            return
        if not self._bus.nc.is_connected:
            # Without a connection the client would send the pull request after the reconnect, when
            # this inbox is no longer used.
            self._renew = True
            return
        request = {
            "batch": count,
            "max_bytes": max(BYTES, 2 * self._bus.nc.max_payload),
            "expires": int(max(EXPIRES, 4 * self.heartbeat_seconds) * 1e9),
            "idle_heartbeat": int(self.heartbeat_seconds * 1e9),
        }
        self._open += count
        self._last_message_at = clock.monotonic()
        await self._bus.nc.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self.consumer}",
            _encode(request),
            reply=self._subject,
        )

    def _on_message(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        self._last_message_at = clock.monotonic()
        if not reply.startswith(b"$JS.ACK."):
            self._on_status(headers)
            return
        deliveries, sequence, consumed, nanoseconds, pending = read_reply(reply)
        self.missing_count = 0
        self._open -= 1
        self._held += 1
        self._received += 1
        length = len(data) + len(headers)
        if length > SHORT:
            self._long.append((self._received, length))
            self._held_bytes += length
        self._receive(
            RawMessage(
                subject,
                reply,
                data,
                headers,
                sequence,
                consumed,
                deliveries,
                nanoseconds,
                pending,
            )
        )
        if self._open + self._held <= self._batch // 2:
            self._wake.set()

    def _on_status(self, headers: bytes) -> None:
        match status(headers):
            case "100" | "":
                self.missing_count = 0
                return
            case "408" | "404":
                # The pull request of the consumer expired.
                self._open = max(0, self._open - _undelivered(headers))
            case "409" if _has(headers, "complet", "size exceeds"):
                # The request was answered, or its next message is longer than the rest of its
                # bytes.
                self._open = max(0, self._open - _undelivered(headers))
            case "409" if _has(headers, "exceed"):
                self._open = 0
            case code:
                # The consumer was deleted, its leader changed, the server is shutting down, or
                # nothing responds.
                self.missing_count += code == "503"
                self._renew = True
        self._wake.set()


def _has(headers: bytes, *words: str) -> bool:
    said = description(headers).lower()
    return any(word in said for word in words)


def _undelivered(headers: bytes) -> int:
    at = headers.find(b"Nats-Pending-Messages:")
    if at < 0:
        return 1 << 30
    return int(headers[at + 22 : headers.find(b"\r\n", at)])
