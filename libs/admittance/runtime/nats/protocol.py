"""Messages of the NATS protocol as bytes: a parser that passes them directly to handlers, the frame
of a published message, headers and statuses.

The parser of nats-py matches two patterns for each message, moves the message through a second
buffer and runs a coroutine. `DirectParser` takes a third of the time for messages with a handler,
and leaves everything else to nats-py: other commands, other messages, and errors of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

Handler: TypeAlias = Callable[[bytes, bytes, bytes, bytes], None]
"""A function that handles one message: its arguments are subject, reply subject, data and raw
headers, each possibly empty. Must not block.
"""

LINE_END: Final = b"\r\n"


class DirectParser(Parser):
    """Parses messages of subscriptions that have a handler, and leaves all else to nats-py.
    ``handlers``: by the id of the subscription. ``nc``: a client with the method ``report``, which
    gets the exceptions of handlers.
    """

    def __init__(self, nc: Any, handlers: Mapping[int, Handler]) -> None:
        super().__init__(nc)
        self._handlers = handlers

    def reset(self) -> None:
        """Drops an incomplete message of the old connection, because a new connection begins."""
        super().reset()
        self._missing = 0
        """How many bytes the incomplete message in ``buf`` still needs, if that is known."""

    async def parse(self, data: bytes = b"") -> None:
        """Parses the bytes that have arrived. An incomplete message waits for the next call."""
        if self.state != AWAITING_CONTROL_LINE:
            # The parser of nats-py has begun a message and must end it.
            await super().parse(data)
            return
        if len(data) < self._missing:
            # A long message comes in many pieces. Copying all pieces again at each new piece would
            # take time in proportion to the square of the message's length.
            self.buf.extend(data)
            self._missing -= len(data)
            return
        self._missing = 0
        if self.buf:
            data = bytes(self.buf) + data
            self.buf.clear()
        start, size = 0, len(data)
        while start < size:
            line = data.find(LINE_END, start)
            if line < 0:
                break
            words = data[start:line].split()
            count = len(words)
            if (count == 4 or count == 5) and words[0] == b"MSG":
                head, total = 0, _number(words[-1])
                reply = words[3] if count == 5 else b""
            elif (count == 5 or count == 6) and words[0] == b"HMSG":
                head, total = _number(words[-2]), _number(words[-1])
                reply = words[3] if count == 6 else b""
            else:
                break
            handler = self._handlers.get(_number(words[2]))
            if handler is None or not 0 <= head <= total:
                break
            body = line + 2
            end = body + total
            if end + 2 > size:
                # The message in the buffer is incomplete: its rest comes with the next bytes of the
                # connection.
                self.buf.extend(data[start:])
                self._missing = end + 2 - size
                return
            try:
                handler(words[1], reply, data[body + head : end], data[body : body + head])
            except Exception as error:
                # An exception of a message handler here would end nats-py's reading task, and so
                # the connection.
                await self.nc.report(error)
            start = end + 2
        if start < size:
            await super().parse(data[start:])


def _number(digits: bytes) -> int:
    """The number in these digits; -1 if the bytes are no number: then nats-py parses the message
    and reports the error."""
    return int(digits) if digits.isdigit() else -1


def frame(subject: str, reply: str, data: bytes, headers: Mapping[str, str] | None) -> bytes:
    """The protocol bytes of one published message. Raises ValueError for a subject or header that
    would change the protocol."""
    if not subject or not subject.isprintable() or " " in subject:
        raise ValueError(f"{subject!r} is not a subject")
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
    """The headers of a message. A single header is found without parsing all: most readers of a
    message need one or two."""

    __slots__ = ("_parsed", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._parsed: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._parsed is None:
            self._parsed = parse_headers(self._raw)
        return self._parsed

    def get(self, name: str, default: Any = None) -> Any:
        parsed = self._parsed
        return parsed.get(name, default) if parsed is not None else self._find(name, default)

    def _find(self, name: str, default: Any) -> Any:
        raw = self._raw
        start = b"\r\n%b:" % name.encode()
        at = raw.find(start)
        if at < 0:
            return default
        begin = at + len(start)
        end = raw.find(b"\r\n", begin)
        value = raw[begin:] if end < 0 else raw[begin:end]
        return value.decode("utf-8", "replace").strip(_BLANKS)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"Headers({self._all()!r})"


def text_of(subject: bytes) -> str:
    """A subject as text. The server accepts any bytes. Bytes that are not UTF-8 become escapes,
    which no token contains, so a reader can report them."""
    return subject.decode("utf-8", "backslashreplace")


def parse_headers(raw: bytes) -> dict[str, str]:
    """The headers by name, without the status line. Bytes that are not UTF-8 are replaced.

    The first of repeated names counts, and names are case-sensitive, as in the server: otherwise
    the server and we could read two different fences in one message.
    """
    parsed: dict[str, str] = {}
    for line in raw.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon and name not in parsed:
            parsed[name] = value.strip(_BLANKS)
    return parsed


_BLANKS: Final = " \t\n\r\v\f"


def status(raw: bytes) -> str:
    """The status in a message from the server itself ("100", "408", "503", …), else ""."""
    return raw[9:12].decode() if raw[8:9] == b" " else ""


def description(raw: bytes) -> str:
    """The text after the status, for people."""
    return raw[12 : raw.find(b"\r\n")].decode("utf-8", "replace").strip()
