"""Expected starts with the services that they rest on, and the process that begins with a
question."""

from __future__ import annotations

import asyncio

import pytest

from admittance.client import Client
from admittance.events.requests.base import Reply
from admittance.events.requests.forecast import Forecast, ForecastReply, StartForecast
from admittance.forecast_service import SERVICE
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.process.on_demand import on_demand_task
from admittance.runtime.process.service_child import ChildEnded
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, ask, eventually, queues, submit
from support.servers import within

pytestmark = pytest.mark.bus


async def test_a_waiting_workload_is_expected_to_start_when_the_limit_of_another_ends(
    cluster: Cluster, bus: Bus, nats_server: EmbeddedServer
) -> None:
    for service in ("workload-controller", "scheduler", "forecast"):
        await cluster.start(service)
    await apply(bus, *queues("cq", cpu=1))
    limited = a_manifest("runs", queue="lq-cq", maximumExecutionTimeSeconds=600)
    await submit(bus, [limited, a_manifest("waits", queue="lq-cq")])
    starts: dict[str, StartForecast] = {}

    async def is_known() -> bool:
        question = Forecast(workloads=("runs", "waits", "absent"))
        reply = await ask(bus, "admit.api.forecast.ns", question, ForecastReply)
        starts.clear()
        starts.update(reply.starts)
        # The others do not wait, once `runs` is admitted.
        return not reply.starting and list(starts) == ["waits"]

    await eventually(is_known)
    start = starts["waits"]
    assert start.p50 is not None and start.as_of is not None
    assert 0 < (start.p50 - start.as_of).total_seconds() <= 600
    assert start.basis.startswith("from declared limits")
    async with await Client.connect(nats_server.url, namespace="ns") as client:

        async def is_shown() -> bool:
            # Views do without the expected start if the forecast does not answer at once.
            explained = await client.explain("waits")
            [row] = (await client.queue("lq-cq")).waiting
            return explained.start is not None and row.start is not None

        await eventually(is_shown)
    other = await ask(
        bus, "admit.api.forecast.other", Forecast(workloads=("waits",)), ForecastReply
    )
    assert (other.starts, other.starting) == ({}, False)
    wrong = await ask(bus, "admit.api.forecast", Forecast(workloads=("waits",)), ForecastReply)
    assert wrong.error == "waits: a question about all namespaces names namespace/name"


async def test_a_process_begins_with_a_question_and_again_after_it_ended(
    bus: Bus, nats_server: EmbeddedServer
) -> None:
    began: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def run() -> None:
        ends = asyncio.Event()
        began.put_nowait(ends)
        await ends.wait()
        raise ChildEnded("it ended")

    async def ready(_: Bus) -> None:
        await asyncio.Event().wait()

    settings = Settings(service="forecast", instance="one", url=nats_server.url)
    task = on_demand_task(SERVICE, settings, run, ready)
    serves = asyncio.Event()
    working = asyncio.ensure_future(task.run(serves))
    try:
        await within(serves.wait())
        for _ in range(2):

            async def begins() -> bool:
                reply = await ask(bus, "admit.api.forecast.ns", Forecast(), Reply)
                assert reply.error.startswith("the process of forecast starts")
                return not began.empty()

            await eventually(begins)
            began.get_nowait().set()
            assert began.empty()
    finally:
        await cancel_and_wait(working)


async def test_an_error_while_a_process_starts_ends_the_task(
    bus: Bus, nats_server: EmbeddedServer
) -> None:
    async def run() -> None:
        await asyncio.Event().wait()

    async def ready(_: Bus) -> None:
        raise BusUnavailable("no connection")

    settings = Settings(service="forecast", instance="one", url=nats_server.url)
    serves = asyncio.Event()
    working = asyncio.ensure_future(on_demand_task(SERVICE, settings, run, ready).run(serves))
    await within(serves.wait())
    await ask(bus, "admit.api.forecast.ns", Forecast(), Reply)
    with pytest.raises(BusUnavailable):
        await within(working)
