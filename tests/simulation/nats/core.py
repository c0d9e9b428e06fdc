"""The server itself: clients, subscriptions, and where each message goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final, Protocol

from admittance.runtime.nats.protocol import parse_headers
from simulation.nats.stream import Answer, Stream
from simulation.nats.subjects import Matches, is_literal, matching, status_block
from simulation.virtual_time.loop import VirtualLoop

MAX_PAYLOAD: Final = 1024 * 1024


class Listener(Protocol):
    """Receives what the server sends to one client."""

    def on_message(self, sid: int, subject: str, reply: str, data: bytes, headers: bytes) -> None:
        """A message of a subscription."""

    def on_pong(self) -> None:
        """The answer to a ping."""


class Subscription:
    """A subscription of a client. ``left``: messages until it ends; -1 without a limit."""

    __slots__ = ("client", "left", "queue", "sid", "subject")

    def __init__(self, client: Client, sid: int, subject: str, queue: str) -> None:
        self.client = client
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.left = -1

    def send(self, subject: str, reply: str, data: bytes, headers: bytes) -> None:
        """Sends a message to the client."""
        self.client.listener.on_message(self.sid, subject, reply, data, headers)
        if self.left > 0:
            self.left -= 1
            if not self.left:
                self.client.unsubscribe(self.sid)


class Client:
    """A connection as the server knows it. It ends with `close`."""

    def __init__(self, server: Server, listener: Listener) -> None:
        self.listener = listener
        self.subscriptions: dict[int, Subscription] = {}
        self._server = server

    def receive(self, blob: bytes) -> None:
        """Carries out each command of the protocol in one step."""
        for words, body in commands(blob):
            match words:
                case ["PUB", subject, reply, _]:
                    self._server.publish(subject, reply, body, b"")
                case ["HPUB", subject, reply, head, _]:
                    size = int(head)
                    self._server.publish(subject, reply, body[size:], body[:size])
                case ["SUB", subject, queue, sid]:
                    self._subscribe(int(sid), subject, queue)
                case ["UNSUB", sid, *limit]:
                    self.unsubscribe(int(sid), int(limit[0]) if limit and limit[0] else 0)
                case ["PING"]:
                    self.listener.on_pong()
                case _:
                    raise ValueError(f"no command of the protocol: {words}")

    def _subscribe(self, sid: int, subject: str, queue: str) -> None:
        made = self.subscriptions[sid] = Subscription(self, sid, subject, queue)
        self._server.interest.add(made)

    def unsubscribe(self, sid: int, limit: int = 0) -> None:
        """Ends a subscription, at once or after so many more messages."""
        subscription = self.subscriptions.get(sid)
        if subscription is None:
            return
        if limit:
            subscription.left = limit
            return
        del self.subscriptions[sid]
        self._server.interest.remove(subscription)

    def close(self) -> None:
        """Removes the subscriptions of a closed connection."""
        for sid in list(self.subscriptions):
            self.unsubscribe(sid)
        self._server.clients.pop(self, None)


def commands(blob: bytes) -> Iterator[tuple[list[str], bytes]]:
    """The words and the body of each command of the protocol."""
    at = 0
    while at < len(blob):
        end = blob.index(b"\r\n", at)
        words = blob[at:end].decode().split(" ")
        at = end + 2
        if words[0] in ("PUB", "HPUB"):
            size = int(words[-1])
            yield words, blob[at : at + size]
            at += size + 2
        else:
            yield words, b""


class Interest:
    """The subscriptions of all clients, by subject."""

    def __init__(self) -> None:
        self._literal: dict[str, list[Subscription]] = {}
        self._under: dict[str, list[Subscription]] = {}
        """Those of ``<prefix>.*``, by prefix: inboxes of requests."""
        self._wild: dict[str, list[tuple[Matches, Subscription]]] = {}
        """Those with other wildcards, by the first token."""
        self._found: dict[str, list[Subscription]] = {}
        """What `of` has found since a subscription was added or removed."""

    def add(self, subscription: Subscription) -> None:
        self._forget(subscription.subject)
        subject = subscription.subject
        if is_literal(subject):
            self._literal.setdefault(subject, []).append(subscription)
        elif subject.endswith(".*") and is_literal(subject[:-2]):
            self._under.setdefault(subject[:-2], []).append(subscription)
        else:
            self._wild.setdefault(_first(subject), []).append((matching([subject]), subscription))

    def _forget(self, subject: str) -> None:
        if is_literal(subject):
            self._found.pop(subject, None)
        else:
            self._found.clear()

    def remove(self, subscription: Subscription) -> None:
        self._forget(subscription.subject)
        for where, key in (
            (self._literal, subscription.subject),
            (self._under, subscription.subject[:-2]),
        ):
            members = where.get(key, [])
            if subscription in members:
                members.remove(subscription)
                if not members:
                    del where[key]
        first = _first(subscription.subject)
        if first in self._wild:
            left = [match for match in self._wild[first] if match[1] is not subscription]
            if left:
                self._wild[first] = left
            else:
                del self._wild[first]

    def of(self, subject: str) -> list[Subscription]:
        """All subscriptions that receive a message on this subject."""
        known = self._found.get(subject)
        if known is not None:
            return known
        matching = self._found[subject] = [*self._literal.get(subject, ())]
        matching += self._under.get(subject.rpartition(".")[0], ())
        if self._wild:
            for first in (_first(subject), "*", ">"):
                for matches, wildcard in self._wild.get(first, ()):
                    if matches(subject):
                        matching.append(wildcard)
        return matching


def _first(subject: str) -> str:
    return subject.partition(".")[0]


class Server:
    """A server; its streams outlive its restarts. ``up``: it takes connections.
    ``unsynced_seconds``: a crash loses what was stored in so many last seconds."""

    unsynced_seconds = 0.0

    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self.loop = loop
        self.rng = rng
        self.up = True
        self.interest = Interest()
        self.clients: dict[Client, Callable[[], None]] = {}
        self.streams: dict[str, Stream] = {}
        self.api: Callable[[str, str, bytes], None] = lambda *_: None
        """Answers requests to ``$JS.API.<first>``; the second is the reply subject."""
        self.on_acked: list[Callable[[str, int], None]] = []
        """Called with consumer and sequence whenever a message was acknowledged."""
        self._stream_of: dict[str, Stream | None] = {}

    def accept(self, listener: Listener, on_lost: Callable[[], None]) -> Client:
        """A new client. ``on_lost`` is called when the server ends the connection."""
        made = Client(self, listener)
        self.clients[made] = on_lost
        return made

    def stop(self) -> None:
        """Stops as a kill does: connections end, and what is only in memory is lost."""
        self.up = False
        for stream in self.streams.values():
            stream.crashed()
            if self.unsynced_seconds:
                stream.lose(self.loop.now - self.unsynced_seconds)
        for client, on_lost in list(self.clients.items()):
            client.close()
            on_lost()

    def start(self) -> None:
        """Takes connections again."""
        self.up = True
        for stream in self.streams.values():
            stream.up = True

    def add_stream(self, stream: Stream) -> None:
        self.streams[stream.name] = stream
        self._stream_of.clear()

    def remove_stream(self, name: str) -> None:
        del self.streams[name]
        self._stream_of.clear()

    def stream_of(self, subject: str) -> Stream | None:
        """The stream that keeps messages on this subject."""
        if subject not in self._stream_of:
            takers = (stream for stream in self.streams.values() if stream.takes(subject))
            self._stream_of[subject] = next(takers, None)
        return self._stream_of[subject]

    def publish(self, subject: str, reply: str, data: bytes, headers: bytes) -> None:
        """Takes a message of a client."""
        if subject.startswith("$JS.API."):
            self.api(subject[8:], reply, data)
            return
        handled = False
        if subject.startswith("$JS.ACK."):
            handled = self._acked(subject, reply, data)
        else:
            stream = self.stream_of(subject)
            if stream is not None:
                handled = True
                if stream.store_seconds or stream.busy_until > self.loop.now:
                    stream.busy_until = max(stream.busy_until, self.loop.now)
                    stream.busy_until += stream.store_seconds
                    self.loop.at(
                        stream.busy_until, self._store, stream, subject, reply, data, headers
                    )
                else:
                    self._store(stream, subject, reply, data, headers)
        handled |= self._route(subject, reply, data, headers)
        if reply and not handled:
            self.status(reply, "503")

    def _store(self, stream: Stream, subject: str, reply: str, data: bytes, headers: bytes) -> None:
        if not self.up:
            return
        parsed = parse_headers(headers) if headers else {}
        answer = stream.publish(subject, data, headers, parsed)
        if reply and answer is not None:
            self.answer(reply, answer)

    def answer(self, inbox: str, answer: Answer) -> None:
        """Sends an answer as JSON."""
        self.deliver(inbox, inbox, "", answer.encoded(), b"")

    def status(self, inbox: str, status: str, **headers: str) -> None:
        """Sends a message without data, such as "408 Request Timeout"."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.deliver(inbox, inbox, "", b"", status_block(status, named))

    def deliver(self, inbox: str, subject: str, reply: str, data: bytes, headers: bytes) -> None:
        """Sends a message to an inbox under its own subject."""
        for subscription in self.interest.of(inbox):
            subscription.send(subject, reply, data, headers)

    def has_listener(self, inbox: str) -> bool:
        """Whether a client listens there."""
        return bool(self.interest.of(inbox))

    def _route(self, subject: str, reply: str, data: bytes, headers: bytes) -> bool:
        subscriptions = self.interest.of(subject)
        groups: dict[str, list[Subscription]] = {}
        for subscription in subscriptions:
            if subscription.queue:
                groups.setdefault(subscription.queue, []).append(subscription)
            else:
                subscription.send(subject, reply, data, headers)
        for members in groups.values():
            subscription = members[0] if len(members) == 1 else self.rng.choice(members)
            subscription.send(subject, reply, data, headers)
        return bool(subscriptions)

    def _acked(self, subject: str, reply: str, data: bytes) -> bool:
        """``$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>…``; whether there is such."""
        parts = subject.split(".")
        stream = self.streams.get(parts[2])
        consumer = stream.consumers.get(parts[3]) if stream is not None else None
        if consumer is None:
            return False
        sequence = int(parts[5])
        if consumer.on_ack(sequence, data):
            for callback in self.on_acked:
                callback(consumer.name, sequence)
        if reply:
            self.deliver(reply, reply, "", b"", b"")
        return True
