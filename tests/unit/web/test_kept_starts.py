"""A page shows the expected starts of the answer before, if the newest answer takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from admittance.client.errors import NotAllowed
from admittance.events.requests.forecast import ForecastReply, StartForecast
from admittance.web.kept.starts import KeptStarts

LATE, SOON = StartForecast(unknown="late"), StartForecast(unknown="soon")


class Forecasts(SimpleNamespace):
    """A client of a forecast service. ``starts``: its answer, None: a refusal; ``ready``: set when
    it answers; ``asked``: how often it was asked."""

    def __init__(self, **starts: StartForecast) -> None:
        super().__init__(starts=starts, ready=asyncio.Event(), asked=0)

    async def forecast(self, _names: Sequence[str], *, namespace: str) -> ForecastReply:
        self.asked += 1
        await self.ready.wait()
        if self.starts is None:
            raise NotAllowed(namespace)
        return ForecastReply(starts=self.starts)


def kept(service: Forecasts, wait_seconds: float) -> KeptStarts:
    client: Any = service
    return KeptStarts(client, wait_seconds)


async def test_an_answer_in_time_is_shown_at_once_and_a_refusal_shows_none() -> None:
    service = Forecasts(a=LATE)
    service.ready.set()
    starts = kept(service, 5)
    assert await starts.of({"ns": ["a", "b"]}) == {"ns/a": LATE}
    service.starts = None
    assert await starts.of({"ns": ["a", "b"]}) == {}
    assert await starts.of({}) == {}


async def test_a_page_shows_the_answer_before_and_asks_once_at_a_time() -> None:
    service = Forecasts(a=LATE)
    service.ready.set()
    starts = kept(service, 0.01)
    assert await starts.of({"ns": ["a"]}) == {"ns/a": LATE}
    service.ready.clear()
    service.starts = {"a": SOON}
    assert [await starts.of({"ns": ["a"]}) for _ in range(3)] == [{"ns/a": LATE}] * 3
    assert service.asked == 2
    await starts.close()
