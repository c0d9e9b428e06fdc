"""SIGTERM ends a service cleanly: with status 0, and without a word about its own ending."""

from __future__ import annotations

import pytest

from admittance.runtime.bus.bus import Bus
from support.cluster import Cluster
from support.requests import apply, eventually, health, queues

pytestmark = pytest.mark.bus


@pytest.mark.parametrize(
    "service",
    [
        "workload-controller",
        "scheduler",
        "variant-controller",
        "provisioning-check",
        "provider-pool",
        "runner",
    ],
)
async def test_a_service_that_leads_ends_without_a_complaint(
    cluster: Cluster, bus: Bus, service: str
) -> None:
    controller = await cluster.start("workload-controller")
    process = controller
    if service != "workload-controller":
        process = await cluster.start(service)

    async def all_ready() -> bool:
        ready = {reply.service for reply in await health(bus) if reply.ready}
        return {"workload-controller", service} <= ready

    await apply(bus, *queues("cq"))
    await eventually(all_ready)
    await process.stop()
    assert process.status == 0, process.log
    assert "Traceback" not in process.log
    assert '"level":"error"' not in process.log
