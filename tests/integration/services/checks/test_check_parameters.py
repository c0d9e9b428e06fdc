"""The parameters in requests of checks, and the Active condition that shows the state of a
controller."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from admittance.events.facts import CheckRequested
from admittance.events.requests.manifests import Delete, DeleteReply
from admittance.events.subjects import STREAM
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from admittance.workload.phase import holds_quota
from support.builders import a_manifest
from support.cluster import Cluster
from support.processes.fork_server import run_admit
from support.requests import (
    admission_check,
    apply,
    ask,
    eventually,
    queues,
    settled,
    submit,
    workload,
)
from support.servers import LIMIT, TestServer

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
CHECK: dict[str, Any] = admission_check(
    "c", "ctl", parameters={"apiGroup": "budgets.example.com", "kind": "Budget", "name": "weekly"}
)


def a_budget(limit: int) -> dict[str, Any]:
    return {
        "apiVersion": "budgets.example.com/v1",
        "kind": "Budget",
        "metadata": {"name": "weekly"},
        "spec": {"limit": limit},
    }


async def requests(bus: Bus) -> list[CheckRequested]:
    messages = await read_messages(bus, ["admit.check.requested.ctl.ns.*"])
    return [msgspec.json.decode(message.data, type=CheckRequested) for message in messages]


async def asked(bus: Bus, name: str) -> CheckRequested:
    """The request about a workload that is submitted now."""
    await submit(bus, [a_manifest(name, queue="lq-cq")])
    asked: list[CheckRequested] = []

    async def is_requested() -> bool:
        asked[:] = [each for each in await requests(bus) if each.name == name]
        return bool(asked)

    await eventually(is_requested)
    return asked[0]


async def until_requested(bus: Bus, name: str, expected: list[Any]) -> None:
    """Waits until the requests about the workload have these parameters."""

    async def so() -> bool:
        each = [request.parameters for request in await requests(bus) if request.name == name]
        return [msgspec.json.decode(parameters) for parameters in each] == expected

    await eventually(so)


async def test_parameters_are_the_spec_of_the_named_object_as_it_is(
    cluster: Cluster, bus: Bus
) -> None:
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, CHECK, *queues("cq", cpu=10, admissionChecks=["c"]))
    # Missing: the queue reserves nothing, and the controller is not asked.
    await submit(bus, [a_manifest("early", queue="lq-cq")])
    await apply(bus, a_budget(5))
    assert msgspec.json.decode((await asked(bus, "first")).parameters) == {"limit": 5}
    await until_requested(bus, "early", [{"limit": 5}])
    # A check without a verdict is asked again, in the same cycle, when its parameters change.
    await apply(bus, a_budget(7))
    await until_requested(bus, "early", [{"limit": 5}, {"limit": 7}])
    await until_requested(bus, "first", [{"limit": 5}, {"limit": 7}])
    assert {request.cycle for request in await requests(bus)} == {0}
    assert msgspec.json.decode((await asked(bus, "second")).parameters) == {"limit": 7}
    # The check names others.
    monthly = {**a_budget(9), "metadata": {"name": "monthly"}}
    reference = {**CHECK["spec"]["parameters"], "name": "monthly"}
    other = {**CHECK, "spec": {**CHECK["spec"], "parameters": reference}}
    await apply(bus, monthly)
    await apply(bus, other)
    await until_requested(bus, "second", [{"limit": 7}, {"limit": 9}])
    await apply(bus, CHECK)
    await until_requested(bus, "second", [{"limit": 7}, {"limit": 9}, {"limit": 7}])
    gone = Delete(kind="budget.budgets.example.com", name="weekly")
    await ask(bus, "admit.api.delete", gone, DeleteReply)

    async def row_waits_for_the_object() -> bool:
        stored = await workload(bus, "second")
        assert stored is not None
        return "weekly" in stored.status.admission_checks[0].message

    await eventually(row_waits_for_the_object)
    await until_requested(bus, "second", [{"limit": 7}, {"limit": 9}, {"limit": 7}])


@pytest.mark.servers("real")
async def test_doctor_reports_unanswered_requests_and_invalid_verdicts(
    cluster: Cluster, bus: Bus, nats_server: TestServer
) -> None:
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, a_budget(5), CHECK, *queues("cq", cpu=10, admissionChecks=["c"]))
    await asked(bus, "w")
    subscription = await bus.nc.jetstream().pull_subscribe_bind("check-ctl", STREAM)
    (request,) = await subscription.fetch(1, timeout=LIMIT)
    await request.nak()
    await subscription.fetch(1, timeout=LIMIT)
    nonsense = {"namespace": "ns", "name": "w", "controller": "ctl", "check": "c", "cycle": 1}
    data = json.dumps({**nonsense, "state": "Perhaps"}).encode()
    await settled(bus, await bus.publish(Outgoing("admit.check.reported.ctl.ns.w", data)))
    env = {"ADMIT_NATS_URL": nats_server.url}
    done = await asyncio.to_thread(run_admit, "doctor", "-o", "json", env=env)
    lines = {check["what"]: check for check in json.loads(done.out)["checks"]}
    controller = lines["check controller ctl"]
    assert controller["state"] == "note"
    assert "1 not acknowledged; 1 redelivered" in controller["found"]
    assert "c: no heartbeat yet" in controller["found"]
    assert not any(what.startswith("consumer check-") for what in lines)
    newest = lines["newest of workload-controller"]["found"]
    assert newest == (
        "on admit.check.reported.ctl.ns.w: UnknownState: "
        "'Perhaps' is not one of Pending, Ready, Retry, Rejected"
    )
    stored = await workload(bus, "w")
    assert stored is not None
    assert holds_quota(stored)
