"""A live system predicts the results of a change; they come true, and leave no trace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.requests.base import Reply
from admittance.events.requests.whatif import Simulate, SimulateReply, joined_reply
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bucket import get, read_all
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.process.settings import Settings
from admittance.scheduler.errands import AT_ONCE, NAMESPACE_MAX, SECONDS, WAITING_MAX, Errands
from admittance.scheduler.simulations import PROGRAM, Simulations
from admittance.scheduling.state.config import Config
from admittance.workload.conditions import Type, find, is_true
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import apply, ask, eventually, queues, submit, workload
from support.servers import TestServer, within

pytestmark = pytest.mark.bus

LOWER = {"withinClusterQueue": "LowerPriority"}


def raws(*objects: dict[str, Any]) -> tuple[msgspec.Raw, ...]:
    return tuple(msgspec.Raw(json.dumps(manifest).encode()) for manifest in objects)


async def simulate(bus: Bus, *objects: dict[str, Any], limit: int = 0) -> SimulateReply:
    request = Simulate(objects=raws(*objects), limit=limit)
    reply: SimulateReply = await ask(bus, "admit.api.simulate", request, SimulateReply)
    return reply


async def admitted(bus: Bus, *names: str) -> bool:
    """Only these workloads of a to f are admitted and stay admitted."""
    for name in "abcdef":
        stored = await workload(bus, name)
        runs = stored is not None and is_true(stored, Type.ADMITTED)
        runs = runs and stored is not None and not is_true(stored, Type.EVICTED)
        if runs != (name in names):
            return False
    return True


async def is_evicted(bus: Bus, name: str) -> bool:
    stored = await workload(bus, name)
    return stored is not None and is_true(stored, Type.EVICTED)


async def waits_for(bus: Bus, name: str, reason: str) -> bool:
    stored = await workload(bus, name)
    reserved = None if stored is None else find(stored, Type.QUOTA_RESERVED)
    return reserved is not None and reserved.reason == reason


async def stored(bus: Bus) -> tuple[dict[str, int], dict[str, int]]:
    """All stored data: revisions by key, and the number of messages of each subject."""
    keys = {entry.key: entry.revision for entry in await read_all(bus, ">")}
    info = await bus.api("STREAM.INFO.ADMITTANCE", {"subjects_filter": "admit.>"})
    return keys, info["state"]["subjects"]


@pytest.fixture
async def town(cluster: Cluster, bus: Bus) -> AsyncIterator[Bus]:
    """A queue of two: a and b run, c and d wait and know why."""
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, *queues("cq", cpu=2, preemption=LOWER))
    for name in "abcd":
        await submit(bus, [a_manifest(name, queue="lq-cq", priority=0)])
    await eventually(lambda: admitted(bus, "a", "b"))
    await eventually(lambda: waits_for(bus, "c", "WaitingForQuota"))
    await eventually(lambda: waits_for(bus, "d", "WaitingForQuota"))
    yield bus


async def test_a_simulated_change_has_the_same_result_when_applied(town: Bus) -> None:
    bus = town
    high = a_manifest("e", queue="lq-cq", priority=5)
    reply = await simulate(bus, high)
    assert reply.error == ""
    assert {start.name: start.after for start in reply.starts} == {"e": 1}
    [eviction] = reply.evictions
    victim = eviction.name  # The one that reserved last; if both did in one batch, either.
    [other] = {"a", "b"} - {victim}
    assert (eviction.by, eviction.rule) == ("ns/e", "InClusterQueue")
    assert {wait.name for wait in reply.waits} == {victim}
    assert (reply.counts.run, reply.counts.pending) == (1, 2)

    await submit(bus, [high])
    await eventually(lambda: is_evicted(bus, victim))
    entry = await get(bus, f"workload.ns.{victim}")
    assert entry is not None
    said = facts.Stopped(namespace="ns", name=victim, revision=entry.revision)
    await bus.publish(Outgoing(subject_of(said), encode(said)))
    await eventually(lambda: admitted(bus, other, "e"))


async def test_a_simulation_writes_and_publishes_nothing(town: Bus) -> None:
    before = await stored(town)
    for cpu in (0, 1, 4):
        reply = await simulate(town, *queues("cq", cpu=cpu), a_manifest("x", queue="lq-cq"))
        assert reply.error == ""
    assert (await simulate(town, *queues("cq", cpu=-1))).problems
    assert await stored(town) == before
    assert await admitted(town, "a", "b")


async def test_a_long_reply_comes_in_parts(town: Bus) -> None:
    many = [a_manifest(f"w-{n:04}", queue="lq-cq") for n in range(2_500)]
    inbox = town.nc.new_inbox()
    subscription = await town.nc.subscribe(inbox)
    data = msgspec.json.encode(Simulate(objects=raws(*many), limit=0))
    await town.nc.publish("admit.api.simulate", data, reply=inbox)
    parts: list[SimulateReply] = []
    while not parts or len(parts) < parts[0].parts:
        message = await subscription.next_msg(timeout=30)
        parts.append(msgspec.json.decode(message.data, type=SimulateReply))
    reply = joined_reply(parts)
    assert len(parts) > 1
    assert reply.error == ""
    assert sorted(wait.name for wait in reply.waits) == [f"w-{n:04}" for n in range(2_500)]
    assert reply.counts.waits == 2_500


async def test_a_change_of_one_namespace_can_be_requested_there(town: Bus) -> None:
    request = Simulate(objects=raws(a_manifest("x", queue="lq-cq")))
    reply = await ask(town, "admit.api.simulate.ns", request, SimulateReply)
    assert [wait.name for wait in reply.waits] == ["x"]
    request = Simulate(objects=raws(*queues("cq", cpu=9)))
    reply = await ask(town, "admit.api.simulate.ns", request, SimulateReply)
    assert "is not in the namespace ns" in reply.problems[0]
    refused = await ask(town, "admit.api.simulate", {"objects": 3}, Reply)
    assert "objects" in refused.error


async def test_a_simulation_uses_the_configuration_of_its_scheduler(
    town: Bus, nats_server: TestServer
) -> None:
    request = Simulate(objects=raws(a_manifest("e", queue="lq-cq", priority=5)))
    data = msgspec.json.encode(request)
    evictions = {}
    for preemption in (True, False):
        asked = simulations_of(a_settings(nats_server.url), Config(preemption=preemption))
        [message] = (await within(asked.simulate(data, "admit.api.simulate"))).messages
        assert isinstance(message, msgspec.Raw)
        reply = msgspec.json.decode(message, type=SimulateReply)
        evictions[preemption] = reply.counts.evictions
    assert evictions == {True: 1, False: 0}


# The process. -------------------------------------------------------------------------------

STUCK = ("-c", "import time; time.sleep(600)")


def a_settings(url: str = "nats://127.0.0.1:1") -> Settings:
    return Settings(service="scheduler", instance="one", url=url)


def simulations_of(
    settings: Settings | None = None,
    config: Config | None = None,
    *,
    program: Sequence[str] = PROGRAM,
    seconds: float = SECONDS,
) -> Simulations:
    """Simulations of a server that is not there, unless settings name one."""
    settings = settings or a_settings()
    errands = Errands(settings, seconds=seconds)
    return Simulations(settings, config or Config(), errands, program=program)


async def test_a_simulation_that_takes_too_long_is_ended() -> None:
    simulations = simulations_of(program=STUCK, seconds=0.2)
    with pytest.raises(BusUnavailable, match=r"not done after 0\.2 s"):
        await within(simulations.simulate(b"{}", "admit.api.simulate"))


async def test_requests_beyond_the_queue_are_refused_at_once() -> None:
    simulations = simulations_of(program=STUCK, seconds=60)
    asked = [
        asyncio.create_task(simulations.simulate(b"{}", "admit.api.simulate"))
        for _ in range(AT_ONCE + WAITING_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(BusUnavailable, match="try again"):
        await within(simulations.simulate(b"{}", "admit.api.simulate"))
    for task in asked:
        task.cancel()
    await within(asyncio.gather(*asked, return_exceptions=True))


async def test_requests_of_one_namespace_leave_places_to_others() -> None:
    simulations = simulations_of(program=STUCK, seconds=60)

    def ask_for(namespace: str) -> asyncio.Task[object]:
        return asyncio.create_task(simulations.simulate(b"{}", f"admit.api.simulate.{namespace}"))

    asked = [ask_for("greedy") for _ in range(NAMESPACE_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(BusUnavailable, match="4 simulations and replays of namespace greedy"):
        await within(simulations.simulate(b"{}", "admit.api.simulate.greedy"))
    asked.append(ask_for("quiet"))
    await asyncio.sleep(0)
    assert not any(task.done() for task in asked)
    for task in asked:
        task.cancel()
    await within(asyncio.gather(*asked, return_exceptions=True))


async def test_an_unreachable_bucket_is_an_error_in_the_reply() -> None:
    simulations = simulations_of()
    [message] = (await within(simulations.simulate(b"{}", "admit.api.simulate"))).messages
    assert isinstance(message, msgspec.Raw)
    assert "cannot read the bucket" in msgspec.json.decode(message, type=SimulateReply).error


async def test_a_failed_process_is_an_error_in_the_reply() -> None:
    simulations = simulations_of(program=("-c", "raise SystemExit(3)"))
    with pytest.raises(RuntimeError, match="status 3"):
        await within(simulations.simulate(b"{}", "admit.api.simulate"))
