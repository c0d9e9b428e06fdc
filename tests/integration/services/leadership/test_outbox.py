"""A commit cut between any two of its steps: what the next controller makes of it."""

from __future__ import annotations

import asyncio

import pytest

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from admittance.runtime.leader import lease_store
from admittance.runtime.process.settings import Settings
from admittance.workload_controller import service
from support.builders import a_manifest, an_admission
from support.cluster import Cluster
from support.nats import leases
from support.nats.ending_bus import EndingBus
from support.requests import apply, eventually, queues, settled, submit, workload
from support.servers import TestServer, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
DOMAIN = "queue-cq"


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("$KV.admittance.workload.ns.w", id="before the object is written"),
        pytest.param("admit.workload.admitted", id="before what follows is said"),
        pytest.param("$KV.admittance.barrier", id="before the barrier is echoed"),
    ],
)
async def test_a_commit_that_was_cut_is_completed_by_the_next_controller(
    cluster: Cluster, bus: Bus, nats_server: TestServer, before: str
) -> None:
    first = await cluster.start("workload-controller", "first")
    await apply(bus, *queues("cq", cpu=1))
    (sequence,) = await submit(bus, [a_manifest("w", queue="lq-cq")])
    await settled(bus, sequence)
    await first.stop()
    entry = await get(bus, "workload.ns.w")
    assert entry is not None

    other = await Bus.connect(nats_server.url, name="cut")
    cut = EndingBus(other, lambda subject: before in subject)
    settings = Settings.from_env("workload-controller", url=nats_server.url, instance="dying")
    dying = asyncio.create_task(
        service.run(cut, settings, stop=asyncio.Event())  # type: ignore[arg-type]
    )
    epoch = await leases.take_epoch(bus, DOMAIN, "me", expected=0)
    decided = facts.Assigned(
        namespace="ns",
        name="w",
        revision=entry.revision,
        seen=entry.revision,
        domain=DOMAIN,
        admission=an_admission(),
    )
    fence = lease_store.fence(DOMAIN, epoch)
    await bus.publish(Outgoing(subject_of(decided), encode(decided), fence))
    await leases.publish_barrier(bus, DOMAIN, "me", epoch)
    await within(cut.ended.wait())
    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await dying
    await other.close()

    await cluster.start("workload-controller", "successor")
    await eventually(lambda: _echoed(bus))
    assert len(await read_messages(bus, ["admit.workload.quota_reserved.>"])) == 1
    assert len(await read_messages(bus, ["admit.workload.admitted.>"])) == 1
    stored = await workload(bus, "w")
    assert stored is not None
    assert stored.status.admission is not None


async def _echoed(bus: Bus) -> bool:
    return await get(bus, f"barrier.{DOMAIN}") is not None
