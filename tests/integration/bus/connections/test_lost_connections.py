"""The server closes the connection of a client; the servers here speak only the protocol of a
connection.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import nats.errors
import pytest

from admittance.runtime.nats.connection import Connection
from support.servers import until, within

INFO = {"server_id": "S", "version": "2.12.0", "headers": True, "proto": 1, "max_payload": 1 << 20}


class BareServer:
    """Accepts connections, and closes one when it gets a message, which it does not answer."""

    def __init__(self, name: str, accepted: asyncio.Queue[str]) -> None:
        self.name = name
        self.address = ""
        self._accepted = accepted
        self._writer: asyncio.StreamWriter | None = None

    def say(self, line: bytes) -> None:
        """Writes a line of the protocol."""
        assert self._writer is not None
        self._writer.write(line + b"\r\n")

    def close(self) -> None:
        """Closes the connection."""
        assert self._writer is not None
        self._writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        writer.write(f"INFO {json.dumps(INFO)}\r\n".encode())
        while line := (await reader.readline()).split():
            match line[0]:
                case b"CONNECT":
                    self._accepted.put_nowait(self.name)
                case b"PING":
                    writer.write(b"PONG\r\n")
                case b"PUB":
                    break
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[BareServer]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.address = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self


async def test_a_request_ends_when_the_connection_is_closed_for_good() -> None:
    async with BareServer("one", asyncio.Queue()).listening() as server:
        nc = Connection()
        await nc.connect_once([server.address])
        with pytest.raises(nats.errors.ConnectionReconnectingError):
            await within(nc.request("a.b", timeout=3600))
        assert nc.is_closed


async def ignored(*_: object) -> None:
    return


async def test_refusals_of_a_lost_connection_are_forgotten() -> None:
    back = asyncio.Event()

    async def came_back() -> None:
        back.set()

    async with BareServer("one", asyncio.Queue()).listening() as server:
        nc = Connection()
        await nc.connect_once([server.address])
        nc.reconnect_from_now_on(ignored, ignored, came_back)
        server.say(b"-ERR 'Permissions Violation for Publish to \"A.b\"'")
        await until(lambda: list(nc.denials) == ["publish a.b"])
        server.close()
        await within(back.wait())
        assert not nc.denials
        assert nc.denial_of("A.b") == "this login may not publish to A.b"
        await nc.close()


async def test_after_a_loss_the_other_server_is_tried_first() -> None:
    accepted: asyncio.Queue[str] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(BareServer(name, accepted).listening())
            for name in ("one", "two")
        ]
        first_server, two = servers
        back: asyncio.Queue[None] = asyncio.Queue()
        nc = Connection()
        await nc.connect_once([first_server.address, two.address])

        async def came_back() -> None:
            back.put_nowait(None)

        nc.reconnect_from_now_on(ignored, ignored, came_back)
        order = [await within(accepted.get())]
        for lost in (first_server, two, first_server, two):
            lost.close()
            order.append(await within(accepted.get()))
            await within(back.get())
        await nc.close()
    assert order == ["one", "two", "one", "two", "one"]
