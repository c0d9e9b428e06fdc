"""A full log refuses new facts and keeps the old ones until there is room."""

from __future__ import annotations

import asyncio

import pytest

from admittance.events.subjects import STREAM
from admittance.runtime.bus.bus import Bus
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, is_reserved, queues, submit

pytestmark = pytest.mark.bus


async def test_the_scheduler_retries_a_full_log_at_intervals(cluster: Cluster, bus: Bus) -> None:
    controller = await cluster.start("workload-controller")
    scheduler = await cluster.start("scheduler")
    await apply(bus, *queues("cq", cpu=4))
    controller.pause()
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    info = await bus.api(f"STREAM.INFO.{STREAM}")
    full = {**info["config"], "max_msgs": info["state"]["messages"]}
    await bus.api(f"STREAM.UPDATE.{STREAM}", full)
    controller.resume()

    async def refused() -> bool:
        return "maximum messages exceeded" in scheduler.log

    await eventually(refused)
    await asyncio.sleep(1.0)
    assert scheduler.log.count("maximum messages exceeded") <= 5
    await bus.api(f"STREAM.UPDATE.{STREAM}", info["config"])
    await eventually(lambda: is_reserved(bus, "w"))
