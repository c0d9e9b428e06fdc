"""The parser returns what the parser of nats-py returns, however the bytes arrive."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from admittance.runtime.nats.protocol import DirectParser, Handler

DIRECT, OTHER = 5, 12


class Client:
    """Records what a parser passes on; the subscription `DIRECT` has a handler."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.errors: list[Exception] = []
        self.handlers: dict[int, Handler] = {DIRECT: self.handle}

    def handle(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        self.seen.append((DIRECT, subject, reply, data, headers))
        if data == b"bad":
            raise ValueError("bad")

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        self.seen.append((sid, subject, reply, data, headers or b""))

    async def _process_ping(self) -> None:
        self.seen.append(("ping",))

    async def _process_pong(self) -> None:
        self.seen.append(("pong",))

    async def _process_err(self, text: str) -> None:
        self.seen.append(("error", text))

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.seen.append(("info", info))

    async def report(self, error: Exception) -> None:
        self.errors.append(error)


def message(sid: int, reply: bytes, headers: bytes, data: bytes) -> bytes:
    """The bytes of one message from the server."""
    words = [b"a.b", b"%d" % sid, *([reply] if reply else [])]
    if headers:
        words += [b"%d" % len(headers)]
    words += [b"%d" % (len(headers) + len(data))]
    kind = b"HMSG " if headers else b"MSG "
    return kind + b" ".join(words) + b"\r\n" + headers + data + b"\r\n"


def parsed(parser: Parser, chunks: list[bytes]) -> None:
    async def parse() -> None:
        for chunk in chunks:
            await parser.parse(chunk)

    asyncio.run(parse())


commands = st.one_of(
    st.builds(
        message,
        st.sampled_from([DIRECT, OTHER]),
        st.sampled_from([b"", b"$JS.ACK.s.c.1.2.3.4.0"]),
        st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
        st.sampled_from([b"", b"{}", b"MSG a 5 3\r\nabc\r\n", b"x" * 70]),
    ),
    st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'Oh'\r\n", b'INFO {"a":1}\r\n']),
)


@given(st.lists(commands, max_size=8), st.lists(st.integers(1, 400), max_size=8))
def test_messages_in_any_pieces_are_parsed_as_by_nats_py(
    sent: list[bytes], cuts: list[int]
) -> None:
    whole = b"".join(sent)
    places = [0, *sorted({cut for cut in cuts if cut < len(whole)}), len(whole)]
    chunks = [whole[start:end] for start, end in pairwise(places)]
    theirs, ours = Client(), Client()
    parsed(Parser(theirs), [whole])
    parsed(DirectParser(ours, ours.handlers), chunks)
    assert ours.seen == theirs.seen


def test_an_exception_of_a_handler_does_not_lose_the_next_message() -> None:
    client = Client()
    sent = message(DIRECT, b"", b"", b"bad") + message(DIRECT, b"", b"", b"good")
    parsed(DirectParser(client, client.handlers), [sent])
    assert [seen[3] for seen in client.seen] == [b"bad", b"good"]
    assert [str(error) for error in client.errors] == ["bad"]


@pytest.mark.parametrize("line", [b"MSG a 5 x\r\n", b"HMSG a 5 9 3\r\n", b"HELLO\r\n"])
def test_wrong_commands_end_as_in_nats_py(line: bytes) -> None:
    outcomes = []
    for client in (Client(), Client()):
        parser = Parser(client) if not outcomes else DirectParser(client, client.handlers)
        try:
            parsed(parser, [line])
            outcomes.append((client.seen, ""))
        except ProtocolError as error:
            outcomes.append((client.seen, str(error)))
    assert outcomes[0] == outcomes[1]


class CountedBuffer(bytearray):
    """Counts how often all its bytes are copied."""

    copies = 0

    def __bytes__(self) -> bytes:
        self.copies += 1
        return bytes(memoryview(self))


def test_a_long_message_in_many_pieces_is_copied_once() -> None:
    client = Client()
    parser = DirectParser(client, client.handlers)
    buffer = parser.buf = CountedBuffer()
    data = bytes(range(256)) * 1000
    whole = message(DIRECT, b"", b"", data)
    parsed(parser, [whole[at : at + 100] for at in range(0, len(whole), 100)])
    assert client.seen == [(DIRECT, b"a.b", b"", data, b"")]
    assert buffer.copies <= 2


def test_a_new_connection_forgets_an_incomplete_message() -> None:
    client = Client()
    parser = DirectParser(client, client.handlers)
    parsed(parser, [message(DIRECT, b"", b"", b"x" * 1000)[:500]])
    parser.reset()
    parsed(parser, [message(DIRECT, b"", b"", b"new")])
    assert client.seen == [(DIRECT, b"a.b", b"", b"new", b"")]
