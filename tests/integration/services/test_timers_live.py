"""The retry-timer as a process, beside the others, on a real server."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.events import subjects
from admittance.events.requests.services import Timers, TimersReply
from admittance.runtime import clock
from admittance.runtime.bus import timers
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.puller import Puller
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload
from support.builders import a_manifest
from support.cluster import Cluster
from support.requests import (
    admission_check,
    apply,
    ask,
    eventually,
    health,
    queues,
    submit,
    workload,
)
from support.servers import within

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


class TimerTestbed:
    """One queue with one check, and the services."""

    def __init__(self, bus: Bus, cluster: Cluster) -> None:
        self.bus = bus
        self.cluster = cluster

    async def start(
        self,
        *extra: str,
        cpu: int = 4,
        compare: float = 60.0,
    ) -> None:
        for service in ("workload-controller", "scheduler", "retry-timer", *extra):
            await self.cluster.start(service, ADMIT_COMPARE_SECONDS=str(compare))
        made = queues("q", cpu=cpu, admissionChecks=["budget"])
        await apply(self.bus, admission_check("budget", "example.com/budget"), *made)
        await self.serving()

    async def serving(self) -> TimersReply:
        """Waits until an instance keeps the timers; returns its reply."""
        reply: TimersReply = await ask(self.bus, "admit.api.timers", Timers(), TimersReply)
        return reply

    async def reserved(self, name: str = "w") -> StoredWorkload:
        return await self._until(
            name, lambda stored: phase(stored, clock.now()) is Phase.QUOTA_RESERVED
        )

    async def _until(self, name: str, claim: Any) -> StoredWorkload:
        seen: list[StoredWorkload] = []

        async def so() -> bool:
            stored = await workload(self.bus, name)
            seen[:] = [stored] if stored is not None else []
            return stored is not None and bool(claim(stored))

        await eventually(so)
        return seen[0]

    async def put_off(self, seconds: int, name: str = "w") -> datetime:
        """The check reports Retry; returns the time until which the workload waits."""
        before = await workload(self.bus, name)
        assert before is not None
        await self.bus.publish(retry_verdict(name, before.status.admission_cycle, seconds))
        stored = await self._until(
            name, lambda candidate: waits_until(candidate) not in (None, waits_until(before))
        )
        until = waits_until(stored)
        assert until is not None
        return until

    async def back(self, name: str = "w", cycle: int = 1) -> StoredWorkload:
        """Waits until it has quota again."""
        return await self._until(
            name,
            lambda candidate: (
                candidate.status.admission_cycle >= cycle
                and phase(candidate, clock.now()) is Phase.QUOTA_RESERVED
            ),
        )

    async def standing(self) -> list[timers.Schedule]:
        return (await timers.schedules(self.bus))[0]

    async def stands(self, kind: str = "requeue", name: str = "w") -> datetime:
        """Waits until the schedule stands; for when."""
        times: list[datetime] = []

        async def so() -> bool:
            times[:] = [
                schedule.at
                for schedule in await self.standing()
                if (schedule.kind, schedule.name) == (kind, name) and schedule.at is not None
            ]
            return bool(times)

        await eventually(so)
        return times[0]

    async def stories(self, what: str, name: str = "w") -> list[datetime]:
        """The times at which the log stored facts of that name about the workload."""
        puller = Puller(self.bus, f"story-{what}", [f"admit.workload.{what}.ns.{name}"])
        times: list[datetime] = []
        try:
            while True:
                batch = await asyncio.wait_for(puller.batch(), 0.5)
                times += [message.time for message in batch]
        except TimeoutError:
            return times
        finally:
            await puller.close()


def retry_verdict(name: str, cycle: int, seconds: int) -> Outgoing:
    said: dict[str, Any] = {
        "namespace": "ns",
        "name": name,
        "controller": "example.com/budget",
        "check": "budget",
    }
    said |= {"cycle": cycle, "state": "Retry", "requeueAfterSeconds": seconds}
    subject = f"admit.check.reported.example_com=2Fbudget.ns.{name}"
    return Outgoing(subject, msgspec.json.encode(said))


def waits_until(stored: StoredWorkload) -> datetime | None:
    state = stored.status.requeue_state
    return state.requeue_at if state is not None and stored.status.admission is None else None


def retries(stored: StoredWorkload) -> int:
    return stored.status.admission_checks[0].retry_count


@pytest.fixture
def testbed(bus: Bus, cluster: Cluster) -> TimerTestbed:
    return TimerTestbed(bus, cluster)


@pytest.mark.scenario("L3")
async def test_a_delayed_workload_competes_when_its_delay_ends(testbed: TimerTestbed) -> None:
    await testbed.start()
    await submit(testbed.bus, [a_manifest("w", queue="lq-q")])
    await testbed.reserved()
    until = await testbed.put_off(2)
    assert await testbed.stands() == until
    returned = await testbed.back()
    assert retries(returned) == 1
    requeued = await testbed.stories("requeued")
    assert len(requeued) == 1
    assert requeued[0] >= until
    assert await testbed.standing() == []


@pytest.mark.scenario("L16")
@pytest.mark.parametrize("killed_service", ["retry-timer", "workload-controller", "all of them"])
async def test_a_kill_during_a_wait_does_not_change_its_end(
    testbed: TimerTestbed, killed_service: str
) -> None:
    await testbed.start()
    await submit(testbed.bus, [a_manifest("w", queue="lq-q")])
    await testbed.reserved()
    until = await testbed.put_off(3)
    await testbed.stands()
    killed = [
        process
        for process in testbed.cluster.processes
        if killed_service in (process.service, "all of them")
    ]
    for killed_process in killed:
        await killed_process.kill()
    for killed_process in killed:
        await killed_process.start()
    again = await testbed.back()
    assert retries(again) == 1
    requeued = await testbed.stories("requeued")
    assert len(requeued) == 1
    assert requeued[0] >= until


@pytest.mark.scenario("L16")
async def test_a_timer_due_during_downtime_fires_once(testbed: TimerTestbed) -> None:
    await testbed.start()
    await submit(testbed.bus, [a_manifest("w", queue="lq-q")])
    await testbed.reserved()
    until = await testbed.put_off(1)
    await testbed.stands()
    for process in testbed.cluster.processes:
        await process.kill()
    await within(_past(until))
    for service_process in testbed.cluster.processes:
        await service_process.start()
    assert retries(await testbed.back()) == 1
    assert len(await testbed.stories("requeued")) == 1


async def _past(until: datetime) -> None:
    await asyncio.sleep(max(0.0, (until - clock.now()).total_seconds()) + 0.3)


async def test_a_purged_schedule_is_restored(testbed: TimerTestbed) -> None:
    await testbed.start(compare=0.3)
    await submit(testbed.bus, [a_manifest("w", queue="lq-q")])
    await testbed.reserved()
    until = await testbed.put_off(6)
    await testbed.stands()
    await timers.purge(testbed.bus, f"{subjects.TIMER_AT}>")
    assert await testbed.stands() == until
    assert (await testbed.serving()).mended == 1
    await testbed.back()
    assert (await testbed.stories("requeued"))[0] >= until


@pytest.mark.parametrize("replaced", [False, True], ids=["by a comparison", "by a new leader"])
async def test_an_orphaned_schedule_is_deleted_and_a_wrong_one_corrected(
    testbed: TimerTestbed, replaced: bool
) -> None:
    await testbed.start(compare=60.0 if replaced else 0.3)
    await submit(testbed.bus, [a_manifest("w", queue="lq-q")])
    await testbed.reserved()
    until = await testbed.put_off(600)
    await testbed.stands()
    later = clock.now() + timedelta(hours=1)
    for name in ("w", "missing"):
        await testbed.bus.publish(timers.schedule_message("requeue", "ns", name, later, b"{}"))
    strange = timers.schedule_message("requeue", "ns", "w", later, b"{}")
    await testbed.bus.publish(replace(strange, subject=f"{subjects.TIMER_AT}odd"))
    if replaced:
        await _replaced(testbed)
    await eventually(lambda: _stands_alone(testbed, until))


async def _replaced(testbed: TimerTestbed) -> None:
    (timer,) = [
        process for process in testbed.cluster.processes if process.service == "retry-timer"
    ]
    await timer.kill()
    await timer.start()
    await testbed.serving()


async def _stands_alone(testbed: TimerTestbed, until: datetime) -> bool:
    listed, strange = await timers.schedules(testbed.bus)
    return [(schedule.name, schedule.at) for schedule in listed] == [("w", until)] and not strange


async def test_one_of_two_instances_sets_timers_and_the_other_takes_over(
    testbed: TimerTestbed,
) -> None:
    await testbed.start("retry-timer")
    await submit(testbed.bus, [a_manifest("w", queue="lq-q")])
    await testbed.reserved()

    async def leaders(answers: int) -> list[str]:
        return [
            reply.instance
            for reply in await health(testbed.bus, answers)
            if reply.leads and reply.service == ("retry-timer")
        ]

    (first,) = await leaders(4)
    (leader,) = [process for process in testbed.cluster.processes if process.instance == first]
    await leader.kill()
    until = await testbed.put_off(4)

    async def taken_over() -> bool:
        return await leaders(3) not in ([], [first])

    await eventually(taken_over)
    assert await testbed.stands() == until
    await testbed.back()
    assert (await testbed.stories("requeued"))[0] >= until


async def test_a_thousand_workloads_due_at_once_all_compete_again(testbed: TimerTestbed) -> None:
    await testbed.start(cpu=5000)
    names = [f"w{number}" for number in range(1000)]
    await submit(testbed.bus, [a_manifest(name, queue="lq-q") for name in names])
    for name in (names[0], names[-1]):
        await testbed.reserved(name)
    await testbed.bus.publish_all([retry_verdict(name, 0, 3) for name in names])
    for name in names:
        returned = await testbed.back(name)
        assert retries(returned) == 1
    assert (await testbed.serving()).again == 0
    info = await testbed.bus.api(
        f"STREAM.INFO.{subjects.TIMERS}", {"subjects_filter": "admit.timer.at.>"}
    )
    assert not info["state"].get("subjects")
