"""Quota is reduced on a real server: reservations are revoked, and running workloads are evicted
only if the queue has onQuotaCut, after their jobs have stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from admittance.runtime.bus.bus import Bus
from admittance.workload.conditions import Type, find, is_true
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import admission_check, apply, becomes, eventually, queues, submit, workload

pytestmark = pytest.mark.bus
CHECK = admission_check("silent", "absent")
CHECKED: dict[str, Any] = {"admissionChecks": ["silent"]}


async def holds(bus: Bus, name: str, kind: Type) -> bool:
    stored = await workload(bus, name)
    return stored is not None and is_true(stored, kind)


async def reason(bus: Bus, name: str, kind: Type) -> str:
    stored = await workload(bus, name)
    condition = find(stored, kind) if stored is not None else None
    return f"{condition.status}: {condition.reason}" if condition is not None else ""


@pytest.mark.servers("simulated")
async def test_a_quota_cut_during_downtime_is_found_by_the_next_scheduler(
    cluster: Cluster, bus: Bus
) -> None:
    await cluster.start("workload-controller")
    scheduler = await cluster.start("scheduler")
    await apply(bus, CHECK, *queues("cq", cpu=4, **CHECKED))
    await submit(bus, [a_manifest("w", queue="lq-cq", requests={"cpu": "3"})])
    await eventually(lambda: holds(bus, "w", Type.QUOTA_RESERVED))
    await scheduler.kill()
    await apply(bus, *queues("cq", cpu=2, **CHECKED))
    assert await holds(bus, "w", Type.QUOTA_RESERVED)
    await cluster.start("scheduler")

    async def is_back() -> bool:
        return not await holds(bus, "w", Type.QUOTA_RESERVED)

    await eventually(is_back)


async def test_a_quota_cut_stops_running_jobs_only_with_the_queue_s_consent(
    cluster: Cluster, bus: Bus, tmp_path: Path
) -> None:
    trail = tmp_path / "trail"
    for service in ("workload-controller", "scheduler", "runner"):
        await cluster.start(service)
    await apply(bus, *queues("keeps", cpu=1), *queues("evicts", cpu=1, onQuotaCut="evict")[1:])
    for name in ("keeps", "evicts"):
        script = (
            f"trap 'sleep 1; echo stopped {name} >> {trail}; exit 143' TERM; "
            f"echo started {name} >> {trail}; while :; do sleep 0.05; done"
        )
        job = a_manifest(name, queue=f"lq-{name}")
        pod = job["spec"]["podSets"][0]["template"]["spec"]
        pod["containers"][0]["command"] = ["/bin/sh", "-c", script]
        pod["containers"][0]["image"] = "none"
        await submit(bus, [job])
        await eventually(lambda name=name: holds(bus, name, Type.PODS_READY))  # type: ignore[misc]
    await apply(bus, *queues("keeps", cpu=0), *queues("evicts", cpu=0, onQuotaCut="evict")[1:])
    await becomes(lambda: reason(bus, "evicts", Type.EVICTED), "True: QuotaChanged")
    if "stopped evicts" not in trail.read_text():
        assert await holds(bus, "evicts", Type.QUOTA_RESERVED)
    await becomes(lambda: reason(bus, "evicts", Type.REQUEUED), "True: QuotaChanged")
    assert "stopped evicts" in trail.read_text()
    assert "stopped keeps" not in trail.read_text()
    assert await holds(bus, "keeps", Type.ADMITTED)
