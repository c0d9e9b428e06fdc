"""Controllers that send invalid verdicts, too many, or none do not disturb other controllers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from admittance.events.subjects import STREAM
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.durables import check_durables
from admittance.runtime.bus.history import read_messages
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import (
    admission_check,
    apply,
    eventually,
    is_admitted,
    is_reserved,
    queues,
    settled,
    submit,
    workload,
)
from support.servers import LIMIT, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


def a_verdict(name: str, state: str = "Ready", **more: Any) -> dict[str, Any]:
    return {
        "namespace": "ns",
        "name": name,
        "controller": "ctl",
        "check": "budget",
        "cycle": 1,
        "state": state,
        **more,
    }


def outgoing(verdict: dict[str, Any], controller: str = "ctl") -> Outgoing:
    subject = f"admit.check.reported.{controller}.ns.{verdict['name']}"
    return Outgoing(subject, json.dumps(verdict).encode())


async def cycle_of(bus: Bus, name: str) -> int:
    stored = await workload(bus, name)
    assert stored is not None
    return stored.status.admission_cycle


@pytest.fixture
async def running(cluster: Cluster, bus: Bus) -> Bus:
    """``w`` waits for the budget; workloads in ``lq-open`` have no checks."""
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, admission_check("budget", "ctl"), admission_check("other", "other"))
    await apply(bus, *queues("cq", cpu=50, admissionChecks=["budget"]))
    await apply(bus, *queues("open", cpu=10_000))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    await eventually(lambda: is_reserved(bus, "w"))
    return bus


@pytest.mark.parametrize("state", ["Ready", "Nonsense"])
async def test_a_flood_of_verdicts_does_not_affect_other_workloads(
    running: Bus, state: str
) -> None:
    """10,000 a second for some seconds, stale ones or nonsense: others are admitted meanwhile."""
    stop = asyncio.Event()
    sent = 0

    async def flood() -> None:
        nonlocal sent
        message = outgoing(a_verdict("w", state, cycle=10**6, message="m" * 200))
        while not stop.is_set():
            begun = clock.monotonic()
            await running.publish_all([message] * 500)
            sent += 500
            await asyncio.sleep(max(0.0, begun + 0.05 - clock.monotonic()))

    flooding = asyncio.create_task(flood())
    waits = []
    begun = clock.monotonic()
    number = 0
    while clock.monotonic() - begun < 3.0 or number < 10:
        name = f"calm-{number}"
        at = clock.monotonic()
        await submit(running, [a_manifest(name, queue="lq-open")])
        await eventually(lambda name=name: is_admitted(running, name))  # type: ignore[misc]
        waits.append(clock.monotonic() - at)
        number += 1
    lasted = clock.monotonic() - begun
    stop.set()
    await within(flooding)
    rate = sent / lasted
    assert rate > 1_000
    # No figure, a promise: none of them waits for the end of the flood.
    assert sorted(waits)[len(waits) // 2] < 2.0, (rate, waits)
    assert await is_reserved(running, "w")
    letters = await read_messages(running, ["admit.deadletter.>"], limit=100_000)
    # A burst, and some a second; not one for each.
    assert len(letters) <= (0 if state == "Ready" else 500 + 20 * (lasted + 20))


async def test_a_controller_that_never_acknowledges_does_not_block_others(running: Bus) -> None:
    await submit(running, [a_manifest(f"v-{n:02}", queue="lq-cq") for n in range(20)])
    await eventually(lambda: is_reserved(running, "v-19"))

    async def asked() -> bool:
        consumer = (await check_durables.existing(running))["ctl"]
        return int(consumer["num_pending"]) == 21

    await eventually(asked)
    subscription = await running.nc.jetstream().pull_subscribe_bind("check-ctl", STREAM)
    received = await subscription.fetch(21, timeout=LIMIT)
    assert len(received) == 21  # and not one of them is acknowledged
    consumer = (await check_durables.existing(running))["ctl"]
    assert (consumer["num_pending"], consumer["num_ack_pending"]) == (0, 21)
    await submit(running, [a_manifest("free", queue="lq-open")])
    await eventually(lambda: is_admitted(running, "free"))
    # What it was asked counts whenever it answers, acknowledged or not.
    verdict = a_verdict("v-07", cycle=await cycle_of(running, "v-07"))
    await settled(running, await running.publish(outgoing(verdict)))
    await eventually(lambda: is_admitted(running, "v-07"))
