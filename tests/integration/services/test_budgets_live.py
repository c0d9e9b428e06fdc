"""Budgets with all services: from the submission to the verdict, and past a new leader."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.budgets import BUDGET_CONTROLLER
from admittance.events import facts
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from support.builders import a_manifest, an_object, resource_groups
from support.cluster import Cluster
from support.requests import apply, eventually, queues, submit, workload

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
BUDGET: dict[str, Any] = {
    "apiVersion": "admittance.dev/v1",
    "kind": "Budget",
    "metadata": {"name": "cores"},
    "spec": {"per": "Namespace", "window": "Year", "unit": "cpu-hours", "limit": 2},
}
CHECK = an_object(
    "AdmissionCheck",
    "budget",
    {
        "controllerName": BUDGET_CONTROLLER,
        "parameters": {"apiGroup": "admittance.dev", "kind": "Budget", "name": "cores"},
    },
)


async def states(bus: Bus, *names: str) -> list[str]:
    """The state of the check's row of each workload, with "admitted" for those that run."""
    found = []
    for name in names:
        known = await workload(bus, name)
        rows = known.status.admission_checks if known is not None else ()
        conditions = known.status.conditions if known is not None else ()
        runs = any(c.type == "Admitted" and c.status == "True" for c in conditions)
        found.append("admitted" if runs else rows[0].state if rows else "")
    return found


async def message(bus: Bus, name: str) -> str:
    known = await workload(bus, name)
    assert known is not None
    [row] = known.status.admission_checks
    return row.message


async def test_a_budget_with_room_for_two_hours_starts_two_jobs_of_an_hour(
    cluster: Cluster, bus: Bus
) -> None:
    for service in ("workload-controller", "scheduler", "budget-controller"):
        await cluster.start(service)
    await apply(bus, *queues("cq"), BUDGET, CHECK)
    spec = {
        "namespaceSelector": {},
        "resourceGroups": resource_groups({"default": 9}),
        "admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]},
    }
    await apply(bus, an_object("ClusterQueue", "cq", spec))

    def jobs(*names: str, seconds: int = 3600) -> list[dict[str, Any]]:
        return [a_manifest(n, queue="lq-cq", maximumExecutionTimeSeconds=seconds) for n in names]

    await submit(bus, jobs("a", "b", "c"))

    async def two_run() -> bool:
        return sorted(await states(bus, "a", "b", "c")) == ["Retry", "admitted", "admitted"]

    await eventually(two_run)
    found = dict(zip("abc", await states(bus, "a", "b", "c"), strict=True))
    [waits] = [name for name, state in found.items() if state == "Retry"]
    runs = min(name for name, state in found.items() if state == "admitted")
    text = await message(bus, waits)
    assert "of 2 cpu-hours this year, and its jobs may use 2 more; this job may use 1" in text
    assert "asked again at " in text

    # A new leader counts what runs, and what a job that ended early has given back.
    await cluster.processes[-1].stop()
    await cluster.start("budget-controller")
    await submit(bus, jobs("d"))

    async def d_waits() -> bool:
        return await states(bus, "d") == ["Retry"]

    await eventually(d_waits)
    fact = facts.Finished(namespace="ns", name=runs)
    await bus.publish(Outgoing(subject_of(fact), msgspec.json.encode(fact)))
    await submit(bus, jobs("e", seconds=1800))

    async def e_runs() -> bool:
        return await states(bus, "e") == ["admitted"]

    await eventually(e_runs)
