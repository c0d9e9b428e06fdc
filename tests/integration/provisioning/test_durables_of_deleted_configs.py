"""A provider gets its messages, also when no manifest names its class any more."""

from __future__ import annotations

import pytest

from admittance.events.requests.manifests import Delete, DeleteReply
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import provider_durables
from admittance.workload.phase import Phase
from integration.provisioning.backends.test_pool_live import a_pool, booked, finish
from support import capacity
from support.builders import a_manifest
from support.capacity import CHECK, a_config, records, until_phase
from support.cluster import Cluster
from support.requests import apply, ask, eventually, queues, submit

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
SERVICES = (*capacity.SERVICES, "provider-pool")


async def delete_config(bus: Bus, name: str) -> None:
    gone = Delete(kind="ProvisioningRequestConfig", name=name)
    reply: DeleteReply = await ask(bus, "admit.api.delete", gone, DeleteReply)
    assert reply.outcome == "deleted"


async def test_a_booking_is_freed_after_its_configuration_was_deleted(
    cluster: Cluster, bus: Bus
) -> None:
    other = {**a_config(provisioningClassName="other"), "metadata": {"name": "other"}}
    await apply(
        bus, a_pool(1), CHECK, a_config(), other, *queues("cq", admissionChecks=["capacity"])
    )
    await submit(bus, [a_manifest("w", queue="lq-cq")])
    await until_phase(bus, Phase.ADMITTED)
    assert len(await booked(bus)) == 1

    await delete_config(bus, "config")
    await cluster.processes[-1].kill()
    await finish(bus, "w")

    async def taken_back() -> bool:
        return not await records(bus)

    await eventually(taken_back)
    # Neither a new leader nor the next deleted manifest removes it before the message is read.
    await cluster.processes[0].kill()
    await cluster.start("workload-controller")
    await delete_config(bus, "other")
    await cluster.start("provider-pool")

    async def nothing() -> bool:
        return not await booked(bus)

    await eventually(nothing)

    async def gone() -> bool:
        await apply(bus, other)
        await delete_config(bus, "other")
        return await provider_durables.existing(bus) == {}

    await eventually(gone)
