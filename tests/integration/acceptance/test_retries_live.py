"""Checks per flavor, and delayed retries, by real services on a real server.
docs/spec/lifecycle.md#7.2, #7.3."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from admittance.events import facts
from admittance.runtime import clock
from admittance.workload.conditions import find
from integration.acceptance.stage import Stage
from support.servers import within

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="package")]
scenario = pytest.mark.scenario
LOWER = {"withinClusterQueue": "LowerPriority"}


async def reserved(stage: Stage, name: str, *checks: str, **spec: Any) -> None:
    """A queue, a job and checks of that name; the job holds quota."""
    await stage.queue(name, admissionChecks=list(checks), **spec)
    await stage.submit(name, name)
    await stage.is_in(name, "QuotaReserved")


async def running(stage: Stage, name: str, *checks: str, **spec: Any) -> None:
    """The same, and its job runs."""
    await reserved(stage, name, *checks, **spec)
    for check in checks:
        await stage.answer(name, check, "Ready")
    await stage.is_in(name, "Running")


async def back(stage: Stage, name: str, not_before: Any) -> None:
    """Waits until it holds quota again, which is not too early."""
    await stage.until(lambda: stage.phase(name) == "QuotaReserved", f"{name} is back")
    assert clock.now() >= not_before


@scenario("B1", "B2", "B3")
async def test_flavors_bring_their_checks_and_replace_those_of_their_controller(
    stage: Stage,
) -> None:
    await stage.check("b-x")
    await stage.check("b-y")
    await stage.check("b-wide")
    await stage.check("b-same", "ctl-b-y")
    await stage.queue("b", {"b-f": ("b-x",), "b-g": ("b-y",)}, admissionChecks=["b-wide", "b-same"])
    await stage.submit("b-1", "b")
    await stage.is_in("b-1", "QuotaReserved")
    await stage.submit("b-2", "b")
    await stage.is_in("b-2", "QuotaReserved")
    assert (stage.flavor("b-1"), set(stage.states("b-1"))) == ("b-f", {"b-x", "b-wide", "b-same"})
    assert (stage.flavor("b-2"), set(stage.states("b-2"))) == ("b-g", {"b-y", "b-wide"})
    for check in ("b-y", "b-wide"):
        await stage.request(check, "b-2")
        await stage.answer("b-2", check, "Ready")
    await stage.runs("b-2")
    assert "b-2" not in stage.requests("b-same"), "what is replaced is not evaluated"
    assert stage.requests("b-x") == ["b-1"]
    assert stage.phase("b-1") == "QuotaReserved"


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


@scenario("B5")
async def test_a_flavor_with_another_check_uses_only_that_check(stage: Stage) -> None:
    flavors: dict[str, tuple[str, ...]] = {"b5-r": ("b5-y",), "b5-s": ("b5-x",)}
    await stage.queue("b5", flavors)
    await stage.submit("b5-big", "b5")
    await stage.request("b5-y", "b5-big")
    await stage.submit("b5", "b5")
    await stage.request("b5-x", "b5")
    await stage.say("deleted", "b5-big")
    await stage.until(lambda: not stage.has("b5-big"))
    await stage.answer("b5", "b5-x", "Retry")
    await stage.request("b5-y", "b5")
    await stage.is_in("b5", "QuotaReserved")
    assert (stage.flavor("b5"), stage.states("b5")) == ("b5-r", {"b5-y": "Pending"})


@scenario("L3")
async def test_a_delay_of_five_seconds_lasts_five_seconds(stage: Stage) -> None:
    await reserved(stage, "l3", "l3-x")
    began = clock.now()
    await stage.answer("l3", "l3-x", "Retry", after=5)
    await stage.is_in("l3", "Backoff")
    assert stage.now("l3").status.admission is None
    assert stage.reason("l3", "Requeued") == "False: AdmissionCheck"
    until = stage.waits_until("l3")
    assert timedelta(seconds=5) <= until - began < timedelta(seconds=7)
    await asyncio.sleep(max(0, (until - clock.now()).total_seconds() - 0.1))
    assert stage.phase("l3") == "Backoff"
    again = await stage.request("l3-x", "l3", times=2)
    assert again.retry_count == 1
    assert clock.now() >= until
    assert stage.counts("l3") == {"l3-x": 1}
    assert stage.reason("l3", "Requeued") == "True: BackoffFinished"


async def wait_for_both(stage: Stage, stops: str) -> None:
    name = f"l4-{stops}"
    await running(stage, name, f"{name}-x", f"{name}-y")
    stage.hold(name).touch()
    await stage.answer(name, f"{name}-x", "Retry", after=1)
    await stage.is_in(name, "Evicting")
    if stops == "before":
        stage.hold(name).unlink()
        await stage.is_in(name, "Backoff")
    said = clock.now()
    await stage.answer(name, f"{name}-y", "Retry", after=3, cycle=0)
    await stage.has_moved(name, lambda _: stage.states(name)[f"{name}-y"] == "Retry")
    stage.hold(name).unlink(missing_ok=True)
    await back(stage, name, said + timedelta(seconds=3))
    assert set(stage.counts(name).values()) == {1}


@scenario("L4")
async def test_two_checks_wait_for_the_later_end(stage: Stage) -> None:
    await asyncio.gather(*(wait_for_both(stage, stops) for stops in ("before", "after")))


@scenario("L5")
async def test_three_cycles_give_the_counts_one_two_and_none(stage: Stage) -> None:
    await reserved(stage, "l5", "l5-x")
    await stage.answer("l5", "l5-x", "Retry")
    assert (await stage.request("l5-x", "l5", times=2)).retry_count == 1
    await stage.is_in("l5", "QuotaReserved")
    await stage.answer("l5", "l5-x", "Retry", after=1, cycle=1)
    assert (await stage.request("l5-x", "l5", times=3)).retry_count == 2
    await stage.answer("l5", "l5-x", "Ready", cycle=2)
    await stage.runs("l5")
    assert stage.counts("l5") == {"l5-x": 0}
    assert stage.now("l5").status.requeue_state is None


async def answer_late(stage: Stage, state: str) -> None:
    name = f"l6-{state.lower()}"
    await reserved(stage, name, f"{name}-x", f"{name}-y")
    await stage.answer(name, f"{name}-x", "Retry", after=2)
    await stage.is_in(name, "Backoff")
    first = stage.waits_until(name)
    more: dict[str, Any] = {"after": 4} if state == "Retry" else {}
    await stage.answer(name, f"{name}-y", state, message="late", cycle=0, **more)
    if state == "Rejected":
        await stage.is_in(name, "Rejected")
        return
    found = await stage.has_moved(
        name, lambda one: one.status.admission_checks[1].message == "late"
    )
    assert found.status.admission_checks[1].state == state
    assert (stage.waits_until(name) > first) == (state == "Retry")
    await back(stage, name, stage.waits_until(name))
    assert set(stage.states(name).values()) == {"Pending"}


@scenario("L6")
async def test_another_check_answers_after_the_eviction(stage: Stage) -> None:
    states = ("Ready", "Pending", "Retry", "Rejected")
    await asyncio.gather(*(answer_late(stage, state) for state in states))


STEPS = ["created", "reserved", "evicted", "said twice", "released", "woken"]


@scenario("L7")
@pytest.mark.parametrize(
    ("state", "after"), [("Ready", None), ("Retry", None), ("Retry", 1)],
    ids=["Ready", "Retry", "Retry in a second"],
)  # fmt: skip
async def test_a_late_verdict_at_any_step_leaves_no_workload_stuck(
    stage: Stage, state: str, after: int | None
) -> None:
    queue = f"l7-{state.lower()}-{after or 0}"
    fast, slow = f"{queue}-fast", f"{queue}-slow"
    await stage.queue(queue, cpu=100, admissionChecks=[fast, slow])

    async def play(number: int) -> None:
        name = f"{queue}-{number}"

        async def at(step: str) -> None:
            if STEPS[number] == step:
                await stage.answer(name, slow, state, cycle=0, after=after)

        await stage.submit(name, queue, 1)
        await stage.until(lambda: stage.has(name))
        await at("created")
        await stage.request(fast, name)
        await at("reserved")
        await stage.answer(name, fast, "Retry", cycle=0, after=1)
        await stage.has_moved(name, lambda _: bool(stage.reason(name, "Evicted")))
        await at("evicted")
        await stage.answer(name, fast, "Retry", cycle=0, after=1)
        await at("said twice")
        await asyncio.sleep(0.5)
        await at("released")
        await stage.request(fast, name, times=2)
        await at("woken")
        await stage.quiet(0.2)

        # From here on each check answers Ready to each request.
        async def ready() -> None:
            judged: set[tuple[str, int]] = set()
            while stage.phase(name) not in ("Admitted", "Running"):
                for one in list(stage.asked):
                    if not isinstance(one, facts.CheckRequested) or one.name != name:
                        continue
                    if (one.check, one.cycle) not in judged and one.cycle > 0:
                        judged.add((one.check, one.cycle))
                        await stage.answer(name, one.check, "Ready", cycle=one.cycle)
                await asyncio.sleep(0.05)

        await within(ready())

    await asyncio.gather(*(play(number) for number in range(len(STEPS))))


async def go_round(stage: Stage, rounds: int) -> None:
    name = f"l12-{rounds}"
    fast, slow = f"{name}-fast", f"{name}-slow"
    await reserved(stage, name, fast, slow)
    for number in range(rounds):
        await stage.request(fast, name, times=number + 1)
        await stage.answer(name, fast, "Retry", cycle=number)
    await stage.request(fast, name, times=rounds + 1)
    said = clock.now()
    await stage.answer(name, slow, "Retry", cycle=0, after=2)
    await stage.is_in(name, "Backoff")
    assert stage.waits_until(name) >= said + timedelta(seconds=2)
    asked = len(stage.requests(fast))
    await asyncio.sleep(1)
    assert len([one for one in stage.requests(fast) if one == name]) == asked
    await back(stage, name, said + timedelta(seconds=2))
    assert stage.counts(name) == {fast: rounds, slow: 1}


@scenario("L12")
async def test_a_slow_check_holds_a_workload_despite_retries_of_a_fast_check(stage: Stage) -> None:
    await asyncio.gather(*(go_round(stage, rounds) for rounds in (1, 5)))


@scenario("L19")
async def test_a_check_still_judging_is_not_cancelled_and_its_delay_counts(stage: Stage) -> None:
    await reserved(stage, "l19", "l19-x", "l19-y")
    await stage.answer("l19", "l19-x", "Retry", after=1)
    await stage.until(lambda: stage.withdrawn("l19-y", "l19") == ["AdmissionCheck"])
    said = clock.now()
    await stage.answer("l19", "l19-y", "Retry", after=3, cycle=0)
    await back(stage, "l19", said + timedelta(seconds=3))


async def evict_twice(stage: Stage, why: str) -> None:
    name = f"l23-{why.lower()}"
    check = f"{name}-x"
    await running(stage, name, check, preemption=LOWER)
    stage.hold(name).touch()
    whole = stage.spec("ClusterQueue", name)
    if why == "Preempted":
        await stage.submit(f"{name}-high", name, priority=10)
        await stage.request(check, f"{name}-high")
    else:
        await stage.put("ClusterQueue", name, {**whole, "stopPolicy": "HoldAndDrain"})
    await stage.is_in(name, "Evicting")
    assert stage.reason(name, "Evicted") == f"True: {why}"
    said = clock.now()
    await stage.answer(name, check, "Retry", cycle=0, after=3)
    await stage.has_moved(name, lambda _: stage.states(name) == {check: "Retry"})
    if why == "Preempted":
        await stage.say("deleted", f"{name}-high")
    else:
        await stage.put("ClusterQueue", name, whole)
    stage.hold(name).unlink()
    await stage.has_moved(name, lambda one: one.status.admission is None)
    assert stage.phase(name) == "Backoff"
    await back(stage, name, said + timedelta(seconds=3))
    assert stage.counts(name) == {check: 1}


@scenario("L23")
async def test_a_retry_while_another_eviction_stops_the_job_holds_it(stage: Stage) -> None:
    reasons = ("Preempted", "ClusterQueueStopped")
    await asyncio.gather(*(evict_twice(stage, why) for why in reasons))


@scenario("L24")
@pytest.mark.parametrize("why", ["Retry", "Rejected", "Preempted", "ClusterQueueStopped", "User"])
async def test_off_and_on_again_while_the_job_stops(stage: Stage, why: str) -> None:
    name = f"l24-{why.lower()}"
    check = f"{name}-x"
    await running(stage, name, check, preemption=LOWER)
    stage.hold(name).touch()
    whole = stage.spec("ClusterQueue", name)
    match why:
        case "Retry":
            await stage.answer(name, check, why, after=3600)
        case "Rejected":
            await stage.answer(name, check, why)
        case "Preempted":
            await stage.submit(f"{name}-high", name, priority=10)
        case "ClusterQueueStopped":
            await stage.put("ClusterQueue", name, {**whole, "stopPolicy": "HoldAndDrain"})
        case _:
            await stage.say("deactivated", name)
    await stage.is_in(name, "Evicting", "Rejected", "Deactivated")
    if stage.phase(name) == "Evicting":
        await stage.say("deactivated", name)
        await stage.is_in(name, "Deactivated")
    await stage.say("activated", name)
    await stage.is_in(name, "Evicting")
    if why == "ClusterQueueStopped":
        await stage.put("ClusterQueue", name, whole)
    if why == "Preempted":
        await stage.say("deleted", f"{name}-high")
    before = len(stage.revisions[name])
    stage.hold(name).unlink()
    free = await stage.passes(name, lambda one: one.status.admission is None, before)
    requeued = find(free, "Requeued")
    assert requeued is not None
    assert (requeued.status, requeued.reason) == ("True", "Reactivated")
    await stage.is_in(name, "QuotaReserved")
    await stage.answer(name, check, "Ready")
    await stage.runs(name, 2)
