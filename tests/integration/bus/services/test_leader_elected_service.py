"""One instance works, the others stand by, and each reports its state."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusUnavailable, Superseded
from admittance.runtime.leader.leader_elected_service import LeaderElectedService
from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait
from support.requests import eventually, health
from support.servers import until, within

pytestmark = [pytest.mark.bus, pytest.mark.servers("real", "simulated")]


class Digging:
    """Work with a number of steps that are left."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.ready = False
        self.left = 7
        self.superseded = asyncio.Event()

    async def run(self) -> None:
        self.ready = True
        await self.superseded.wait()
        raise Superseded

    async def close(self) -> None:
        self.ready = False


class Digger:
    """An instance of a service with `Digging`."""

    def __init__(self, bus: Bus, name: str) -> None:
        self.begun: list[Digging] = []
        self.stop = asyncio.Event()
        settings = Settings(service="dig", instance=name, lease_seconds=1.0)
        self.alone = LeaderElectedService(
            bus, settings, "dig", "hole", self.begin, lag=lambda work: work.left
        )
        self.running = asyncio.create_task(self.alone.run(self.stop))

    def begin(self, epoch: int) -> Digging:
        self.begun.append(Digging(epoch))
        return self.begun[-1]

    async def end(self) -> None:
        self.stop.set()
        await self.running


async def until_health(bus: Bus, want: dict[str, tuple[bool, tuple[str, ...], int]]) -> None:
    """Waits until the instances report this health: ready, domains, lag."""

    async def is_reported() -> bool:
        replies = await health(bus)
        return {reply.instance: (reply.ready, reply.leads, reply.lag) for reply in replies} == want

    await eventually(is_reported)


async def test_a_standby_is_ready_and_takes_over(bus: Bus) -> None:
    first = Digger(bus, "first")
    await until(lambda: first.alone.work is not None and first.alone.work.ready)
    second = Digger(bus, "second")
    try:
        await until_health(bus, {"first": (True, ("hole",), 7), "second": (True, (), 0)})
        standby = next(reply for reply in await health(bus, 2) if reply.instance == "second")
        assert standby.details["leader"] == "first"
        assert standby.details["leader_seen"] != "never"
        assert second.alone.work is None
        assert second.begun == []
        await first.end()
        await until_health(bus, {"second": (True, ("hole",), 7)})
        assert not first.begun[0].ready
    finally:
        await first.end()
        await second.end()


async def test_a_superseded_leader_stands_by_and_can_lead_again(bus: Bus) -> None:
    only = Digger(bus, "only")
    try:
        await until(lambda: only.begun != [])
        only.begun[0].superseded.set()
        await until(lambda: len(only.begun) == 2)
        assert not only.begun[0].ready
        assert only.begun[1].epoch > only.begun[0].epoch
    finally:
        await only.end()


class LosesOneCancellation:
    """Work that continues after the first cancellation, as nats-py does while it flushes."""

    ready = True

    def __init__(self, _: object = None) -> None:
        self.cancelled = asyncio.Event()

    async def run(self) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        self.cancelled.set()
        await asyncio.sleep(3600)

    async def close(self) -> None:
        pass


async def test_work_that_loses_a_cancellation_ends_with_its_service(bus: Bus) -> None:
    work = LosesOneCancellation()
    stop = asyncio.Event()
    settings = Settings(service="dig", instance="one", lease_seconds=1.0)
    service = LeaderElectedService(bus, settings, "dig", "hole", lambda _: work)
    running = asyncio.create_task(service.run(stop))
    await until(lambda: service.work is not None)
    stop.set()
    await within(running)
    assert work.cancelled.is_set()


async def test_a_standby_that_loses_a_cancellation_ends(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeaderElector, "run", LosesOneCancellation().run)
    stop = asyncio.Event()
    settings = Settings(service="dig", instance="one", lease_seconds=1.0)
    service = LeaderElectedService(bus, settings, "dig", "hole", Digging)
    running = asyncio.create_task(service.run(stop))
    await asyncio.sleep(0)
    stop.set()
    await within(running)


async def test_failing_heartbeats_are_logged_once(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0

    async def fails_from_the_second_on(_: LeaderElector) -> None:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            raise BusUnavailable("the bus is away")

    monkeypatch.setattr(LeaderElector, "_write_heartbeat", fails_from_the_second_on)
    elector = LeaderElector(bus, "dig", "one", ttl_seconds=0.04)
    with capture_logs() as lines:
        running = asyncio.create_task(elector.run())
        await until(lambda: attempts > 5)
    with suppress(asyncio.CancelledError):
        await cancel_and_wait(running)
    assert [line["event"] for line in lines].count("heartbeat_failed") == 1
