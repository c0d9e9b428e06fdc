"""A probe asks an instance over the bus whether it is ready."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.events.requests.services import HealthReply
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.health import SUBJECT, trouble
from support.servers import LIMIT, within

pytestmark = pytest.mark.bus


async def test_an_instance_that_missed_the_first_query_is_asked_again(bus: Bus) -> None:
    asked: list[bytes] = []

    async def answer(message: Any) -> None:
        asked.append(message.data)
        # Another instance answers the first query, while ours still starts.
        instance = "other" if len(asked) == 1 else "ours"
        reply = HealthReply(service="scheduler", instance=instance, ready=True)
        await message.respond(msgspec.json.encode(reply))

    await bus.nc.subscribe(SUBJECT, cb=answer)
    reason = await within(trouble(bus.nc, "scheduler", lambda name: name == "ours", seconds=LIMIT))
    assert reason == ""
    assert len(asked) == 2


async def test_an_instance_that_never_answers_is_named(bus: Bus) -> None:
    async def answer(message: Any) -> None:
        await message.respond(msgspec.json.encode(HealthReply(service="runner", instance="r")))

    await bus.nc.subscribe(SUBJECT, cb=answer)
    reason = await within(trouble(bus.nc, "scheduler", lambda _: True, seconds=0.3))
    assert reason == "scheduler does not answer"
