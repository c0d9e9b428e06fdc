"""The log is kept below its bound, and nothing that is still needed goes with what is removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
import pytest

from admittance.api.meta import ObjectMeta
from admittance.control.controller import Controller
from admittance.control.workloads import VersionedWorkload
from admittance.events.codec import encode
from admittance.events.facts import Admitted
from admittance.events.requests.history import Events, EventsReply
from admittance.events.subjects import STREAM, subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.durables import Consumers
from admittance.runtime.bus.history import StoredMessage, read_messages
from admittance.runtime.tasks import cancel_and_wait
from admittance.runtime.telemetry.object_faults import faults
from admittance.usage import fold
from admittance.workload.change import with_status
from admittance.workload.conditions import Type, put
from admittance.workload.stored import StoredWorkload
from admittance.workload_controller.endpoints.reading_endpoints import reading_endpoints
from admittance.workload_controller.usage import log_retention
from admittance.workload_controller.usage.log_retention import LogRetention
from admittance.workload_controller.usage.summarizer import UsageSummarizer
from integration.services.test_usage_summaries import held_seconds, released, total
from support.builders import NOON
from support.nats.ending_bus import EndingBus, ProcessEnded
from support.requests import eventually

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
MANY = 400


@pytest.fixture(autouse=True)
def _a_short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "WINDOW", 20)


async def fill(bus: Bus, begin: int = 0) -> None:
    await bus.publish_all([released(number) for number in range(begin, begin + MANY)])


async def size(bus: Bus) -> int:
    return int((await bus.api(f"STREAM.INFO.{STREAM}"))["state"]["bytes"])


def retention(
    bus: Bus, bound: int, controller: Controller | None = None, floor: int = 10_000
) -> tuple[LogRetention, UsageSummarizer]:
    usage = UsageSummarizer(bus)
    controller = controller or Controller(b"secret")
    return LogRetention(bus, bound, usage, lambda: floor, controller), usage


async def test_a_log_above_its_bound_is_cut_and_its_sums_stay(bus: Bus) -> None:
    await fill(bus)
    seconds = await held_seconds(bus)
    bound = await size(bus) // 2
    keeper, usage = retention(bus, bound)
    await keeper.check()
    assert await size(bus) <= bound
    assert await total(bus, usage) == (MANY, str(seconds))
    await fill(bus, MANY)
    await retention(bus, bound)[0].check()
    assert await size(bus) <= bound
    assert await total(bus, UsageSummarizer(bus)) == (2 * MANY, str(2 * seconds))
    [finding] = keeper.findings()
    assert (finding.state, "are removed" in finding.found) == ("ok", True)


async def test_a_log_below_its_bound_is_left_alone(bus: Bus) -> None:
    await fill(bus)
    keeper, _ = retention(bus, await size(bus))
    await keeper.check()
    assert len(await read_messages(bus, ["admit.>"], limit=1000)) == MANY


async def test_facts_that_are_not_applied_are_kept(bus: Bus) -> None:
    await fill(bus)
    keeper, _ = retention(bus, await size(bus) // 4, floor=100)
    await keeper.check()
    assert (await read_messages(bus, ["admit.>"], limit=1))[0].sequence == 101


async def test_a_reader_that_is_away_is_waited_for_up_to_twice_the_bound(bus: Bus) -> None:
    reader = Consumers(bus, STREAM, "check-budget", ["admit.check.requested.budget.>"], ack_wait=30)
    await reader.ensure_durable()
    asked = [Outgoing(f"admit.check.requested.budget.ns.w{n}", b"{}") for n in range(2)]
    await bus.publish_all(asked)
    await fill(bus)
    bound = await size(bus) * 2 // 3
    keeper, _ = retention(bus, bound)
    await keeper.check()
    [finding] = keeper.findings()
    assert finding.state == "note"
    assert "consumer check-budget has not read" in finding.found
    assert len(await read_messages(bus, ["admit.>"], limit=1000)) == MANY + 2
    await fill(bus, MANY)
    await keeper.check()
    assert await size(bus) <= bound
    assert keeper.findings()[0].state == "ok"


async def test_a_leader_that_ends_before_it_removes_leaves_the_rest_to_the_next(bus: Bus) -> None:
    await fill(bus)
    seconds = await held_seconds(bus)
    bound = await size(bus) // 2
    ending: Any = EndingBus(bus, lambda what: what.startswith("STREAM.PURGE"))
    with pytest.raises(ProcessEnded):
        await retention(ending, bound)[0].check()
    assert len(await read_messages(bus, ["admit.>"], limit=1000)) == MANY
    keeper, usage = retention(bus, bound)
    await keeper.check()
    assert await size(bus) <= bound
    assert await total(bus, usage) == (MANY, str(seconds))


def admitted(name: str, revision: int) -> Outgoing:
    fact = Admitted(namespace="ns", name=name, uid="u", revision=revision, cluster_queue="cq")
    return Outgoing(subject_of(fact), encode(fact), {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})


def workload(name: str, revision: int, *also: str) -> StoredWorkload:
    conditions = put((), Type.ADMITTED, True, "Admitted", now=NOON)
    for kind in also:
        conditions = put(conditions, kind, True, kind, now=NOON)
    meta = ObjectMeta(name=name, namespace="ns")
    stored = StoredWorkload(api_version="v", kind="Workload", metadata=meta)
    return with_status(stored, conditions=conditions, admitted_revision=revision)


async def of_lagging_replica(bus: Bus, names: Sequence[str]) -> AsyncIterator[list[StoredMessage]]:
    """An answer that lacks one subject and has an old message of the other."""
    if "admit.workload.admitted.ns.again" in names:
        yield await read_messages(bus, ["admit.workload.admitted.ns.again"], limit=1)


@pytest.mark.parametrize("is_lagging", [False, True])
async def test_the_admission_of_a_running_workload_stays_on_the_log(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, is_lagging: bool
) -> None:
    if is_lagging:
        monkeypatch.setattr(log_retention, "pages_of_last", of_lagging_replica)
    controller = Controller(b"secret")
    for name, revision, also in (
        ("runs", 7, ()),
        ("ended", 8, (Type.FINISHED,)),
        ("again", 12, ()),
    ):
        known = VersionedWorkload(workload(name, revision, *also), revision, 1)
        controller.workloads.keep(f"workload.ns.{name}", known)
    await bus.publish_all([admitted("runs", 7), admitted("ended", 8), admitted("again", 9)])
    await fill(bus)
    await bus.publish_all([admitted("again", 12)])
    keeper, _ = retention(bus, await size(bus) // 2, controller)
    await keeper.check()
    left = await read_messages(bus, ["admit.workload.admitted.>"], limit=1000)
    assert {message.subject.split(".")[-1] for message in left} == {"runs", "again"}
    [again] = [message for message in left if message.subject.endswith(".runs")]
    assert again.data == admitted("runs", 7).data
    assert again.headers["traceparent"].startswith("00-a")


async def test_a_sum_that_raises_ends_no_leader(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_retention, "CHECK_SECONDS", 0.0)
    await fill(bus)
    keeper, usage = retention(bus, await size(bus) // 2)
    counted, raised = usage.counted, asyncio.Event()

    async def raises_first(end: int) -> int:
        if not raised.is_set():
            raised.set()
            raise KeyError("a bug in the sums")
        return await counted(end)

    monkeypatch.setattr(usage, "counted", raises_first)
    running = asyncio.create_task(keeper.run())
    await eventually(lambda: _is_cut(bus, keeper.bound))
    await cancel_and_wait(running)
    [fault] = faults.take()
    assert fault.step == "bound the log"


async def _is_cut(bus: Bus, bound: int) -> bool:
    return await size(bus) <= bound


async def test_events_say_that_earlier_ones_were_removed(bus: Bus) -> None:
    await fill(bus)
    keeper, usage = retention(bus, await size(bus) // 2)

    async def until(compacted: Callable[[], datetime | None]) -> datetime | None:
        events = reading_endpoints(bus, compacted_until=compacted)["admit.api.events.*"]
        asked = msgspec.json.encode(Events(workload="w1"))
        reply = await events(asked, "admit.api.events.ns")
        assert isinstance(reply, EventsReply)
        return reply.compacted_until

    def compacted() -> datetime | None:
        return usage.store.position.compacted_until

    assert await until(compacted) is None
    await keeper.check()
    [oldest] = await read_messages(bus, ["admit.>"], limit=1)
    assert await until(compacted) == oldest.time
