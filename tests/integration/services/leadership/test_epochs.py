"""Epochs that an instance finds on the log, or does not find there any more."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from admittance.events.requests.manifests import Delete, DeleteReply
from admittance.events.system import Epoch
from admittance.lease import service_domain
from admittance.retry_timer.service import run as run_timer
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.leader import lease_store
from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.runtime.leader.lease_store import epoch_subject, read_epoch
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait
from admittance.workload_controller.service import run as run_controller
from simulation.nats.network import SimulatedConnection
from support.builders import a_manifest
from support.cluster import Cluster
from support.nats.leases import take_epoch
from support.requests import apply, ask, becomes, eventually, health, is_reserved, queues, submit
from support.servers import TestServer, until, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


async def _forget(bus: Bus, domain: str) -> None:
    """Removes messages as the log does above its age limit."""
    await bus.api("STREAM.PURGE.ADMITTANCE", {"filter": epoch_subject(domain)})


async def _leads(bus: Bus, instance: str, domain: str) -> bool:
    return any(reply.instance == instance and domain in reply.leads for reply in await health(bus))


async def test_a_scheduler_takes_a_new_epoch_when_its_own_left_the_log(
    cluster: Cluster, bus: Bus
) -> None:
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, *queues("cq", cpu=4))
    await submit(bus, [a_manifest("before", queue="lq-cq")])
    await eventually(lambda: is_reserved(bus, "before"))
    await _forget(bus, "queue-cq")
    await submit(bus, [a_manifest("after", queue="lq-cq")])
    await eventually(lambda: is_reserved(bus, "after"))


async def test_a_standby_takes_over_when_the_leader_s_epoch_left_the_log(
    cluster: Cluster, bus: Bus
) -> None:
    active = await cluster.start("workload-controller", "a")
    await eventually(lambda: _leads(bus, "a", service_domain("workload-controller")))
    await cluster.start("workload-controller", "b")
    await eventually(lambda: _serves(bus, "b"))
    await _forget(bus, service_domain("workload-controller"))
    await active.kill()
    await eventually(lambda: _leads(bus, "b", service_domain("workload-controller")))


async def _serves(bus: Bus, instance: str) -> bool:
    return any(reply.instance == instance for reply in await health(bus))


async def test_a_recreated_domain_may_have_an_earlier_leader(cluster: Cluster, bus: Bus) -> None:
    """A queue that this instance led before it was restarted, and that was gone since."""
    epoch = await take_epoch(bus, "queue-old", "me", expected=0)
    await cluster.start("workload-controller")
    await cluster.start("scheduler", "me")
    await apply(bus, *queues("cq", cpu=4))
    await eventually(lambda: _leads(bus, "me", "queue-cq"))
    await apply(bus, *queues("old", cpu=4))
    await eventually(lambda: _leads(bus, "me", "queue-old"))
    assert (await read_epoch(bus, "queue-old"))[0] > epoch
    assert "another process" not in cluster.processes[1].log


async def _deleted(bus: Bus, request: Delete) -> bool:
    subject = f"admit.api.delete{'.ns' if request.namespace else ''}"
    reply: DeleteReply = await ask(bus, subject, request, DeleteReply)
    return not reply.error


async def test_a_scheduler_gives_up_the_domain_of_a_deleted_queue(
    cluster: Cluster, bus: Bus
) -> None:
    await cluster.start("workload-controller")
    for instance in ("me", "you"):
        await cluster.start("scheduler", instance)
    await apply(bus, *queues("cq", cpu=4))

    async def led() -> list[str]:
        answers = [reply for reply in await health(bus) if reply.service == "scheduler"]
        return sorted(domain for reply in answers for domain in reply.leads)

    async def leads(*domains: str) -> None:
        await becomes(led, sorted(domains))

    await leads("queue-cq")
    for name in ("first", "second"):
        await apply(bus, *queues("old", cpu=4))
        await leads("queue-cq", "queue-old")
        await submit(bus, [a_manifest(name, queue="lq-old")])
        await eventually(lambda name=name: is_reserved(bus, name))
        said = {"namespace": "ns", "name": name, "revision": 0, "succeeded": True}
        data = json.dumps(said).encode()
        await bus.publish(Outgoing(f"admit.workload.finished.ns.{name}", data))
        for request in (
            Delete(kind="LocalQueue", namespace="ns", name="lq-old"),
            Delete(kind="ClusterQueue", name="old"),
        ):
            await eventually(lambda request=request: _deleted(bus, request))
        await leads("queue-cq")
    await submit(bus, [a_manifest("after", queue="lq-cq")])
    await eventually(lambda: is_reserved(bus, "after"))


async def test_a_foreign_epoch_does_not_end_the_instance_it_names(
    cluster: Cluster, bus: Bus
) -> None:
    await cluster.start("workload-controller", "writer")
    deciding = await cluster.start("scheduler", "me")
    await apply(bus, *queues("cq", cpu=4))
    for domain, owner in (
        ("queue-cq", "me"),
        ("queue-cq", "me"),
        (service_domain("workload-controller"), "writer"),
    ):
        await eventually(lambda owner=owner, domain=domain: _leads(bus, owner, domain))
        epoch, _ = await read_epoch(bus, domain)
        foreign = await take_epoch(bus, domain, owner, expected=epoch)
        await eventually(
            lambda owner=owner, domain=domain, foreign=foreign: _leads_since(
                bus, owner, domain, foreign
            )
        )
    await submit(bus, [a_manifest("after", queue="lq-cq")])
    await eventually(lambda: is_reserved(bus, "after"))
    assert all(process.status is None for process in cluster.processes)
    assert "another process" not in deciding.log


async def _leads_since(bus: Bus, instance: str, domain: str, epoch: int) -> bool:
    newest, said = await read_epoch(bus, domain)
    ours = newest > epoch and said is not None and bool(said.process)
    return ours and await _leads(bus, instance, domain)


async def test_a_second_live_process_under_one_instance_is_refused(
    cluster: Cluster, bus: Bus
) -> None:
    first = await cluster.start("workload-controller", "me")
    await eventually(lambda: _leads(bus, "me", service_domain("workload-controller")))
    second = await cluster.start("workload-controller", "me")

    async def ended() -> bool:
        return second.status is not None

    await eventually(ended)
    assert second.status == 1
    reason = (
        "another process runs as workload-controller instance me: give each its own ADMIT_INSTA"
    )
    assert reason in second.log
    assert "Traceback" not in second.log
    assert first.status is None
    assert await _leads(bus, "me", service_domain("workload-controller"))


async def test_an_instance_is_restarted_after_a_kill_within_its_ttl(
    cluster: Cluster, bus: Bus
) -> None:
    killed = await cluster.start("workload-controller", "me", ADMIT_LEASE_SECONDS="600")
    await eventually(lambda: _leads(bus, "me", service_domain("workload-controller")))
    epoch, _ = await read_epoch(bus, service_domain("workload-controller"))
    await killed.kill()
    again = await cluster.start("workload-controller", "me", ADMIT_LEASE_SECONDS="600")
    await eventually(lambda: _leads_since(bus, "me", service_domain("workload-controller"), epoch))
    assert again.status is None


async def test_a_domain_that_is_lost_again_and_again_is_taken_after_a_pause(bus: Bus) -> None:
    leading = LeaderElector(bus, "scheduler", "me", ttl_seconds=600)
    beating = asyncio.create_task(leading.run())
    await within(leading.watching.wait())
    assert await leading.take(["queue-a"], barrier=False) == ["queue-a"]
    for _ in range(8):
        leading.lease.lost("queue-a")
        leading.changed.clear()
        if not await leading.take(["queue-a"], barrier=False):
            break
    else:
        pytest.fail("it was taken eight times without a pause")
    while leading.lease.held("queue-a") is None:
        await within(leading.changed.wait())
        leading.changed.clear()
        await leading.take(["queue-a"], barrier=False)
    beating.cancel()


class LosesHeartbeats(Bus):
    """A bus on which heartbeats get lost."""

    loses = False

    async def publish(self, message: Outgoing, *, timeout: float = 10.0) -> int:
        if self.loses and "._alive." in message.subject:
            raise BusUnavailable("no answer")
        return await super().publish(message, timeout=timeout)


async def test_an_instance_without_heartbeats_takes_no_domain(
    bus: Bus, nats_server: TestServer
) -> None:
    """After a pause of the server every heartbeat key has expired, so each instance would take the
    other instances for dead."""
    lossy = await LosesHeartbeats.connect(nats_server.url, name="lossy")
    assert isinstance(lossy, LosesHeartbeats)
    leader = LeaderElector(lossy, "scheduler", "leader", ttl_seconds=1)
    standby = LeaderElector(lossy, "scheduler", "standby", ttl_seconds=1)
    beating = [asyncio.create_task(leader.run())]
    try:
        await within(leader.watching.wait())
        assert await leader.take(["queue-a"], barrier=False)
        beating.append(asyncio.create_task(standby.run()))
        await within(standby.watching.wait())
        assert await standby.take(["queue-a"], barrier=False) == []
        assert standby.lease.led("queue-a")
        lossy.loses = True
        await until(lambda: not standby.lease.led("queue-a"))
        assert await standby.take(["queue-a"], barrier=False) == []
        lossy.loses = False
        while not standby.lease.led("queue-a"):
            await within(standby.changed.wait())
            standby.changed.clear()
            assert await standby.take(["queue-a"], barrier=False) == []
        assert leader.lease.leads() == ["queue-a"]
        # A leader that stays away is taken over from.
        beating[0].cancel()
        while not await standby.take(["queue-a"], barrier=False):
            await within(standby.changed.wait())
            standby.changed.clear()
    finally:
        for task in beating:
            await cancel_and_wait(task)
        await lossy.close()


class Unread(Bus):
    """A bus on which the server does not let the liveness keys be read."""

    async def api(self, what: str, *args: Any, **more: Any) -> dict[str, Any]:
        if what == "CONSUMER.CREATE.KV_admittance_claims":
            raise BusUnavailable("no answer")
        return await super().api(what, *args, **more)


async def test_a_standby_without_news_of_leaders_waits_a_bounded_time(
    bus: Bus, nats_server: TestServer
) -> None:
    unread = await Unread.connect(nats_server.url, name="unread")
    settings = Settings(service="workload-controller", instance="me")
    with pytest.raises(BusUnavailable):
        await within(run_controller(unread, settings, stop=asyncio.Event()))
    with pytest.raises(BusUnavailable):
        await within(run_timer(unread, settings, stop=asyncio.Event()))
    await unread.close()


class Unanswered(Bus):
    """A bus on which no request is answered while ``is_silent``."""

    is_silent = False
    unanswered = 0

    async def api(self, what: str, *args: Any, **more: Any) -> dict[str, Any]:
        if self.is_silent:
            self.unanswered += 1
            raise BusUnavailable("no answer")
        return await super().api(what, *args, **more)


async def test_a_taken_domain_gets_its_barrier_although_another_was_faster(
    bus: Bus, nats_server: TestServer
) -> None:
    mine = await Unanswered.connect(nats_server.url, name="mine")
    assert isinstance(mine, Unanswered)
    leading = LeaderElector(mine, "scheduler", "me", ttl_seconds=5)
    beating = asyncio.create_task(leading.run())
    await within(leading.watching.wait())
    await leading.take(["queue-c"], barrier=True)
    leading.lease.lost("queue-c")
    await take_epoch(bus, "queue-b", "me-too", expected=0)
    leading._known.add("queue-b")  # as read before: without a leader
    mine.is_silent = True
    with suppress(BusUnavailable):
        await leading.take(["queue-b", "queue-c"], barrier=True)
    assert len(await read_messages(bus, ["admit.lease.barrier.queue-c"])) == 2
    beating.cancel()
    await mine.close()


async def test_an_epoch_that_could_not_be_read_is_read_again(
    bus: Bus, nats_server: TestServer
) -> None:
    """For example its own epoch after a lost acknowledgement: no instance would lead the domain."""
    mine = await Unanswered.connect(nats_server.url, name="mine")
    assert isinstance(mine, Unanswered)
    leading = LeaderElector(mine, "scheduler", "me", ttl_seconds=5)
    following = asyncio.create_task(leading.run())
    await within(leading.watching.wait())
    await take_epoch(bus, "queue-a", "me-too", expected=0)
    leading.lease.alive("me-too")
    assert await leading.take(["queue-a"], barrier=False) == []
    mine.is_silent = True
    epoch = await take_epoch(bus, "queue-a", "me", expected=leading.lease.known("queue-a"))
    with pytest.raises(BusUnavailable):
        await leading.lost("queue-a")
    await until(lambda: mine.unanswered >= 2)
    mine.is_silent = False
    await until(lambda: leading.lease.known("queue-a") == epoch)
    assert await leading.take(["queue-a"], barrier=False) == ["queue-a"]
    following.cancel()
    await mine.close()


async def test_an_epoch_announced_before_the_log_has_it_is_read_again(
    bus: Bus, nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a cluster, where the log has a message only when a majority of the servers has it."""
    mine = await Bus.connect(nats_server.url, name="mine")
    leading = LeaderElector(mine, "scheduler", "me", ttl_seconds=600)
    following = asyncio.create_task(leading.run())
    await within(leading.watching.wait())
    leading.lease.alive("other")
    for number in range(100):
        domain = f"queue-{number}"
        if not await leading.take([domain], barrier=False):
            break  # the other instance leads this domain next
    reads = 0

    async def read(asked: Bus, name: str) -> tuple[int, Epoch | None]:
        nonlocal reads
        reads += 1
        return (0, None) if reads == 1 else await read_epoch(asked, name)

    monkeypatch.setattr(lease_store, "read_epoch", read)
    epoch = await take_epoch(bus, domain, "other", expected=0)
    await until(lambda: leading.lease.known(domain) == epoch)
    assert reads == 2
    following.cancel()
    await mine.close()


async def test_an_epoch_published_during_a_lost_connection_is_read_afterwards(
    bus: Bus, nats_server: TestServer
) -> None:
    mine = await Bus.connect(nats_server.url, name="mine")
    leading = LeaderElector(mine, "scheduler", "me", ttl_seconds=600)
    following = asyncio.create_task(leading.run())
    await within(leading.watching.wait())
    assert await leading.take(["queue-a"], barrier=False) == ["queue-a"]
    assert isinstance(mine.nc, SimulatedConnection)
    mine.nc._wire.lose()
    epoch = await take_epoch(bus, "queue-a", "other", expected=leading.lease.known("queue-a"))
    await until(lambda: leading.lease.known("queue-a") == epoch)
    assert leading.lease.leads() == []
    following.cancel()
    await mine.close()
