"""Requests of one namespace do not hold up those of another one."""

from __future__ import annotations

import asyncio

import pytest

from admittance.events.requests.base import Reply
from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats import micro
from support.servers import within

pytestmark = pytest.mark.bus


async def test_waiting_requests_of_a_namespace_leave_room_for_others(bus: Bus) -> None:
    done = asyncio.Event()

    async def wait(_: bytes, subject: str) -> Reply:
        if subject.endswith(".a"):
            await done.wait()
        return Reply()

    serving = await micro.serve(bus.nc, "test", "i", {"admit.api.wait.*": wait})
    crowd = [
        asyncio.create_task(bus.nc.request("admit.api.wait.a", b"", timeout=60))
        for _ in range(micro.CONCURRENT_MAX + 1)
    ]
    refused, _ = await within(asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED))
    for refusal in refused:
        assert (refusal.result().headers or {})["Nats-Service-Error-Code"] == "503"
    answer = await within(bus.nc.request("admit.api.wait.b", b"", timeout=60))
    assert not answer.headers
    done.set()
    answers = await within(asyncio.gather(*crowd))
    assert sum(not answer.headers for answer in answers) >= micro.CONCURRENT_MAX // 2
    await serving.stop()
