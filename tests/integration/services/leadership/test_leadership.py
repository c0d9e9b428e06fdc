"""Several instances, one of which decides: standby, takeover, fences, barriers."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bucket import get, read_all
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from admittance.scheduling.scheduler import Scheduler
from admittance.workload.conditions import Type, is_true
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, eventually, health, queues, submit, workloads

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]

CPU = 4


async def play_runner(bus: Bus) -> tuple[Counter[str], asyncio.Task[None]]:
    """Finishes whatever is admitted, a little later; counts admissions by name."""
    admitted: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    subscription = await bus.nc.subscribe("admit.workload.admitted.>")

    async def run() -> None:
        async for message in subscription.messages:
            fact = msgspec.json.decode(message.data, type=facts.Admitted)
            if (fact.uid, fact.revision) in seen:
                continue
            seen.add((fact.uid, fact.revision))
            admitted[fact.name] += 1
            done = facts.Finished(
                namespace=fact.namespace, name=fact.name, uid=fact.uid, revision=fact.revision
            )
            await asyncio.sleep(0.01)
            await bus.publish(Outgoing(subject_of(done), encode(done)))

    return admitted, asyncio.create_task(run())


async def most_ever_reserved(bus: Bus) -> int:
    """Replays the log: the largest number of workloads that held quota at one time. A fact about a
    workload that has ended already is late: its end was read from the bucket."""
    holding: set[str] = set()
    ended: set[str] = set()
    most = after = 0
    while True:
        page = await read_messages(bus, ["admit.workload.*.ns.*"], after=after)
        if not page:
            return most
        for entry in page:
            what, name = entry.subject.split(".")[2], entry.subject.split(".")[4]
            if what == "quota_reserved" and name not in ended:
                holding.add(name)
            elif what == "finished":
                holding.discard(name)
                ended.add(name)
            most = max(most, len(holding))
        after = page[-1].sequence


async def all_finished(bus: Bus, count: int) -> bool:
    stored = await workloads(bus)
    return len(stored) == count and all(
        is_true(stored_workload, Type.FINISHED) for stored_workload in stored
    )


async def test_two_schedulers_that_both_believe_they_lead_never_exceed_a_quota(
    cluster: Cluster, bus: Bus
) -> None:
    """One scheduler is paused for longer than its lease while it decides, the other takes over, and
    the first continues to decide: every workload is admitted exactly once in the end."""
    await cluster.start("workload-controller")
    first = await cluster.start("scheduler", "first")
    await apply(bus, *queues("cq", cpu=CPU))
    await eventually(lambda: leads(bus, "first"))
    second = await cluster.start("scheduler", "second")
    admitted, runner = await play_runner(bus)
    names = [f"w{n}" for n in range(120)]
    for start in range(0, 120, 40):
        part = names[start : start + 40]
        await submit(bus, [a_manifest(name, queue="lq-cq") for name in part])
        first.pause()
        await eventually(lambda: leads(bus, "second"))
        first.resume()
        second.pause()
        await eventually(lambda: leads(bus, "first"))
        second.resume()
    await eventually(lambda: all_finished(bus, 120))
    runner.cancel()
    assert admitted == Counter(names)
    assert await most_ever_reserved(bus) <= CPU


async def leads(bus: Bus, instance: str, domain: str = "queue-cq") -> bool:
    return any(reply.instance == instance and domain in reply.leads for reply in await health(bus))


async def test_domains_are_shared_out_among_the_schedulers_that_live(
    cluster: Cluster, bus: Bus
) -> None:
    await cluster.start("workload-controller")
    await cluster.start("scheduler", "one")
    two = await cluster.start("scheduler", "two")
    await eventually(lambda: _both_serve(bus))
    names = [f"cq{n}" for n in range(12)]
    await apply(bus, *queues(*names))
    await eventually(lambda: _led(bus, {"one", "two"}, len(names)))
    await two.kill()
    await eventually(lambda: _led(bus, {"one"}, len(names)))


async def _both_serve(bus: Bus) -> bool:
    return sum(reply.service == "scheduler" for reply in await health(bus)) == 2


async def _led(bus: Bus, by: set[str], count: int) -> bool:
    replies = [reply for reply in await health(bus) if reply.service == "scheduler"]
    led = [domain for reply in replies for domain in reply.leads]
    return {reply.instance for reply in replies if reply.leads} == by and len(led) == count


async def test_manifests_are_written_after_the_predecessor_s_open_work(
    cluster: Cluster, bus: Bus
) -> None:
    """A leader that pauses after it checked a decision by the old manifest writes it too late."""
    first = await cluster.start("workload-controller", "first")
    await apply(bus, *queues("cq", cpu=CPU))
    await first.stop()
    await submit(bus, [a_manifest(f"w{n}", queue="lq-cq") for n in range(4000)])
    await cluster.start("workload-controller", "second")
    (flavor,) = queues()
    flavor["metadata"]["name"] = "late"
    await apply(bus, flavor)
    written = await get(bus, "flavor.late")
    assert written is not None
    entries = await read_all(bus, "workload.>")
    assert len(entries) == 4000
    assert max(entry.revision for entry in entries) < written.revision


async def test_a_change_costs_the_scheduler_no_look_at_each_domain_that_it_leads(
    cluster: Cluster, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for service in ("scheduler", "workload-controller"):
        await cluster.start(service)
    await apply(bus, *queues(*(f"cq-{number}" for number in range(40)), cpu=CPU))
    calls: list[None] = []
    owned = Scheduler.owned

    def counted(core: Scheduler) -> frozenset[str]:
        calls.append(None)
        return owned(core)

    monkeypatch.setattr(Scheduler, "owned", counted)

    async def leads_all() -> bool:
        return any(len(reply.leads) >= 41 for reply in await health(bus))

    await apply(bus, *queues("cq-new", cpu=CPU))
    await eventually(leads_all)
    # Two for each of the hundred changes that it reads.
    assert 0 < len(calls) < 400
