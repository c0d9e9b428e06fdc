"""The gate ConcurrentAdmission is turned off, and on again, by a restart while families exist."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from test_families_live import Place, objects, role, sleeping

from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import read_messages
from support.cluster import Cluster
from support.requests import apply, eventually, submit, workload, workloads

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

SERVICES: Final = ("workload-controller", "scheduler", "retry-timer", "variant-controller")


async def restart(place: Place, **env: str) -> None:
    """All services except the runner; its jobs continue."""
    for one in place.cluster.processes:
        if one.service in SERVICES:
            await one.stop()
    await place.start(*SERVICES, **env)


async def is_regular(place: Place, name: str) -> bool:
    one = await workload(place.bus, name)
    return one is not None and role(one) == "regular"


async def test_running_workloads_continue_and_waiting_ones_become_regular(
    bus: Bus, cluster: Cluster, tmp_path: Path
) -> None:
    place = Place(bus, cluster)
    await place.start(*SERVICES, "runner")
    await apply(bus, *objects("reservation", "spot"))
    for name in ("first", "second", "third"):
        await submit(bus, [sleeping(name, None)])
        if name != "third":
            await place.runs(name)

    # `third` may have no variants yet when the gate is turned off.
    off = tmp_path / "configuration.yaml"
    off.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "featureGates: {ConcurrentAdmission: false}\n"
    )
    await restart(place, ADMIT_CONFIG=str(off))
    await eventually(lambda: is_regular(place, "third"))

    async def only_those_that_run() -> bool:
        names = {one.metadata.name for one in await workloads(bus)}
        return names == {
            "first",
            "second",
            "third",
            "first-variant-reservation",
            "second-variant-spot",
        }

    await eventually(only_those_that_run)
    await place.rest()
    assert await place.is_on("first", "first-variant-reservation")
    assert await place.is_on("second", "second-variant-spot")
    assert not await read_messages(bus, ["admit.workload.evicted.>"])
    # Running jobs keep their quota: waiting workloads get it when these jobs end.
    assert not await place.is_on("third")
    await place.finish("first")
    await eventually(lambda: place.is_on("third"))
    assert await place.is_on("second", "second-variant-spot"), "no variant migrates any more"
    await place.finish("second")
    await place.finish("third")
    await place.rest()
    # On again: what comes now has variants.
    await restart(place)
    await submit(bus, [sleeping("fourth", None)])
    assert await place.runs("fourth") == "fourth-variant-reservation"
