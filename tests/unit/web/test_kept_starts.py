"""A page shows the expected starts of the answer before, if the newest answer takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from admittance.api.meta import Condition, ObjectMeta
from admittance.client.errors import NotAllowed
from admittance.events.requests.explanation import ExplainReply
from admittance.events.requests.forecast import ForecastReply, StartForecast
from admittance.web.kept.starts import KeptStarts
from admittance.web.pages.reading import explained
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import NOON

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

    async def explain(self, _name: str, *, namespace: str, start: bool) -> ExplainReply:
        self.explained = namespace, start
        return ExplainReply(reason="why")


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


async def test_the_page_of_a_workload_waits_for_no_forecast_with_its_explanation() -> None:
    service = Forecasts(a=StartForecast(p50=NOON))
    service.ready.set()
    session: Any = SimpleNamespace(client=service, starts=kept(service, 5))
    waits = StoredWorkload(
        api_version="v", kind="Workload", metadata=ObjectMeta(name="a", namespace="ns")
    )
    reply = await explained(session, waits)
    assert reply is not None
    assert (reply.reason, reply.start) == ("why", StartForecast(p50=NOON))
    assert service.explained == ("ns", False)
    ended = WorkloadStatus(conditions=(Condition(type="Finished", status="True"),))
    reply = await explained(session, replace(waits, status=ended))
    assert reply is not None
    assert (reply.start, service.asked) == (None, 1)
