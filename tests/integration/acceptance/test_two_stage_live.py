"""Two-stage admission by real services on a real server. docs/spec/lifecycle.md#7.1."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import facts
from integration.acceptance.stage import Stage

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="package")]
scenario = pytest.mark.scenario
AFTER = {"preemptionPolicy": "AfterCheckPassedOrOnDemand"}
LOWER = {"withinClusterQueue": "LowerPriority"}


async def reserved(stage: Stage, name: str, *checks: str, cpu: int = 10) -> None:
    """A queue, a job and checks of that name; the job holds quota."""
    await stage.queue(name, cpu=cpu, admissionChecks=list(checks))
    await stage.submit(name, name)
    await stage.is_in(name, "QuotaReserved")


@scenario("A1", "A2")
async def test_quota_both_checks_and_one_job_follow_in_order(stage: Stage) -> None:
    await reserved(stage, "a1", "a1-x", "a1-y")
    assert stage.states("a1") == {"a1-x": "Pending", "a1-y": "Pending"}
    first = [await stage.request(check, "a1") for check in ("a1-x", "a1-y")]
    assert first[0].admission == first[1].admission is not None
    await stage.answer("a1", "a1-y", "Ready")
    await stage.has_moved("a1", lambda _: stage.states("a1")["a1-y"] == "Ready")
    await stage.quiet()
    assert (stage.phase("a1"), stage.trail_of("a1")) == ("QuotaReserved", [])
    await stage.answer("a1", "a1-x", "Ready")
    await stage.is_in("a1", "Admitted", "Running")
    await stage.runs("a1")
    await stage.answer("a1", "a1-x", "Ready")
    await stage.quiet()
    assert stage.trail_of("a1") == ["started"]


@scenario("A3")
async def test_a_cut_takes_a_reservation_back(stage: Stage) -> None:
    await reserved(stage, "a3", "a3-x")
    await stage.queue("a3", cpu=5, admissionChecks=["a3-x"])
    await stage.is_in("a3", "Pending")
    assert stage.reason("a3", "Requeued") == "True: QuotaChanged"
    assert stage.now("a3").status.admission is None
    await stage.until(lambda: stage.withdrawn("a3-x", "a3") == ["QuotaChanged"])
    await stage.queue("a3", cpu=8, admissionChecks=["a3-x"])
    await stage.is_in("a3", "QuotaReserved")
    again = await stage.request("a3-x", "a3", times=2)
    assert again.cycle == 1


@scenario("A4")
@pytest.mark.parametrize("how", ["gone", "small"])
async def test_a_flavor_that_fails_the_recheck_is_left(stage: Stage, how: str) -> None:
    queue, f, g = f"a4-{how}", f"a4-{how}-f", f"a4-{how}-g"
    check = f"{queue}-x"
    await stage.queue(queue, {f: (), g: ()}, admissionChecks=[check])
    await stage.submit(queue, queue)
    await stage.is_in(queue, "QuotaReserved")
    assert stage.flavor(queue) == f
    # The verdict and the edit are on their way at the same moment.
    edit = (
        stage.queue(queue, {g: ()}, admissionChecks=[check])
        if how == "gone"
        else stage.queue(queue, {f: (), g: ()}, cpu={f: 5, g: 10}, admissionChecks=[check])
    )
    await edit
    await stage.answer(queue, check, "Ready", cycle=0)
    await stage.until(lambda: stage.flavor(queue) == g)
    await stage.is_in(queue, "QuotaReserved")
    assert stage.states(queue) == {check: "Pending"}
    assert not stage.trail_of(queue)
    await stage.answer(queue, check, "Ready")
    await stage.runs(queue)
    assert stage.flavor(queue) == g


@scenario("A5")
@pytest.mark.parametrize("others", [0, 1], ids=["one check", "two checks"])
async def test_one_retry_frees_the_quota_at_once(stage: Stage, others: int) -> None:
    name = f"a5-{others}"
    await reserved(stage, name, f"{name}-x", *[f"{name}-y"] * others)
    if others:
        await stage.answer(name, f"{name}-y", "Ready")
        await stage.has_moved(name, lambda _: "Ready" in stage.states(name).values())
    await stage.submit(f"{name}-next", name)
    await stage.is_in(f"{name}-next", "Pending")
    await stage.answer(name, f"{name}-x", "Retry", after=3600, message="not today")
    await stage.is_in(name, "Backoff")
    assert "not today" in next(
        c.message for c in stage.now(name).status.conditions if c.type == "Evicted"
    )
    await stage.is_in(f"{name}-next", "QuotaReserved")


@scenario("A6")
@pytest.mark.parametrize("others", [0, 1], ids=["one check", "two checks"])
async def test_one_rejected_check_ends_the_workload(stage: Stage, others: int) -> None:
    name = f"a6-{others}"
    await reserved(stage, name, f"{name}-x", *[f"{name}-y"] * others)
    if others:
        await stage.answer(name, f"{name}-y", "Ready")
    await stage.answer(name, f"{name}-x", "Rejected", message="never")
    await stage.is_in(name, "Rejected")
    assert stage.now(name).status.admission is None
    await stage.until(
        lambda: any(
            isinstance(one, facts.Rejected)
            and (one.name, one.reason) == (name, "AdmissionCheckRejected")
            for one in stage.said
        )
    )
    await stage.quiet()
    assert (stage.phase(name), stage.trail_of(name)) == ("Rejected", [])


@scenario("A7")
async def test_without_checks_one_write_reserves_and_admits(stage: Stage) -> None:
    await stage.queue("a7")
    await stage.submit("a7", "a7")
    await stage.runs("a7")
    assert "QuotaReserved" not in stage.was("a7")


@scenario("A8")
@pytest.mark.parametrize("verdict", ["Retry", "Rejected"])
async def test_a_check_that_changes_its_mind_stops_the_job_first(
    stage: Stage, verdict: str
) -> None:
    name = f"a8-{verdict.lower()}"
    await reserved(stage, name, f"{name}-x")
    await stage.answer(name, f"{name}-x", "Ready")
    await stage.is_in(name, "Running")
    stage.hold(name).touch()
    more: dict[str, Any] = {"after": 3600} if verdict == "Retry" else {}
    await stage.answer(name, f"{name}-x", verdict, **more)
    await stage.is_in(name, "Evicting", "Rejected")
    await stage.quiet()
    assert stage.now(name).status.admission is not None, "the job still runs"
    stage.hold(name).unlink()
    await stage.has_moved(name, lambda one: one.status.admission is None)
    assert stage.trail_of(name) == ["started", "stopped"]
    assert stage.phase(name) == ("Backoff" if verdict == "Retry" else "Rejected")


async def a_town(
    stage: Stage, name: str, checks: dict[str, dict[str, Any]], *, low: int = 2, cpu: int = 4
) -> list[str]:
    """Victims of two cpu run; then the queue has checks, and ``name`` needs the room of two."""
    await stage.queue(name, cpu=cpu, preemption=LOWER)
    victims = [f"{name}-v{number}" for number in range(1, low + 1)]
    for victim in victims:
        await stage.submit(victim, name, 2)
        await stage.runs(victim)
    for check, spec in checks.items():
        await stage.check(check, **spec)
    await stage.queue(name, cpu=cpu, preemption=LOWER, admissionChecks=list(checks))
    await stage.submit(name, name, 4, priority=10)
    await stage.is_in(name, "QuotaReserved")
    return victims


@scenario("A9")
async def test_victims_run_until_the_deferring_check_has_passed(stage: Stage) -> None:
    victims = await a_town(stage, "a9", {"a9-x": AFTER})
    await stage.quiet()
    assert {stage.phase(one) for one in victims} <= {"Admitted", "Running"}
    for one in victims:
        stage.hold(one).touch()
    await stage.answer("a9", "a9-x", "Ready")
    for one in victims:
        await stage.is_in(one, "Evicting")
    stage.hold(victims[0]).unlink()
    await stage.has_moved(victims[0], lambda one: one.status.admission is None)
    await stage.quiet()
    assert stage.phase("a9") == "QuotaReserved", "the second one still runs"
    stage.hold(victims[1]).unlink()
    await stage.runs("a9")
    assert all(stage.trail_of(one) == ["started", "stopped"] for one in victims)


@scenario("A10")
async def test_a_pending_verdict_can_evict_the_victims_at_once(stage: Stage) -> None:
    victims = await a_town(stage, "a10", {"a10-x": AFTER})
    await stage.answer("a10", "a10-x", "Pending", reason="PreemptionRequired")
    for one in victims:
        await stage.has_moved(one, lambda it: it.status.admission is None)
    await stage.quiet()
    assert (stage.phase("a10"), stage.trail_of("a10")) == ("QuotaReserved", [])
    await stage.answer("a10", "a10-x", "Ready")
    await stage.runs("a10")


@scenario("A11")
async def test_a_rejection_touches_no_victim(stage: Stage) -> None:
    victims = await a_town(stage, "a11", {"a11-x": AFTER})
    await stage.answer("a11", "a11-x", "Rejected")
    await stage.is_in("a11", "Rejected")
    await stage.quiet()
    assert all(stage.trail_of(one) == ["started"] for one in victims)
    assert all(stage.was(one)[-1] in ("Admitted", "Running") for one in victims)


@scenario("A12")
async def test_only_the_deferring_check_starts_preemption(stage: Stage) -> None:
    victims = await a_town(stage, "a12", {"a12-x": {}, "a12-y": AFTER})
    await stage.answer("a12", "a12-x", "Ready")
    await stage.quiet()
    assert all(stage.trail_of(one) == ["started"] for one in victims)
    await stage.answer("a12", "a12-y", "Ready")
    await stage.runs("a12")
    assert all(stage.trail_of(one) == ["started", "stopped"] for one in victims)


@scenario("A12")
async def test_where_all_are_anytime_checks_judge_while_victims_stop(stage: Stage) -> None:
    await stage.queue("a12b", cpu=4, preemption=LOWER)
    await stage.submit("a12b-v", "a12b", 4)
    await stage.runs("a12b-v")
    stage.hold("a12b-v").touch()
    await stage.queue("a12b", cpu=4, preemption=LOWER, admissionChecks=["a12b-x", "a12b-y"])
    await stage.submit("a12b", "a12b", 4, priority=10)
    await stage.is_in("a12b-v", "Evicting")
    for check in ("a12b-x", "a12b-y"):
        await stage.request(check, "a12b")
        await stage.answer("a12b", check, "Ready")
    await stage.quiet()
    assert stage.phase("a12b") == "QuotaReserved"
    stage.hold("a12b-v").unlink()
    await stage.runs("a12b")


@scenario("A13")
async def test_a_workload_that_waits_for_checks_can_be_preempted(stage: Stage) -> None:
    await stage.queue("a13", preemption=LOWER, admissionChecks=["a13-x"])
    await stage.submit("a13", "a13")
    await stage.request("a13-x", "a13")
    await stage.submit("a13-high", "a13", priority=10)
    await stage.is_in("a13-high", "QuotaReserved")
    await stage.is_in("a13", "Pending")
    assert stage.reason("a13", "Evicted") == "True: Preempted"
    assert stage.states("a13") == {"a13-x": "Pending"}
    await stage.until(lambda: stage.withdrawn("a13-x", "a13") == ["Preempted"])


@scenario("A26")
async def test_victims_are_selected_again_at_the_recheck(stage: Stage) -> None:
    victims = await a_town(stage, "a26", {"a26-x": AFTER}, low=3, cpu=6)
    pending = stage.now("a26").status.pending_preemption
    assert pending is not None
    first = sorted(one.name for one in pending.victims)
    assert len(first) == 2
    risen, kept = first
    (other,) = set(victims) - set(first)
    await stage.say("reprioritized", risen, priority=20)
    await stage.answer("a26", "a26-x", "Ready")
    await stage.runs("a26")
    assert stage.trail_of(kept) == stage.trail_of(other) == ["started", "stopped"]
    assert stage.trail_of(risen) == ["started"]
