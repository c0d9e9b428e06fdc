"""A NATS connection that sees every refusal of the server, with its exact subject."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterable

import nkeys

from support.servers import LIMIT

_VIOLATION = re.compile(r"-ERR 'Permissions Violation for (Publish|Subscription) to \"(.*?)\"")


class RawClient:
    """A connection of one user, without a client library: `connect` makes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._subscriptions = 0
        self.received: list[tuple[str, str]] = []
        """Subject and content of the messages that came so far."""

    @classmethod
    async def connect(cls, port: int, seed: str, jwt: str = "") -> RawClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        info = json.loads((await reader.readline()).removeprefix(b"INFO "))
        pair = nkeys.from_seed(bytearray(seed.encode()))
        signature = base64.urlsafe_b64encode(pair.sign(info["nonce"].encode())).rstrip(b"=")
        options = {
            "verbose": False,
            **({"jwt": jwt} if jwt else {"nkey": pair.public_key.decode()}),
            "sig": signature.decode(),
            "headers": True,
            "no_responders": True,
        }
        client = cls(reader, writer)
        assert not await client.refused([f"CONNECT {json.dumps(options)}\r\n"])
        return client

    async def publish(self, subjects: Iterable[str], mark: str = "") -> set[str]:
        """Publishes a message with this content on each subject; returns the subjects that the
        server refuses."""
        return await self.refused(
            f"PUB {subject} {len(mark)}\r\n{mark}\r\n" for subject in subjects
        )

    async def subscribe(self, subjects: Iterable[str]) -> set[str]:
        """Subscribes the subjects; returns those that the server refuses."""
        lines = []
        for subject in subjects:
            self._subscriptions += 1
            lines.append(f"SUB {subject} {self._subscriptions}\r\n")
        return await self.refused(lines)

    async def refused(self, lines: Iterable[str]) -> set[str]:
        """Sends protocol lines; returns the subjects that the server refuses."""
        self._writer.write("".join([*lines, "PING\r\n"]).encode())
        subjects: set[str] = set()
        async with asyncio.timeout(LIMIT):
            while True:
                line = (await self._reader.readline()).decode()
                if line.startswith("PONG"):
                    return subjects
                if line.startswith("PING"):
                    self._writer.write(b"PONG\r\n")
                    continue
                if line.startswith(("MSG", "HMSG")):
                    verb, subject, *_, before, size = line.split()
                    data = (await self._reader.readexactly(int(size) + 2))[:-2]
                    # What comes from the other account may have headers of the server.
                    content = data[int(before) :] if verb == "HMSG" else data
                    self.received.append((subject, content.decode(errors="replace")))
                    continue
                violation = _VIOLATION.match(line)
                if violation is None and (line.startswith("-ERR") or not line):
                    raise AssertionError(f"the server ended the connection: {line!r}")
                if violation is not None:
                    subjects.add(violation[2])

    async def listen(self) -> None:
        """Receives what the server has sent to this connection so far."""
        assert not await self.refused([])

    def close(self) -> None:
        self._writer.close()
