"""Names of objects for completion, asked without the NATS client."""

from __future__ import annotations

import asyncio

import pytest

from admittance.client import kinds
from admittance.client.quick_names import names
from admittance.runtime.bus.bucket import put_message
from admittance.runtime.bus.bus import Bus
from support.servers import TestServer

pytestmark = pytest.mark.bus


async def test_names_that_begin_with_the_typed_characters_are_found(
    bus: Bus, nats_server: TestServer
) -> None:
    for key in ("workload.default.start-2", "workload.default.start-1", "workload.team.start-3"):
        await bus.publish(put_message(key, b"{}", expected=0))
    for start, completed in (("sta", ["start-1", "start-2"]), ("stop", [])):
        asked = (nats_server.url, kinds.WORKLOAD, "default", start)
        assert await asyncio.to_thread(names, *asked) == completed


def test_without_a_server_there_are_no_names() -> None:
    assert names("nats://127.0.0.1:1", kinds.WORKLOAD, "default", "") == []
