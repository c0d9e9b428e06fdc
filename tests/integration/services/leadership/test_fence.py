"""A scheduler that does not know yet that it was deposed."""

from __future__ import annotations

import asyncio

import pytest

from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus
from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.runtime.tasks import cancel_and_wait
from admittance.scheduler.service import SchedulerService
from admittance.workload.phase import holds_quota
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, health, queues, submit, workload, workloads

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


async def test_a_decision_of_a_deposed_scheduler_from_old_state_is_refused(
    cluster: Cluster, bus: Bus
) -> None:
    """The deposed scheduler sees a new workload, but neither its successor nor the quota that the
    successor gave."""
    await cluster.start("workload-controller")
    leading = LeaderElector(bus, "scheduler", "old", ttl_seconds=1)
    shell = SchedulerService(bus, leading)
    tasks = [asyncio.create_task(task) for task in (leading.run(), shell.watch(), shell.lead())]
    decides = asyncio.create_task(shell.decide())
    await apply(bus, *queues("cq", cpu=2))
    await eventually(lambda: _leads(leading))

    # From now on it gets no message, and its heartbeat expires, but it still makes decisions.
    for task in tasks:
        await cancel_and_wait(task)
    await cluster.start("scheduler", "new")
    await eventually(lambda: _led_by_new(bus))
    await submit(bus, [a_manifest(name, queue="lq-cq") for name in ("a", "b")])
    await eventually(lambda: _holding(bus, 2))

    await submit(bus, [a_manifest("late", queue="lq-cq")])
    await eventually(lambda: _is_there(bus, "late"))
    entry = await get(bus, "workload.ns.late")
    assert entry is not None
    shell.read([entry])
    await eventually(lambda: _knows(leading))
    assert await _holding(bus, 2)
    late = await workload(bus, "late")
    assert late is not None
    assert not holds_quota(late)
    await cancel_and_wait(decides)


async def _leads(leading: LeaderElector) -> bool:
    return leading.lease.fence("queue-cq") is not None


async def _knows(leading: LeaderElector) -> bool:
    return leading.lease.held("queue-cq") is None


async def _led_by_new(bus: Bus) -> bool:
    return any(reply.instance == "new" and reply.leads for reply in await health(bus))


async def _holding(bus: Bus, count: int) -> bool:
    return sum(holds_quota(workload) for workload in await workloads(bus)) == count


async def _is_there(bus: Bus, name: str) -> bool:
    return await workload(bus, name) is not None
