"""The list of schedules on the timers stream, and the purge of copied facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from admittance.client.requests.link import Link
from admittance.doctor.finding import ok
from admittance.doctor.schedules import timers_found
from admittance.events import subjects
from admittance.runtime import clock
from admittance.runtime.bus import timers
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from admittance.runtime.errors import BusUnavailable
from support.requests import eventually
from support.servers import TestServer

pytestmark = [pytest.mark.bus, pytest.mark.servers("real", "simulated")]

LATER = datetime(2100, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def at_noon(name: str, uid: str = "u") -> Outgoing:
    return timers.schedule_message("requeue", "a.b", name, LATER, b"{}", uid=uid)


async def test_schedules_are_listed_with_time_and_workload(
    bus: Bus,
) -> None:
    await bus.publish_all([at_noon("x.y"), at_noon("z", "other")])
    listed, strange = await timers.schedules(bus)
    assert listed == [
        timers.Schedule("requeue", "a.b", "x.y", LATER, "u"),
        timers.Schedule("requeue", "a.b", "z", LATER, "other"),
    ]
    assert strange == []


async def test_an_empty_stream_has_no_schedules(bus: Bus) -> None:
    assert await timers.schedules(bus) == ([], [])


@pytest.mark.parametrize("count", [1999, 2000, 2001, 4500])
async def test_more_schedules_than_a_page_are_listed(bus: Bus, count: int) -> None:
    await bus.publish_all([at_noon(f"w{number}") for number in range(count)])
    listed, _ = await timers.schedules(bus)
    assert len({schedule.name for schedule in listed}) == len(listed) == count


async def test_a_schedule_without_a_workload_is_listed_by_its_subject(bus: Bus) -> None:
    for subject in ("odd", "requeue.a.b.c", "requeue.a.=zz"):
        await bus.publish(replace(at_noon("x"), subject=f"{subjects.TIMER_AT}{subject}"))
    listed, strange = await timers.schedules(bus)
    assert listed == []
    assert sorted(strange) == [
        f"{subjects.TIMER_AT}{subject}" for subject in ("odd", "requeue.a.=zz", "requeue.a.b.c")
    ]


async def test_a_schedule_with_a_wrong_target_has_no_time(bus: Bus) -> None:
    message = at_noon("x")
    aims = {**(message.headers or {}), timers.TARGET: timers.due_subject("drain", "a.b", "x")}
    every = {**(message.headers or {}), timers.SCHEDULE: "@every 1h"}
    await bus.publish(replace(message, headers=aims))
    assert (await timers.schedules(bus))[0][0].at is None
    await bus.publish(replace(message, headers=every))
    assert (await timers.schedules(bus))[0][0].at is None


async def test_a_list_that_cannot_be_completed_is_an_error(
    bus: Bus, nats_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer is deleted between two pages."""
    monkeypatch.setattr(timers, "PAGE", 10)
    await bus.publish_all([at_noon(f"w{number}") for number in range(30)])
    reading = timers.headers_of(bus, subjects.TIMERS, f"{subjects.TIMER_AT}>")
    for _ in range(10):
        await anext(reading)
    listed = await bus.api(f"CONSUMER.LIST.{subjects.TIMERS}", {"offset": 0})
    for info in listed["consumers"]:
        await bus.api(f"CONSUMER.DELETE.{subjects.TIMERS}.{info['name']}")
    monkeypatch.setattr(timers, "SILENCE_SECONDS", 1.0)
    with pytest.raises(BusUnavailable):
        async for _ in reading:
            pass


async def test_facts_that_the_log_has_copied_are_purged(bus: Bus) -> None:
    soon = clock.now() + timedelta(milliseconds=50)
    for name in ("x", "y"):
        await bus.publish(timers.schedule_message("requeue", "a", name, soon, b"{}"))
    await bus.publish(at_noon("later"))

    async def on_the_log() -> bool:
        return len(await read_messages(bus, [f"{subjects.TIMER_DUE}>"])) == 2

    assert await timers.purge_copied(bus) == 0
    await eventually(on_the_log)
    assert await timers.purge_copied(bus) == 2
    info = await bus.api(f"STREAM.INFO.{subjects.TIMERS}", {"subjects_filter": ">"})
    assert list(info["state"]["subjects"]) == [timers.timer_subject("requeue", "a.b", "later")]


async def test_purged_facts_are_neither_repeated_nor_lost_after_a_restart(
    bus: Bus, nats_server: TestServer
) -> None:
    async def fired(count: int) -> bool:
        return len(await read_messages(bus, [f"{subjects.TIMER_DUE}>"])) == count

    soon = clock.now() + timedelta(milliseconds=50)
    await bus.publish(timers.schedule_message("requeue", "a", "x", soon, b"{}"))
    await eventually(lambda: fired(1))
    await timers.purge_copied(bus)
    await nats_server.restart_after_kill()
    await bus.connected()
    soon = clock.now() + timedelta(milliseconds=50)
    await bus.publish(timers.schedule_message("requeue", "a", "y", soon, b"{}"))
    await eventually(lambda: fired(2))
    names = [
        message.subject.rpartition(".")[2]
        for message in await read_messages(bus, [f"{subjects.TIMER_DUE}>"])
    ]
    assert names == ["x", "y"]


async def test_the_doctor_counts_schedules_without_a_retry_timer(bus: Bus) -> None:
    await bus.publish(at_noon("x"))
    shown = "schedules: 1; due and not yet on the log: 0"
    assert await timers_found(Link(bus)) == [ok("timers", shown)]
