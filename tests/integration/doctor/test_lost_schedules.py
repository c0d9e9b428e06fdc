"""`admit doctor` names schedules that are lost, until the retry-timer has set them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from admittance.client.requests.link import Link
from admittance.doctor.finding import OK, WRONG
from admittance.doctor.schedules import timers_found
from admittance.events import subjects
from admittance.runtime.bus.bus import Bus
from simulation.nats.simulated_server import SimulatedServer
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import admission_check, apply, eventually, queues, submit

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

CHECK: dict[str, Any] = admission_check("slow", "example.com/slow", checkTimeoutSeconds=3600)


async def test_lost_schedules_are_named_until_they_are_set_again(
    bus: Bus, nats_server: SimulatedServer, tmp_path: Path
) -> None:
    cluster, link = Cluster(nats_server, tmp_path), Link(bus)
    for service in ("workload-controller", "scheduler", "retry-timer"):
        await cluster.start(service)

    async def one_is_set() -> bool:
        lines = await timers_found(link)
        return len(lines) == 2 and lines[0].found.startswith("schedules: 1;")

    async def all_is_well() -> bool:
        return all(finding.state == OK for finding in await timers_found(link))

    try:
        await apply(bus, CHECK, *queues("a", admissionChecks=["slow"]))
        await submit(bus, [a_manifest("w", queue="lq-a")])
        await eventually(one_is_set)
        await eventually(all_is_well, 120)
        request = {"filter": f"{subjects.TIMER_AT}>"}
        await bus.api(f"STREAM.PURGE.{subjects.TIMERS}", request)
        lost = (await timers_found(link))[-1]
        assert lost.state == WRONG
        assert lost.found.endswith("; 1 missing")
        assert "the retry-timer sets them again" in lost.todo
        await eventually(all_is_well, 120)
        await eventually(one_is_set)
    finally:
        await cluster.stop()
