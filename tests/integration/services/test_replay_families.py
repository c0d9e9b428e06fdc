"""Decisions about families are made again from the log: races, gates, promises, confirmations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from test_replay_with_checks import Others, a_check

from admittance.cli.support.options import Call, Output, UrlFrom
from admittance.cli.system.replay_decision import replay_decision
from admittance.events.subjects import FENCED
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import read_messages
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, submit, workload
from support.servers import TestServer

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

API = "kueue.x-k8s.io/v1beta2"


def objects() -> list[dict[str, Any]]:
    """A queue of two flavors of two cpu each; the worse one has a check."""

    def an_object(kind: str, name: str, spec: Any = None, **meta: str) -> dict[str, Any]:
        more = {} if spec is None else {"spec": spec}
        return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, **more}

    quota = [{"name": "cpu", "nominalQuota": 2}]
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "concurrentAdmission": {"migrationConstraints": {"mode": "UpgradeOnly"}},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [
                    {"name": "best", "resources": quota},
                    {"name": "worst", "resources": quota, "admissionChecks": ["now"]},
                ],
            }
        ],
    }
    return [
        a_check("now", "Anytime"),
        *(an_object("ResourceFlavor", name) for name in ("best", "worst")),
        an_object("ClusterQueue", "cq", spec),
        an_object("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace="ns"),
    ]


def a_job(name: str, priority: int = 0) -> dict[str, Any]:
    return a_manifest(name, requests={"cpu": "2"}, priority=priority)


@pytest.fixture
async def others(bus: Bus) -> AsyncIterator[Others]:
    found = Others(bus)
    yield found
    await found.close()


async def test_decisions_about_families_are_repeated_equally(
    cluster: Cluster,
    bus: Bus,
    nats_server: TestServer,
    others: Others,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def runs_on(name: str, tag: str) -> bool:
        found = await workload(bus, name)
        return found is not None and found.status.admitted_variant == f"{name}-variant-{tag}"

    for service in ("workload-controller", "scheduler", "variant-controller"):
        await cluster.start(service)
    await apply(bus, *objects())
    await submit(bus, [a_job("first")])
    await eventually(lambda: runs_on("first", "best"))
    await submit(bus, [a_job("second")])
    await eventually(lambda: runs_on("second", "worst"))
    # Both would have to preempt: only the better one's gate opens.
    await submit(bus, [a_job("high", priority=5)])
    await eventually(lambda: runs_on("high", "best"))
    # The older one has its place back; the other one moves up once that is free.
    await others.finish("high")
    await eventually(lambda: runs_on("first", "best"))
    await others.finish("first")
    await eventually(lambda: runs_on("second", "best"))
    await asyncio.sleep(1.5)  # longer than a refusal waits to be said

    said = await read_messages(bus, [f"admit.workload.{what}.>" for what in sorted(FENCED)])
    call = Call(url=nats_server.url, url_from=UrlFrom.OPTION, output=Output.JSON)
    kinds, moved = set(), 0
    for one in said:
        await replay_decision(call, one.sequence)
        told = json.loads(capsys.readouterr().out)
        assert told["same"], (one.subject, told["decision"], told["differences"])
        kinds.add(told["kind"])
        moved += "migratesFrom" in told["decision"]
    assert kinds >= {"assigned", "refused", "preempted", "confirmed"}
    assert moved
    assert any(b"AdmissionGated" in one.data for one in said)
    assert await read_messages(bus, ["admit.workload.ungated.>"])
