"""The floor of a latency: what the bus alone takes for the hops of an admission."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from admittance.bench.run import Delay, delay
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.pull_consumer import PullConsumer, RawMessage
from admittance.runtime.nats_server.embedded_server import EmbeddedServer

HOPS: Final = 4
"""The messages in a row from a submission to its admission: submitted, the stored workload,
assigned, admitted."""
STREAM: Final = "HOPS"


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="admit-bench-") as folder:
        server = EmbeddedServer(Path(folder), port=0)
        await server.start()
        try:
            yield server.url
        finally:
            await server.stop()


async def _consumer(bus: Bus, hop: int) -> str:
    config: dict[str, Any] = {
        "durable_name": f"hop-{hop}",
        "filter_subject": f"hops.{hop}",
        "ack_policy": "none",
        "deliver_policy": "all",
        "mem_storage": True,
        "num_replicas": 1,
    }
    await bus.api(f"CONSUMER.CREATE.{STREAM}.hop-{hop}", {"stream_name": STREAM, "config": config})
    return f"hop-{hop}"


async def hops_delay(rate: float, seconds: float) -> Delay:
    """How long `HOPS` hops take on a server that does nothing else. One hop: a message is stored in
    a stream, and a pull consumer of another connection gets it. ``rate``: messages a second."""
    sent: list[float] = []
    got: list[float] = []
    complete = asyncio.Event()
    count = max(1, round(rate * seconds))
    async with _server() as url, AsyncExitStack() as stack:

        async def connected(name: str) -> Bus:
            bus = await Bus.connect(url, name=name)
            stack.push_async_callback(bus.close)
            return bus

        first = await connected("hops")
        config = {"name": STREAM, "subjects": ["hops.*"], "storage": "file"}
        await first.api(f"STREAM.CREATE.{STREAM}", config)

        def relay(bus: Bus, hop: int) -> Any:
            publishing: set[asyncio.Task[int]] = set()

            def receive(message: RawMessage) -> None:
                if hop + 1 < HOPS:
                    onward = bus.publish(Outgoing(f"hops.{hop + 1}", message.data))
                    publishing.add(task := asyncio.ensure_future(onward))
                    task.add_done_callback(publishing.discard)
                else:
                    got.append(clock.monotonic())
                    if len(got) == count:
                        complete.set()

            return receive

        for hop in range(HOPS):
            bus = await connected(f"hop-{hop}")
            pull = PullConsumer(
                bus,
                STREAM,
                lambda bus=bus, hop=hop: _consumer(bus, hop),  # type: ignore[misc]
                relay(bus, hop),
                batch=10 * count,
            )
            await pull.start()
            stack.push_async_callback(pull.stop)
        began = clock.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - clock.monotonic()))
            sent.append(clock.monotonic())
            await first.publish(Outgoing("hops.0", bytes(600)))
        await asyncio.wait_for(complete.wait(), 60)
    return delay([1000 * (end - start) for start, end in zip(sent, got, strict=True)])
