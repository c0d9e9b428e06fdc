"""A runner announces its machine, has its name alone, and obeys cordon and drain."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.meta import Condition, ObjectMeta
from admittance.api.reading.objects import encode
from admittance.api.runners import Runner, RunnerDrain, RunnerSpec, RunnerStatus
from admittance.events.stored.machines import (
    ALIVE_RUNNERS,
    INVENTORIES,
    OPEN_RUNS,
    REFUSED_RUNNERS,
    OpenRuns,
    RunnerAlive,
    RunnerInventory,
    RunnerRefused,
    key_of_runner,
)
from admittance.events.subjects import CLAIMS
from admittance.job_rules.hooks import JobHooks
from admittance.placement.machines.failed_hooks import drained_by_hooks
from admittance.runner.machines.machine_reports import MachineReports
from admittance.runtime.bus.bucket import get, put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AccessDenied
from integration.runner.harness import NOON, OWN_RULES, RunnerTestbed, until

pytestmark = pytest.mark.bus


async def said(bus: Bus, first: str, runner: str, kind: type[Any]) -> Any:
    """What the runner said last at the key that begins with ``first``; None: nothing any more."""
    entry = await get(bus, key_of_runner(first, runner), bucket=CLAIMS)
    if entry is None or entry.value is None:
        return None
    return msgspec.json.decode(entry.value, type=kind)


async def set_spec(
    bus: Bus, runner: str, spec: RunnerSpec, conditions: tuple[Condition, ...] = ()
) -> None:
    key = f"runner.{runner}"
    entry = await get(bus, key)
    status = RunnerStatus(conditions=conditions) if conditions else None
    made = Runner(metadata=ObjectMeta(name=runner), spec=spec, status=status)
    expected = entry.revision if entry is not None else 0
    await bus.publish(put_message(key, encode(made), expected=expected))


async def test_a_runner_reports_its_machine_and_its_runs_and_obeys_cordon_and_drain(
    testbed: RunnerTestbed,
) -> None:
    asks = {
        "name": "c",
        "command": ["/bin/sh", "-c", "sleep 100"],
        "resources": {"requests": {"cpu": "500m", "nvidia.com/gpu": "1"}},
    }
    await set_spec(testbed.bus, "gpu", RunnerSpec(unschedulable=True))
    await testbed.admit("early", "true")
    async with testbed.runner(user="gpu"):
        inventory = await said(testbed.bus, INVENTORIES, "gpu", RunnerInventory)
        alive = await said(testbed.bus, ALIVE_RUNNERS, "gpu", RunnerAlive)
        assert (inventory.id, inventory.capacity["cpu"] > 0) == (alive.id, True)
        revision = await testbed.admit("train", "", containers=[asks], count=2)
        await asyncio.sleep(0)
        assert await testbed.said("started", "early") is None
        await set_spec(testbed.bus, "gpu", RunnerSpec())
        await testbed.wait_for_fact("finished", "early")
        await testbed.wait_for_fact("started", "train")

        async def reported() -> Any:
            runs = await said(testbed.bus, OPEN_RUNS, "gpu", OpenRuns)
            return runs.runs if [run.name for run in runs.runs] == ["train"] else None

        [run] = await until(reported, "the report of the run")
        assert (run.revision, run.requests) == (revision, {"cpu": 1000, "nvidia.com/gpu": 2})
        drain = RunnerDrain(deadline=NOON, reason="a new fan")
        await set_spec(testbed.bus, "gpu", RunnerSpec(drain=drain))
        stopped = await testbed.wait_for_fact("stopped", "train")
        assert (stopped.reason, stopped.message) == (
            "RunnerEnded",
            "its machine is drained: a new fan",
        )
    assert (await said(testbed.bus, OPEN_RUNS, "gpu", OpenRuns)).runs == ()
    assert await said(testbed.bus, ALIVE_RUNNERS, "gpu", RunnerAlive) is None


async def test_a_machine_with_a_failed_prolog_gives_its_job_back_until_it_is_undrained(
    testbed: RunnerTestbed,
) -> None:
    broken = testbed.tmp / "broken"
    broken.touch()
    rules = replace(OWN_RULES, hooks=JobHooks(prolog=f"echo no disk; test ! -e {broken}"))
    async with testbed.runner(user="gpu", rules=rules):
        revision = await testbed.admit("train", "test $ADMITTANCE_RESTART_COUNT = 0")
        stopped = await testbed.wait_for_fact("stopped", "train")
        assert (stopped.revision, stopped.reason) == (revision, "PrologFailed")
        assert stopped.message == "runner gpu: prolog failed: exit code 1: no disk"
        # The machine is drained before the job is given back.
        failure = (await said(testbed.bus, INVENTORIES, "gpu", RunnerInventory)).failure
        assert (failure.reason, failure.message) == (
            "PrologFailed",
            "prolog failed: exit code 1: no disk",
        )
        assert await testbed.said("started", "train") is None
        broken.unlink()
        conditions = drained_by_hooks(None, (), failure, NOON).conditions
        conditions = drained_by_hooks(None, conditions, failure, NOON).conditions
        await set_spec(testbed.bus, "gpu", RunnerSpec(), conditions)
        # Nothing of the job had started, so it is not restarted.
        assert (await testbed.wait_for_fact("finished", "train")).succeeded
    assert (await said(testbed.bus, INVENTORIES, "gpu", RunnerInventory)).failure is None


@pytest.mark.servers("real", "simulated")
async def test_a_second_runner_with_the_name_waits_until_the_first_has_left(bus: Bus) -> None:
    first, second, again = (
        MachineReports(bus, RunnerInventory(id=folder, name="gpu.1", host=folder), 60.0)
        for folder in ("a", "b", "a")
    )
    assert await first.take_name()
    assert await first.take_name(), "its own name is renewed"
    await first.announce(RunnerInventory(id="a", name="gpu.1"))
    assert not await second.take_name()
    assert not second.has_name
    await second.announce(RunnerInventory(id="b", name="gpu.1"))
    assert (await said(bus, INVENTORIES, "gpu.1", RunnerInventory)).id == "a"
    refused = await said(bus, REFUSED_RUNNERS, "gpu.1", RunnerRefused)
    assert (refused.id, refused.host) == ("b", "b")
    assert await again.take_name(), "a start of the same data folder"
    await again.leave()
    assert await second.take_name()
    assert await said(bus, REFUSED_RUNNERS, "gpu.1", RunnerRefused) is None
    assert not await first.take_name(), "the first process has only its own revision"


class ForbiddingBus:
    """The bus of a login with the permissions of an earlier version."""

    def __init__(self) -> None:
        self.asked = 0

    async def publish(self, *_: object) -> int:
        self.asked += 1
        raise AccessDenied("this login may not publish there")


async def test_a_runner_that_may_not_announce_its_machine_works_as_before() -> None:
    bus = ForbiddingBus()
    inventory = RunnerInventory(id="a", name="gpu")
    reports = MachineReports(cast(Any, bus), inventory, 60.0)
    assert await reports.take_name()
    assert (reports.has_name, reports.allowed) == (True, False)
    await reports.report(())
    await reports.leave()
    assert bus.asked == 1
    await reports.announce(inventory)
    assert bus.asked == 2, "its permissions may have been renewed"
    assert not reports.allowed
