"""Placement with all services: workloads on covered flavors are admitted once machines have room
for them, each with its own devices."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.events import facts
from admittance.events.stored.machines import (
    ALIVE_RUNNERS,
    INVENTORIES,
    Device,
    RunnerAlive,
    RunnerInventory,
    key_of_runner,
)
from admittance.events.subjects import CLAIMS, subject_of
from admittance.events.system import RunnerAnnouncement
from admittance.runtime.bus.bucket import get, put_message
from admittance.runtime.bus.bus import Bus, Outgoing
from support.builders import a_manifest, resource_groups
from support.cluster import Cluster
from support.requests import apply, eventually, queues, submit, workload

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
GPU = "nvidia.com/gpu"


async def announce(bus: Bus, name: str, gpus: int) -> None:
    """The announcement of a runner with this machine."""
    said: dict[str, Any] = {
        INVENTORIES: RunnerInventory(
            id=f"id-of-{name}",
            name=name,
            host=name,
            capacity={"cpu": 8000},
            devices=tuple(Device(resource=GPU, index=n, id=f"{name}-{n}") for n in range(gpus)),
        ),
        ALIVE_RUNNERS: RunnerAlive(id=f"id-of-{name}", host=name),
    }
    for first, value in said.items():
        key = key_of_runner(first, name)
        encoded = msgspec.json.encode(value)
        await bus.publish(put_message(key, encoded, expected=None, bucket=CLAIMS))


async def row(bus: Bus, name: str) -> tuple[str, str]:
    known = await workload(bus, name)
    rows = known.status.admission_checks if known is not None else ()
    return (rows[0].state, rows[0].message) if rows else ("", "")


async def devices(bus: Bus, name: str) -> list[str]:
    known = await workload(bus, name)
    parts = known.status.placement if known is not None else ()
    return [f"{part.runner}:{unit}" for part in parts for unit in part.devices.get(GPU, ())]


async def finish(bus: Bus, name: str) -> None:
    fact = facts.Finished(namespace="ns", name=name)
    await bus.publish(Outgoing(subject_of(fact), msgspec.json.encode(fact)))


async def test_workloads_get_devices_of_machines_with_room_and_wait_for_others(
    cluster: Cluster, bus: Bus
) -> None:
    for service in ("workload-controller", "scheduler", "placement"):
        await cluster.start(service)
    await apply(bus, *queues("cq"))
    await apply(
        bus,
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "cq"},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": resource_groups({"default": 9}, GPU),
            },
        },
    )
    await announce(bus, "gpu-1", 2)

    async def is_covered() -> bool:
        entry = await get(bus, "admissioncheck.machines")
        return entry is not None and b'"onFlavors":["default"]' in (entry.value or b"")

    # The first machine with devices of the flavor covers it.
    await eventually(is_covered)
    manifests = [
        a_manifest(name, requests={GPU: gpus}, queue="lq-cq")
        for name, gpus in (("pair", "2"), ("one", "1"))
    ]
    await submit(bus, manifests)

    async def one_waits() -> bool:
        placed = [await devices(bus, name) for name in ("pair", "one")]
        return sorted(map(len, placed)) in ([0, 1], [0, 2]) and "GPU" in (
            (await row(bus, "one"))[1] + (await row(bus, "pair"))[1]
        )

    await eventually(one_waits)
    await announce(bus, "gpu-2", 2)

    async def both_run() -> bool:
        every = [unit for name in ("pair", "one") for unit in await devices(bus, name)]
        return len(every) == len(set(every)) == 3

    await eventually(both_run)
    # A new leader reads what is booked from the workloads.
    await cluster.processes[-1].stop()
    await cluster.start("placement")
    await submit(bus, [a_manifest("next", requests={GPU: "2"}, queue="lq-cq")])

    async def next_waits() -> bool:
        state, message = await row(bus, "next")
        return state == "Pending" and "2 GPUs on one machine" in message

    await eventually(next_waits)
    await finish(bus, "pair")

    async def next_runs() -> bool:
        return len(await devices(bus, "next")) == 2

    await eventually(next_runs)
    # A runner of an earlier version would start what is placed on others.
    old = msgspec.json.encode(RunnerAnnouncement(root="/srv/old"))
    await bus.publish(put_message("_runner.abc", old, expected=None, bucket=CLAIMS))

    async def is_inactive() -> bool:
        entry = await get(bus, "admissioncheck.machines")
        return entry is not None and b"abc (/srv/old)" in (entry.value or b"")

    await eventually(is_inactive)
