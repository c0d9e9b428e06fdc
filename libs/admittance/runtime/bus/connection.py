"""A NATS connection with a short way for many small messages.

nats-py spends 23 µs of CPU on publishing a message and noting its acknowledgement, and about 45 µs
on a pulled one (an asyncio.Queue, a task switch and a Msg each; measured; the short way takes 7 µs
for either). The log and the bucket are read and written at tens of thousands of
messages a second, so for those alone two short cuts are taken: a subscription whose handler is
called straight from the parser, and a write of many messages at once. Everything else is nats-py's.

They rest on private names of nats-py (`_process_msg`, `_send_command` with `_flush_pending`), as
does `reconnecting_client`; `tests/integration/bus/test_reconnecting.py` fails when a new version
moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from nats.aio.subscription import Subscription as Subscription

from admittance.runtime.bus.reconnecting_client import ReconnectingClient
from admittance.runtime.server_url import Login

Handler: TypeAlias = Callable[[bytes, bytes, bytes, bytes], None]
"""Takes subject, reply, data, raw headers (each empty where there is none). Must not block."""


class Connection(ReconnectingClient):
    """A client that hands messages of some subscriptions straight to a function."""

    def __init__(self, logins: Mapping[str, Login] | None = None) -> None:
        super().__init__(logins)
        self._straight: dict[int, Handler] = {}

    async def listen(self, subject: str, handler: Handler) -> Subscription:
        """Calls handler for every message on subject, in order, before anything else is read."""
        subscription = await self.subscribe(subject)
        # The server answers after SUB is flushed, which is after this line: nothing is missed.
        self._straight[subscription._id] = handler
        return subscription

    async def deafen(self, subscription: Subscription) -> None:
        """Ends a `listen`. Harmless when the connection is gone."""
        self._straight.pop(subscription._id, None)
        if not self.is_closed and not subscription._closed:
            await subscription.unsubscribe()

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        handler = self._straight.get(sid)
        try:
            if handler is None:
                await super()._process_msg(sid, subject, reply, data, headers)
            else:
                handler(subject, reply, data, headers or b"")
        except Exception as error:
            # An exception here would end the reading, and so the connection.
            await self._error_cb(error)

    async def send(self, blob: bytes) -> None:
        """Writes protocol bytes made by `frame`, in one go."""
        await self._send_command(blob)
        await self._flush_pending()


def frame(subject: str, reply: str, data: bytes, headers: Mapping[str, str] | None) -> bytes:
    """The protocol bytes of one publication. Raises ValueError for what could break out of them."""
    if not subject or not subject.isprintable() or " " in subject:
        raise ValueError(f"{subject!r} is no subject")
    if not headers:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(data), data)
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise ValueError(f"a header of {subject} has a line break")
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
        subject.encode(),
        reply.encode(),
        len(head),
        len(head) + len(data),
        head,
        data,
    )


class Headers(Mapping[str, str]):
    """Headers of a message, parsed on first use."""

    __slots__ = ("_parsed", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._parsed: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._parsed is None:
            self._parsed = parse_headers(self._raw)
        return self._parsed

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"Headers({self._all()!r})"


def text_of(subject: bytes) -> str:
    """A subject as text. The server accepts any bytes; those that are not UTF-8 become escapes that
    no token of ours contains, so a reader can report what is wrong."""
    return subject.decode("utf-8", "backslashreplace")


def parse_headers(raw: bytes) -> dict[str, str]:
    """Header lines to a dict; the status line is left out. Bytes that are not UTF-8 are replaced.

    Of a repeated name the first counts, and names are case-sensitive, as in the server: otherwise a
    client could show the server one fence and us another.
    """
    parsed: dict[str, str] = {}
    for line in raw.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            parsed.setdefault(
                name.decode("utf-8", "replace"), value.strip().decode("utf-8", "replace")
            )
    return parsed


def status(raw: bytes) -> str:
    """The status of a message of the server itself ("100", "408", "503", …); "" for any other."""
    return raw[9:12].decode() if raw[8:9] == b" " else ""


def description(raw: bytes) -> str:
    """What stands behind the status, for people."""
    return raw[12 : raw.find(b"\r\n")].decode("utf-8", "replace").strip()
