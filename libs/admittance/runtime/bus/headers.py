"""The headers of all messages of a stream under some subject, once, from one end to the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
import nats.errors

from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.connection import Headers, description, status, text_of
from admittance.runtime.errors import Refused, Unavailable
from admittance.runtime.tasks import set_within

PAGE: Final = 2000
"""Messages asked for at once."""
SILENCE_SECONDS: Final = 5.0
NOTHING_LEFT: Final = ("404", "408")

_encode = msgspec.json.Encoder().encode


async def headers_of(
    bus: Bus, stream: str, pattern: str
) -> AsyncIterator[tuple[str, Mapping[str, str]]]:
    """Subject and headers of each message that is there while this reads. Raises Unavailable."""
    made = await bus.api(
        f"CONSUMER.CREATE.{stream}",
        {
            "stream_name": stream,
            "config": {
                "ack_policy": "none",
                "deliver_policy": "all",
                "filter_subject": pattern,
                "headers_only": True,
                "inactive_threshold": 30_000_000_000,
                "mem_storage": True,
                "num_replicas": 1,
            },
        },
    )
    name = made["name"]
    try:
        more = bool(made.get("num_pending"))
        while more:
            page = await _page(bus, stream, name)
            for subject, raw in page:
                yield subject, Headers(raw)
            more = len(page) == PAGE
    finally:
        # The server forgets it by itself, a little later.
        with suppress(Refused, Unavailable):
            await bus.api(f"CONSUMER.DELETE.{stream}.{name}")


async def _page(bus: Bus, stream: str, consumer: str) -> list[tuple[str, bytes]]:
    """The next messages; fewer than `PAGE`: these were the last ones."""
    found: list[tuple[str, bytes]] = []
    moved, over = asyncio.Event(), asyncio.Event()

    trouble: list[str] = []

    def take(subject: bytes, reply: bytes, _data: bytes, headers: bytes) -> None:
        if reply.startswith(b"$JS.ACK."):
            found.append((text_of(subject), headers))
        else:
            word = status(headers)
            if word not in NOTHING_LEFT:
                trouble.append(f"{word} {description(headers)}")
            over.set()
        if len(found) == PAGE:
            over.set()
        moved.set()

    inbox = bus.nc.new_inbox()
    listening = await bus.nc.listen(inbox, take)
    request: dict[str, Any] = {"batch": PAGE, "no_wait": True}
    try:
        await bus.nc.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", _encode(request), reply=inbox
        )
        while not over.is_set():
            moved.clear()
            if not await set_within(moved, SILENCE_SECONDS):
                raise Unavailable(f"the server says no more of {stream}")
    except nats.errors.Error as error:
        raise Unavailable(str(error)) from None
    finally:
        with suppress(nats.errors.Error):
            await bus.nc.deafen(listening)
    if trouble:
        # Such as a consumer that a restart of the server took: what was found is not all.
        raise Unavailable(f"{stream} was not read to its end: {trouble[0]}")
    return found
