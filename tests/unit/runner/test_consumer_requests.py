"""A runner asks again for a consumer with the id of the request that has no answer."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from admittance.events.requests.reading import ConsumerReply, RunnerConsumer
from admittance.runner.runs.admissions import AdmissionReader
from admittance.runtime.errors import BusUnavailable


class SlowController:
    """A bus on which each request has the next outcome."""

    def __init__(self, *answered: bool) -> None:
        self._answered = list(answered)
        self.asked: list[RunnerConsumer] = []

    async def request(self, _subject: str, data: bytes, **_: float) -> bytes:
        self.asked.append(msgspec.json.decode(data, type=RunnerConsumer))
        if not self._answered.pop(0):
            raise BusUnavailable("no answer")
        return msgspec.json.encode(ConsumerReply(consumer="runner-gpu"))


def test_a_request_for_a_consumer_keeps_its_id_until_it_has_an_answer() -> None:
    bus: Any = SlowController(False, True, True, False, True)
    reader = AdmissionReader(bus)

    async def ask(stream: str, after: int | None) -> None:
        await reader.make_consumer("gpu", stream, after)

    async def all_requests() -> None:
        with pytest.raises(BusUnavailable):
            await ask("log", None)
        await ask("claims", None)
        await ask("log", None)
        with pytest.raises(BusUnavailable):
            await ask("log", None)
        await ask("log", 7)

    asyncio.run(all_requests())
    first, claims, again, next_need, after = (asked.id for asked in bus.asked)
    assert first == again
    assert len({first, claims, next_need, after}) == 4
