"""A pull consumer: its open requests, deliveries, acknowledgements and redeliveries."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final

import msgspec

from simulation.nats.messages import Message
from simulation.nats.stream import Refusal, Stream
from simulation.nats.subjects import header_block, matching

if TYPE_CHECKING:
    from simulation.nats.core import Server

_read = msgspec.json.Decoder().decode
_ROUNDING: Final = 1e-9


class PullRequest:
    """An open request for messages. ``sent_at``: when the server last sent something for it.
    ``bytes_left``: the most bytes that the server still sends for it."""

    __slots__ = ("beat", "bytes_left", "inbox", "left", "no_wait", "open", "sent_at", "until")

    def __init__(self, inbox: str, asked: Mapping[str, Any], now: float) -> None:
        self.inbox = inbox
        self.left: int = asked.get("batch", 1)
        self.bytes_left: float = asked.get("max_bytes") or inf
        self.until = now + asked["expires"] / 1e9 if asked.get("expires") else inf
        self.beat: float = asked.get("idle_heartbeat", 0) / 1e9
        self.no_wait = bool(asked.get("no_wait"))
        self.sent_at = now
        self.open = True


class Unacked:
    """A message that was delivered and not acknowledged. ``number``: of its last delivery.
    ``due``: when it is delivered again."""

    __slots__ = ("deliveries", "due", "message", "number")

    def __init__(self, message: Message, number: int, due: float) -> None:
        self.message = message
        self.number = number
        self.deliveries = 1
        self.due = due


class Consumer:
    """A consumer of a stream. ``config``: as the API names its settings."""

    def __init__(
        self, server: Server, stream: Stream, name: str, config: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.alive = True
        self._server = server
        self._loop = server.loop
        self._stream = stream
        self._next: OrderedDict[int, Message] = OrderedDict()
        """Messages that were never delivered."""
        self._again: deque[Unacked] = deque()
        """Messages to deliver again."""
        self._unacked: dict[int, Unacked] = {}
        self._requests: deque[PullRequest] = deque()
        self._delivered = 0
        self._last = 0
        self._floor = 0
        self._acked = 0
        """The number of the delivery up to which everything is acknowledged."""
        self._used = self._loop.now
        self._wake_at = inf
        self.configure(config)
        self._begin()
        threshold = self.config.get("inactive_threshold", 0) / 1e9
        if threshold:
            self._loop.after(threshold, self._look_whether_used, threshold)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Takes settings over."""
        self.config = {
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": 30_000_000_000,
            "max_deliver": -1,
            "replay_policy": "instant",
            "num_replicas": 0,
            **config,
        }
        subject = self.config.get("filter_subject")
        self.wants = matching(self.config.get("filter_subjects") or [subject or ">"])
        self._ack_policy = self.config["ack_policy"]
        self._ack_wait = self.config["ack_wait"] / 1e9
        self._max_unacked = self.config.get("max_ack_pending", 1000)
        if self._ack_policy == "none" or self._max_unacked < 0:
            self._max_unacked = inf

    def _begin(self) -> None:
        stream, policy = self._stream, self.config["deliver_policy"]
        start = 1
        if policy == "last_per_subject":
            messages = [m for m in stream.last.values() if self.wants(m.subject)]
            self._next = OrderedDict((m.sequence, m) for m in sorted(messages, key=_sequence))
            self._floor = self._last = min(self._next, default=stream.end + 1) - 1
            return
        if policy == "new":
            start = stream.end + 1
        elif policy == "by_start_sequence":
            if "opt_start_seq" not in self.config:
                raise Refusal(400, 10094, "consumer delivery policy needs a start sequence")
            start = self.config["opt_start_seq"]
        self._floor = self._last = start - 1
        for message in stream.since(start):
            if self.wants(message.subject):
                self._next[message.sequence] = message

    def info(self) -> dict[str, Any]:
        """The answer to CONSUMER.INFO."""
        return {
            "stream_name": self._stream.name,
            "name": self.name,
            "config": self.config,
            "delivered": {"consumer_seq": self._delivered, "stream_seq": self._last},
            "ack_floor": {"consumer_seq": self._acked, "stream_seq": self._floor},
            "num_ack_pending": len(self._unacked),
            "num_redelivered": sum(delivery.deliveries > 1 for delivery in self._unacked.values()),
            "num_waiting": sum(request.open for request in self._requests),
            "num_pending": len(self._next),
        }

    # Messages and requests. ---------------------------------------------------------------

    def on_stored(self, message: Message) -> None:
        self._next[message.sequence] = message
        if self._requests:
            self._flow()

    def on_removed(self, sequence: int) -> None:
        self._next.pop(sequence, None)
        if self._unacked.pop(sequence, None) is not None:
            self._raise_floor()

    def ask(self, inbox: str, asked: Mapping[str, Any]) -> None:
        """Takes a pull request."""
        self._used = self._loop.now
        request = PullRequest(inbox, asked, self._loop.now)
        self._requests.append(request)
        self._flow()
        if not request.open:
            return
        if request.no_wait:
            request.open = False
            self._server.status(inbox, "404 No Messages")
        else:
            self._watch(request)

    def _flow(self) -> None:
        while self._requests and (self._again or self._next):
            request = self._requests[0]
            if not request.open or not self._server.has_listener(request.inbox):
                request.open = False
                self._requests.popleft()
                continue
            if self._again:
                again = self._again.popleft()
                if self._unacked.get(again.message.sequence) is again:
                    again.deliveries += 1
                    again.number = self._delivered + 1
                    self._send(request, again.message, again.deliveries)
                    again.due = self._wake_after(self._ack_wait)
                continue
            if len(self._unacked) >= self._max_unacked:
                return
            first = next(iter(self._next.values()))
            if len(first.data) + len(first.raw) > request.bytes_left:
                self._end(request, "409 Message Size Exceeds MaxBytes")
                continue
            _, message = self._next.popitem(last=False)
            self._last = message.sequence
            if self._ack_policy == "none":
                self._floor = message.sequence
            else:
                due = self._wake_after(self._ack_wait)
                self._unacked[message.sequence] = Unacked(message, self._delivered + 1, due)
            self._send(request, message, 1)

    def _send(self, request: PullRequest, message: Message, deliveries: int) -> None:
        self._delivered += 1
        request.left -= 1
        request.bytes_left -= len(message.data) + len(message.raw)
        request.sent_at = self._loop.now
        if not request.left:
            request.open = False
        reply = (
            f"$JS.ACK.{self._stream.name}.{self.name}.{deliveries}.{message.sequence}"
            f".{self._delivered}.{message.nanoseconds}.{len(self._next)}"
        )
        data, raw = message.data, message.raw
        if self.config.get("headers_only"):
            raw = header_block({**message.headers, "Nats-Msg-Size": str(len(data))})
            data = b""
        self._server.deliver(request.inbox, message.subject, reply, data, raw)

    def _watch(self, request: PullRequest) -> None:
        beat = request.sent_at + request.beat if request.beat else inf
        when = min(beat, request.until)
        if when < inf:
            self._loop.at(when, self._tick, request)

    def _tick(self, request: PullRequest) -> None:
        if not request.open or not self.alive:
            return
        now = self._loop.now
        if not self._server.has_listener(request.inbox):
            request.open = False
        elif now >= request.until:
            self._end(request, "408 Request Timeout")
        else:
            if now >= request.sent_at + request.beat - _ROUNDING:
                request.sent_at = now
                self._server.status(request.inbox, "100 Idle Heartbeat")
            self._watch(request)

    def _end(self, request: PullRequest, status: str) -> None:
        request.open = False
        self._server.status(
            request.inbox, status, Nats_Pending_Messages=str(request.left), Nats_Pending_Bytes="0"
        )

    # Acknowledgements. --------------------------------------------------------------------

    def on_ack(self, sequence: int, said: bytes) -> bool:
        """Takes what a reader says of a delivery. True for an acknowledgement."""
        if said.startswith(b"-NAK"):
            delivery = self._unacked.get(sequence)
            if delivery is not None:
                delay = _read(said[4:]).get("delay", 0) / 1e9 if said[4:].strip() else 0.0
                delivery.due = self._wake_after(delay)
            return False
        if said == b"+WPI":
            delivery = self._unacked.get(sequence)
            if delivery is not None:
                delivery.due = self._wake_after(self._ack_wait)
            return False
        if self._ack_policy == "all":
            delivery = self._unacked.get(sequence)
            if delivery is not None:
                self._acked = max(self._acked, delivery.number)
            self._unacked = {s: delivery for s, delivery in self._unacked.items() if s > sequence}
            self._floor = max(self._floor, sequence)
        else:
            self._unacked.pop(sequence, None)
            self._raise_floor()
        if self._requests:
            self._flow()
        return True

    def _raise_floor(self) -> None:
        if self._ack_policy == "explicit":
            self._floor = min(self._unacked) - 1 if self._unacked else self._last
            numbers = [delivery.number for delivery in self._unacked.values()]
            self._acked = min(numbers) - 1 if numbers else self._delivered

    def _wake_after(self, seconds: float) -> float:
        """Looks for redeliveries then; the time."""
        when = self._loop.now + seconds
        if when < self._wake_at:
            self._wake_at = when
            self._loop.at(when, self._redeliver, when)
        return when

    def _redeliver(self, when: float) -> None:
        if not self.alive or when != self._wake_at:
            return
        now = self._loop.now
        self._wake_at = inf
        nearest = inf
        waiting = {id(delivery) for delivery in self._again}
        for delivery in self._unacked.values():
            if delivery.due > now:
                nearest = min(nearest, delivery.due)
            elif id(delivery) not in waiting:
                self._again.append(delivery)
        if nearest < inf:
            self._wake_after(nearest - now)
        if self._requests:
            self._flow()

    # The end. -----------------------------------------------------------------------------

    def _look_whether_used(self, threshold: float) -> None:
        if not self.alive:
            return
        now = self._loop.now
        if any(
            request.open and self._server.has_listener(request.inbox) for request in self._requests
        ):
            self._used = now
        if now - self._used >= threshold:
            self._stream.drop(self)
        else:
            self._loop.after(threshold, self._look_whether_used, threshold)

    def redeliver_all(self) -> None:
        """Delivers everything again that is not acknowledged, as a new leader of a consumer may."""
        for delivery in self._unacked.values():
            delivery.due = self._loop.now
        if self._unacked:
            self._wake_after(0.0)

    def on_lost(self) -> None:
        """The stream has lost its newest messages: so much of its own state is lost, too."""
        end = self._stream.end
        if self._last > end:
            self._last = self._floor = end
        # What was stored before may have replaced what was delivered, and is back.
        self._next = OrderedDict(
            (m.sequence, m) for m in self._stream.since(self._last + 1) if self.wants(m.subject)
        )

    def crashed(self) -> None:
        """The server was killed: open requests are lost, the rest is on the disk."""
        self._requests.clear()

    def close(self) -> None:
        """Deletes the consumer, and informs its readers."""
        self.alive = False
        for request in self._requests:
            if request.open:
                request.open = False
                self._server.status(request.inbox, "409 Consumer Deleted")


def _sequence(message: Message) -> int:
    return message.sequence
