"""A scheduler counts from its start on what the last 24 hours of queues are made from."""

from __future__ import annotations

import pytest

from admittance.events.requests.queues import LastDay, LastDayQuery, Queues, QueuesReply
from admittance.runtime.bus.bus import Bus
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, ask, eventually, queues, submit, workload

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

QUERY = Queues(
    last_day=LastDayQuery(resource="cpu", cluster_queues=("cq", "other"), cohorts=("lab",))
)


async def last_day(bus: Bus) -> LastDay:
    reply: QueuesReply = await ask(bus, "admit.api.queues.ns", QUERY, QueuesReply)
    return reply.last_day or LastDay()


async def test_a_scheduler_counts_from_its_start_on(bus: Bus, cluster: Cluster) -> None:
    await cluster.start("workload-controller")
    await apply(bus, *queues("cq", cohort="lab"))
    await submit(bus, [a_manifest("large", queueName="lq-cq", requests={"cpu": "9"})])

    async def is_stored() -> bool:
        return await workload(bus, "large") is not None

    async def is_counted() -> bool:
        return (await last_day(bus)).begin is not None

    await eventually(is_stored)
    await cluster.start("scheduler")
    await eventually(is_counted)
    day = await last_day(bus)
    assert [each.name for each in day.cluster_queues] == ["cq"]
    assert [each.name for each in day.cohorts] == ["lab"]
    for each in (*day.cluster_queues, *day.cohorts):
        assert (each.waiting[-2:], each.used[-2:]) == ((None, 1), (None, 0))
