"""Requests of one namespace do not hold up those of another one, and copies are answered once."""

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


async def test_copies_of_a_request_that_is_answered_share_the_answer(bus: Bus) -> None:
    done, asked = asyncio.Event(), [0]

    async def wait(data: bytes, _: str) -> Reply:
        asked[0] += 1
        if data:
            done.set()
        await done.wait()
        return Reply()

    serving = await micro.serve(bus.nc, "test", "i", {"admit.api.wait": wait})
    inbox = bus.nc.new_inbox()
    answers = await bus.nc.subscribe(inbox)
    for _ in range(3):
        await bus.nc.publish("admit.api.wait", b"", reply=inbox)
    await within(bus.nc.request("admit.api.wait", b"the last one", timeout=60))
    await within(answers.next_msg(timeout=60))
    assert (asked[0], answers.pending_msgs) == (2, 0)
    await bus.nc.publish("admit.api.wait", b"", reply=inbox)
    await within(answers.next_msg(timeout=60))
    assert asked[0] == 3, "a copy after the answer is answered again: the answer may be lost"
    await serving.stop()
