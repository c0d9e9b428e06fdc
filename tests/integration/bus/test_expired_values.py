"""Expired and deleted values do not come back when the server is killed."""

from __future__ import annotations

import asyncio

import pytest

from admittance.events.subjects import BUCKET, CLAIMS, PROVIDERS
from admittance.runtime.bus.bucket import delete_message, get, put_message
from admittance.runtime.bus.bus import Bus
from support.servers import TestServer

pytestmark = [pytest.mark.bus, pytest.mark.servers("real", "simulated")]


async def test_an_older_value_does_not_return_when_the_newer_one_expires(
    bus: Bus, nats_server: TestServer
) -> None:
    buckets = (BUCKET, PROVIDERS, CLAIMS)
    for name in buckets:
        for key in ("x.deleted", "x.ended", "x.other"):
            await bus.publish(put_message(key, b"old", expected=None, bucket=name))
        ended = put_message("x.ended", b"new", expected=None, ttl_seconds=1, bucket=name)
        await bus.publish(ended)
        await bus.publish(delete_message("x.deleted", expected=None, ttl_seconds=1, bucket=name))
    await asyncio.sleep(2.5)

    await nats_server.restart_after_kill()

    await bus.connected()
    for name in buckets:
        entries = [await get(bus, key, bucket=name) for key in ("x.deleted", "x.ended")]
        assert [entry.value if entry is not None else None for entry in entries] == [None, None], (
            name
        )
        other = await get(bus, "x.other", bucket=name)
        assert other is not None
        assert other.value == b"old"
