"""Check controllers that live, fall silent and come back, and the queues that name their checks."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from admittance.api.checks import AdmissionCheck
from admittance.api.reading.manifest import decode_object
from admittance.events.requests.queues import Queues, QueuesReply
from admittance.events.system import CheckActive, CheckAlive
from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import (
    admission_check,
    apply,
    ask,
    becomes,
    eventually,
    is_reserved,
    queues,
    submit,
)

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
BEAT = {"ADMIT_BEAT_SECONDS": "0.4"}
"""A controller that is silent for 1.2 s is lost."""


async def beat(bus: Bus, controller: str = "ctl", **said: Any) -> None:
    payload = msgspec.json.encode(CheckAlive(**said)) if said else b"{}"
    await bus.nc.publish(f"admit.alive.check.{controller}", payload)


async def check(bus: Bus, name: str) -> tuple[AdmissionCheck, int]:
    entry = await get(bus, f"admissioncheck.{name}")
    assert entry is not None
    assert entry.value is not None
    manifest = decode_object(entry.value).manifest
    assert isinstance(manifest, AdmissionCheck)
    return manifest, entry.revision


async def active(bus: Bus, name: str) -> tuple[str, str] | None:
    """Status and reason of the condition."""
    state, _ = await check(bus, name)
    if state.status is None:
        return None
    if not state.status.conditions:
        return None
    (condition,) = state.status.conditions
    return condition.status, condition.reason


async def why_closed(bus: Bus) -> str:
    """Why the queue admits no workload; "" while it does, or has no leader yet."""
    reply: QueuesReply = await ask(bus, "admit.api.queues", Queues(), QueuesReply)
    closed = [
        cluster_queue
        for cluster_queue in reply.cluster_queues
        if cluster_queue.name == "cq" and not cluster_queue.active
    ]
    return f"{closed[0].reason}: {closed[0].message}" if closed else ""


@pytest.mark.scenario("A19")
async def test_a_check_turns_inactive_and_back_and_its_queue_with_it(
    cluster: Cluster, bus: Bus
) -> None:
    await cluster.start("workload-controller", **BEAT)
    await cluster.start("scheduler")
    # The queue comes before the check that it names.
    await apply(bus, *queues("cq", cpu=4, admissionChecks=["budget"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])

    async def closed_because(reason: str) -> bool:
        return (await why_closed(bus)).startswith(reason)

    await eventually(lambda: closed_because("AdmissionCheckNotFound"))
    bad = CheckActive(active=False, reason="BadParametersRef", message="no Budget b")
    await apply(bus, admission_check("other", "ctl"))
    await beat(bus, checks={"budget": bad})
    await becomes(lambda: active(bus, "other"), ("True", "Active"))
    # Its controller lives already and said what is wrong: no workload slips in between.
    await apply(bus, admission_check("budget", "ctl"))
    assert await active(bus, "budget") == ("False", "BadParametersRef")
    await beat(bus, checks={"budget": bad})

    await eventually(lambda: closed_because("AdmissionCheckInactive"))
    assert not await is_reserved(bus, "w")
    await beat(bus, instance="a")
    await eventually(lambda: is_reserved(bus, "w"))
    await becomes(lambda: active(bus, "budget"), ("False", "ControllerLost"))
    # What is reserved stays so.
    assert await is_reserved(bus, "w")


async def test_the_reported_state_of_a_controller_survives_an_edit(
    cluster: Cluster, bus: Bus
) -> None:
    await cluster.start("workload-controller", ADMIT_BEAT_SECONDS="60")
    forged = {
        **admission_check("a"),
        "status": {"conditions": [{"type": "Active", "status": "False", "reason": "Forged"}]},
    }
    await apply(bus, forged)
    assert await active(bus, "a") is None
    await beat(bus)
    await becomes(lambda: active(bus, "a"), ("True", "Active"))
    changed = json.loads(json.dumps(forged))
    changed["spec"]["checkTimeoutSeconds"] = 60
    await apply(bus, changed)
    assert await active(bus, "a") == ("True", "Active")
    assert (await check(bus, "a"))[0].metadata.generation == 2
