"""Checks, delays and preemption by real services on a real server: one smoke test of each story.

Every scenario runs on the pure cores in tests/acceptance.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from admittance.runtime import clock
from integration.acceptance.stage import Stage

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="package")]
scenario = pytest.mark.scenario
AFTER = {"preemptionPolicy": "AfterCheckPassedOrOnDemand"}
LOWER = {"withinClusterQueue": "LowerPriority"}


@scenario("A1", "A2")
async def test_quota_both_checks_and_one_job_follow_in_order(stage: Stage) -> None:
    await stage.queue("a1", admissionChecks=["a1-x", "a1-y"])
    await stage.submit("a1", "a1")
    await stage.is_in("a1", "QuotaReserved")
    assert stage.states("a1") == {"a1-x": "Pending", "a1-y": "Pending"}
    first = [await stage.request(check, "a1") for check in ("a1-x", "a1-y")]
    assert first[0].admission == first[1].admission is not None
    await stage.answer("a1", "a1-y", "Ready")
    await stage.has_moved("a1", lambda _: stage.states("a1")["a1-y"] == "Ready")
    assert (stage.phase("a1"), stage.trail_of("a1")) == ("QuotaReserved", [])
    await stage.answer("a1", "a1-x", "Ready")
    await stage.runs("a1")
    await stage.answer("a1", "a1-x", "Ready")
    await stage.quiet()
    assert stage.trail_of("a1") == ["started"]


@scenario("A9")
async def test_victims_run_until_the_deferring_check_has_passed(stage: Stage) -> None:
    await stage.queue("a9", cpu=4, preemption=LOWER)
    victims = ["a9-v1", "a9-v2"]
    for victim in victims:
        await stage.submit(victim, "a9", 2)
        await stage.runs(victim)
    await stage.check("a9-x", **AFTER)
    await stage.queue("a9", cpu=4, preemption=LOWER, admissionChecks=["a9-x"])
    await stage.submit("a9", "a9", 4, priority=10)
    await stage.is_in("a9", "QuotaReserved")
    await stage.quiet()
    assert {stage.phase(victim) for victim in victims} <= {"Admitted", "Running"}
    for victim in victims:
        stage.hold(victim).touch()
    await stage.answer("a9", "a9-x", "Ready")
    for victim in victims:
        await stage.is_in(victim, "Evicting")
    stage.hold(victims[0]).unlink()
    await stage.has_moved(victims[0], lambda workload: workload.status.admission is None)
    await stage.quiet()
    assert stage.phase("a9") == "QuotaReserved", "the second victim still runs"
    stage.hold(victims[1]).unlink()
    await stage.runs("a9")
    assert all(stage.trail_of(victim) == ["started", "stopped"] for victim in victims)


@scenario("B4", "B5")
async def test_spot_needs_provisioning_and_its_check_states_stay_on_spot(stage: Stage) -> None:
    flavors: dict[str, tuple[str, ...]] = {"b4-reservation": (), "b4-spot": ("b4-p",)}
    await stage.queue("b4", flavors)
    await stage.submit("b4-kept", "b4")
    await stage.runs("b4-kept")
    await stage.submit("b4", "b4")
    asked = await stage.request("b4-p", "b4")
    assert asked.admission is not None
    assert stage.requests("b4-p") == ["b4"]
    await stage.answer("b4", "b4-p", "Ready")
    await stage.runs("b4")
    await stage.say("finished", "b4-kept")
    await stage.is_in("b4-kept", "Finished")
    await stage.answer("b4", "b4-p", "Retry")
    await stage.runs("b4", 2)
    assert (stage.flavor("b4"), stage.states("b4")) == ("b4-reservation", {})


@scenario("L4")
async def test_two_checks_wait_for_the_later_end(stage: Stage) -> None:
    await stage.queue("l4", admissionChecks=["l4-x", "l4-y"])
    await stage.submit("l4", "l4")
    for check in ("l4-x", "l4-y"):
        await stage.request(check, "l4")
        await stage.answer("l4", check, "Ready")
    await stage.is_in("l4", "Running")
    stage.hold("l4").touch()
    await stage.answer("l4", "l4-x", "Retry", after=1)
    await stage.is_in("l4", "Evicting")
    said = clock.now()
    await stage.answer("l4", "l4-y", "Retry", after=2, cycle=0)
    await stage.has_moved("l4", lambda _: stage.states("l4")["l4-y"] == "Retry")
    stage.hold("l4").unlink()
    await stage.has_moved("l4", lambda workload: workload.status.admission is None)
    until = stage.waits_until("l4")
    assert until >= said + timedelta(seconds=2)
    await asyncio.sleep(max(0, (until - clock.now()).total_seconds() - 0.1))
    assert stage.phase("l4") == "Backoff"
    await stage.is_in("l4", "QuotaReserved")
    assert clock.now() >= until
    assert stage.counts("l4") == {"l4-x": 1, "l4-y": 1}
    assert stage.reason("l4", "Requeued") == "True: BackoffFinished"
