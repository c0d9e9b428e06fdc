"""A new leader waits until its predecessor's last decisions are in the picture."""

from __future__ import annotations

import pytest

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bucket import get, put_message, read_all
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from admittance.runtime.leader.barriers import READS, read_echo, write_echoes
from admittance.runtime.leader.lease_store import fence, read_epoch
from admittance.workload.phase import holds_quota
from support.builders import a_manifest, an_admission
from support.cluster import Cluster
from support.nats.leases import take_epoch
from support.requests import apply, eventually, queues, submit, workload, workloads

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
DOMAIN = "queue-cq"


async def test_a_scheduler_reads_its_predecessor_s_last_decision_first(
    cluster: Cluster, bus: Bus
) -> None:
    """The decision is on the log, and the controller has not applied it yet."""
    controller = await cluster.start("workload-controller")
    await apply(bus, *queues("cq", cpu=1))
    await submit(bus, [a_manifest(name, queue="lq-cq") for name in ("a", "b")])
    await eventually(lambda: _there(bus, "a", "b"))
    epoch = await take_epoch(bus, DOMAIN, "predecessor", expected=0)
    entry = await get(bus, "workload.ns.b")
    assert entry is not None

    controller.pause()
    decided = facts.Assigned(
        namespace="ns",
        name="b",
        revision=entry.revision,
        seen=entry.revision,
        domain=DOMAIN,
        admission=an_admission(),
    )
    await bus.publish(Outgoing(subject_of(decided), encode(decided), fence(DOMAIN, epoch)))
    await cluster.start("scheduler", "successor")
    await eventually(lambda: _barrier_of_the_heir(bus))
    assert len(await read_messages(bus, ["admit.workload.assigned.>"])) == 1

    controller.resume()
    await eventually(lambda: _refused(bus, "a"))
    assert [
        workload.metadata.name for workload in await workloads(bus) if holds_quota(workload)
    ] == ["b"]


async def test_an_echo_never_goes_back_to_an_earlier_epoch(bus: Bus) -> None:
    """A former leader of the workload-controller may write late."""
    earlier = await take_epoch(bus, DOMAIN, "one", expected=0)
    epoch = await take_epoch(bus, DOMAIN, "two", expected=earlier)
    for written in (epoch, earlier):
        await write_echoes(bus, [(DOMAIN, written)])
        assert await _echoed(bus) == epoch


async def test_an_echo_replaces_a_barrier_of_another_log(bus: Bus) -> None:
    epoch = await take_epoch(bus, DOMAIN, "one", expected=0)
    for stale in (b"junk", b'{"domain":"queue-cq","epoch":1000}'):
        await bus.publish(put_message(f"barrier.{DOMAIN}", stale, expected=None))
        await write_echoes(bus, [(DOMAIN, epoch)])
        assert await _echoed(bus) == epoch


async def test_echoes_of_many_domains_are_written(bus: Bus) -> None:
    epoch = await take_epoch(bus, DOMAIN, "one", expected=0)
    await write_echoes(bus, [(f"queue-{number}", epoch) for number in range(2 * READS + 1)])
    entries = await read_all(bus, "barrier.>")
    assert len(entries) == 2 * READS + 1


async def _echoed(bus: Bus) -> int:
    entry = await get(bus, f"barrier.{DOMAIN}")
    assert entry is not None
    return read_echo(entry.key, entry.value or b"").epoch


async def _there(bus: Bus, *names: str) -> bool:
    return all([await workload(bus, name) is not None for name in names])


async def _barrier_of_the_heir(bus: Bus) -> bool:
    _, said = await read_epoch(bus, DOMAIN)
    stated = await read_messages(bus, ["admit.lease.barrier.>"])
    return said is not None and said.owner == "successor" and bool(stated)


async def _refused(bus: Bus, name: str) -> bool:
    stored = await workload(bus, name)
    return stored is not None and any(
        condition.reason == "WaitingForQuota" for condition in stored.status.conditions
    )
