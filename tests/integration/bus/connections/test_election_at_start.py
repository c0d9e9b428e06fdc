"""A program that connects while the servers elect a leader."""

from __future__ import annotations

import asyncio
import json

from admittance.runtime.bus.bus import Bus

_INFO = {"server_id": "S", "version": "2.12.0", "jetstream": True, "headers": True, "proto": 1}


class Electing:
    """Speaks as much of the protocol of NATS as a new connection needs. As servers without a leader
    do, it does not answer the first request to JetStream, and never answers it later."""

    def __init__(self) -> None:
        self.requests = 0
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        numbers: dict[str, str] = {}
        info = {**_INFO, "max_payload": 1048576}
        writer.write(f"INFO {json.dumps(info)}\r\n".encode())
        while line := (await reader.readline()).decode().split():
            match line:
                case ["PING"]:
                    writer.write(b"PONG\r\n")
                case ["SUB", subject, *_, number]:
                    numbers[subject.removesuffix("*")] = number
                case ["PUB", "$JS.API.INFO", inbox, size]:
                    await reader.readexactly(int(size) + 2)
                    self.requests += 1
                    number = next(n for prefix, n in numbers.items() if inbox.startswith(prefix))
                    if self.requests > 1:
                        writer.write(f"MSG {inbox} {number} 2\r\n{{}}\r\n".encode())
        writer.close()


async def test_jetstream_is_asked_again_over_the_same_connection() -> None:
    electing = Electing()
    async with await asyncio.start_server(electing.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        bus = await Bus.connect(f"nats://127.0.0.1:{port}", name="test")
        await bus.close()
    assert (electing.connections, electing.requests) == (1, 2)
