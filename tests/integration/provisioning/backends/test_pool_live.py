"""The pool with all services: bookings, releases, removed machines, and kills of services."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.events.codec import encode
from admittance.events.facts import Finished
from admittance.events.subjects import PROVIDERS, subject_of
from admittance.runtime.bus.bucket import read_all
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.workload.phase import Phase
from support import capacity
from support.builders import a_manifest
from support.capacity import CHECK, a_config, until_phase
from support.cluster import Cluster
from support.requests import apply, becomes, eventually, queues, submit

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

SERVICES = (*capacity.SERVICES, "provider-pool")


def a_pool(count: int, boot: float = 0) -> dict[str, Any]:
    machine = {"name": "m", "count": count, "bootSeconds": boot, "resources": {"cpu": 2}}
    return {
        "apiVersion": "admittance.dev/v1",
        "kind": "MachinePool",
        "metadata": {"name": "rack"},
        "spec": {"provisioningClassName": "class", "machines": [machine]},
    }


async def booked(bus: Bus) -> list[str]:
    bookings = []
    for entry in await read_all(bus, "_pool.>", bucket=PROVIDERS):
        assert entry.value is not None
        bookings.append(str(msgspec.json.decode(entry.value)["id"]))
    return bookings


async def finish(bus: Bus, name: str) -> None:
    fact = Finished(namespace="ns", name=name)
    await bus.publish(Outgoing(subject_of(fact), encode(fact)))


async def test_machines_are_booked_for_a_job_and_freed_afterwards(
    cluster: Cluster, bus: Bus
) -> None:
    await apply(bus, a_pool(1), CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    await until_phase(bus, Phase.ADMITTED)
    assert len(await booked(bus)) == 1

    await finish(bus, "w")

    await becomes(lambda: booked(bus), [])


async def test_a_job_stops_when_its_machines_are_removed(cluster: Cluster, bus: Bus) -> None:
    await apply(bus, a_pool(1), CHECK, a_config(), *queues("cq", admissionChecks=["capacity"]))
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    await until_phase(bus, Phase.ADMITTED)

    await apply(bus, a_pool(0))

    await until_phase(bus, Phase.REJECTED)


async def test_kills_of_all_services_leak_no_booking(cluster: Cluster, bus: Bus) -> None:
    await apply(
        bus, a_pool(3, boot=1), CHECK, a_config(9), *queues("cq", admissionChecks=["capacity"])
    )
    names = [f"w{i}" for i in range(4)]
    await submit(bus, [a_manifest(name, queue="lq-cq") for name in names])

    async def some() -> bool:
        return len(await booked(bus)) >= 2

    await eventually(some)
    for process in cluster.processes:
        await process.kill()
    for name in names[:2]:
        await finish(bus, name)
    for service in SERVICES:
        await cluster.start(service)

    for name in names[2:]:
        await until_phase(bus, Phase.ADMITTED, name)

    async def two() -> bool:
        return len(await booked(bus)) == 2

    await eventually(two)
