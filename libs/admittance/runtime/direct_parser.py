"""A parser of the NATS protocol that passes messages directly to handlers.

The parser of nats-py matches two patterns for each message, moves the message through a second
buffer and runs a coroutine. `DirectParser` takes a third of the time for messages with a handler,
and leaves everything else to nats-py: other commands, other messages, and errors of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

Handler: TypeAlias = Callable[[bytes, bytes, bytes, bytes], None]
"""Gets subject, reply, data and raw headers, each possibly empty. Must not block."""

LINE_END: Final = b"\r\n"


class DirectParser(Parser):
    """Parses messages of subscriptions that have a handler, and leaves all else to nats-py.
    ``handlers``: by the id of the subscription.
    """

    def __init__(self, nc: Any, handlers: Mapping[int, Handler]) -> None:
        super().__init__(nc)
        self._handlers = handlers

    def reset(self) -> None:
        """Forgets an incomplete message: the connection is new."""
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
            # A long message comes in many pieces. To copy all of them at each piece would take time
            # in proportion to the square of its length.
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
                # The message is incomplete: the rest comes with the next bytes.
                self.buf.extend(data[start:])
                self._missing = end + 2 - size
                return
            try:
                handler(words[1], reply, data[body + head : end], data[body : body + head])
            except Exception as error:
                # An exception here would end the reading task, and so the connection.
                await self.nc._error_cb(error)
            start = end + 2
        if start < size:
            await super().parse(data[start:])


def _number(digits: bytes) -> int:
    """The number in these digits; -1 if the bytes are no number: then nats-py parses the message
    and reports the error."""
    return int(digits) if digits.isdigit() else -1
