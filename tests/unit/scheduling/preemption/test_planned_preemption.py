"""Reservations that come before their victims have gone (LIFECYCLE 2.7)."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import facts
from admittance.scheduling.state.config import Config
from support.cores.scheduling_story import groups, quota

from living import Life

LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}
RECLAIM: dict[str, Any] = {"reclaimWithinCohort": "Any", **LOWER}
DEFERS = "AfterCheckPassedOrOnDemand"


def a_check(life: Life, name: str, policy: str) -> None:
    life.put("AdmissionCheck", name, {"controllerName": f"ctl-{name}", "preemptionPolicy": policy})


def a_life(nominal: str = "10", config: Config | None = None, **checks: str) -> Life:
    """One queue that requires these checks from now on and required none before."""
    life = Life(config)
    for name, policy in checks.items():
        a_check(life, name, policy)
    life.queue("cq", resourceGroups=groups(default=nominal), preemption=LOWER)
    return life


def run(life: Life, name: str, cpu: str, *, queue: str = "cq", priority: int = 0) -> None:
    life.submit(name, queue, cpu, priority=priority)
    life.settle()
    assert life.phase(name) == "Admitted"


def ask(life: Life, *checks: str, nominal: str = "10") -> None:
    """From now on reservations must pass these checks."""
    life.queue(
        "cq", resourceGroups=groups(default=nominal), preemption=LOWER, admissionChecks=list(checks)
    )


def two_victims(**checks: str) -> Life:
    """Two that run, and one that is reserved in their place once its checks let it."""
    life = a_life(**checks)
    run(life, "v1", "5", priority=-1)
    run(life, "v2", "5", priority=-1)
    life.stubborn.update({"v1", "v2"})
    ask(life, *checks)
    life.submit("j", "cq", "10", priority=1)
    life.settle()
    assert life.phase("j") == "QuotaReserved"
    return life


def victims(life: Life, name: str = "j") -> list[str]:
    pending = life.stored(name).status.pending_preemption
    return sorted(one.name for one in pending.victims) if pending is not None else []


def used(life: Life, queue: str = "cq") -> int:
    return life.core.catalog.tree.queues[queue].cell(("default", "cpu")).usage // 1000


@pytest.mark.scenario("A9")
def test_victims_run_on_until_the_check_that_defers_has_passed() -> None:
    life = two_victims(c=DEFERS)
    assert victims(life) == ["v1", "v2"]
    assert life.phases("v1", "v2") == ["Admitted", "Admitted"]
    assert life.preempted() == []
    assert used(life) == 10
    life.verdict("j", "c", "Ready")
    life.settle()
    assert sorted(life.preempted()) == [("v1", "j"), ("v2", "j")]
    assert life.phases("j", "v1", "v2") == ["QuotaReserved", "Evicting", "Evicting"]
    life.stop("v1")
    life.settle()
    assert (life.phase("j"), victims(life)) == ("QuotaReserved", ["v2"])
    life.stop("v2")
    life.settle()
    assert life.phase("j") == "Admitted"
    assert life.stored("j").status.pending_preemption is None
    assert len(life.preempted()) == 2


@pytest.mark.scenario("A10")
def test_on_demand_the_victims_are_evicted_before_the_verdict() -> None:
    life = two_victims(c=DEFERS)
    life.verdict("j", "c", "Pending", reason="PreemptionRequired")
    life.settle()
    for name in ("v1", "v2"):
        life.stop(name)
    life.settle()
    assert life.phases("j", "v1", "v2") == ["QuotaReserved", "Pending", "Pending"]
    assert used(life) == 10
    life.verdict("j", "c", "Ready")
    life.settle()
    assert life.phase("j") == "Admitted"


@pytest.mark.scenario("A11")
@pytest.mark.parametrize("state", ["Rejected", "Retry"])
def test_a_rejecting_verdict_leaves_planned_victims_running(state: str) -> None:
    life = two_victims(c=DEFERS)
    life.verdict("j", "c", state, **({"requeue_after_seconds": 60} if state == "Retry" else {}))
    life.settle()
    assert life.phases("v1", "v2") == ["Admitted", "Admitted"]
    assert life.phase("j") == ("Rejected" if state == "Rejected" else "Backoff")
    assert (life.preempted(), used(life)) == ([], 10)
    assert victims(life) == []


@pytest.mark.scenario("A12")
def test_only_a_deferring_check_decides_when_victims_are_evicted() -> None:
    life = two_victims(c1="Anytime", c2=DEFERS)
    life.verdict("j", "c1", "Ready")
    life.settle()
    assert life.preempted() == []
    life.verdict("j", "c1", "Pending")
    life.verdict("j", "c2", "Ready")
    life.settle()
    assert len(life.preempted()) == 2


@pytest.mark.scenario("A12")
def test_where_no_check_defers_victims_stop_while_the_checks_judge() -> None:
    life = two_victims(c1="Anytime", c2="Anytime")
    assert len(life.preempted()) == 2
    assert life.phases("j", "v1", "v2") == ["QuotaReserved", "Evicting", "Evicting"]
    for name in ("c1", "c2"):
        life.verdict("j", name, "Ready")
    life.settle()
    assert life.phase("j") == "QuotaReserved"
    for name in ("v1", "v2"):
        life.stop(name)
    life.settle()
    assert life.phase("j") == "Admitted"


@pytest.mark.scenario("A13")
def test_a_planner_and_its_victims_can_be_preempted() -> None:
    life = two_victims(c=DEFERS)
    life.submit("k", "cq", "10", priority=2)
    life.settle()
    assert life.phases("k", "j", "v1", "v2") == [
        "QuotaReserved",
        "QuotaReserved",
        "Admitted",
        "Admitted",
    ]
    assert victims(life, "k") == ["j", "v1", "v2"]
    assert used(life) == 10
    life.verdict("k", "c", "Ready")
    life.settle()
    assert life.phases("k", "j", "v1") == ["QuotaReserved", "Pending", "Evicting"]
    for name in ("v1", "v2"):
        life.stop(name)
    life.settle()
    assert life.phases("k", "j") == ["Admitted", "Pending"]
    assert used(life) == 10


@pytest.mark.scenario("A13")
def test_a_planner_without_deferring_checks_is_preempted_at_once() -> None:
    life = two_victims(c="Anytime")
    life.submit("k", "cq", "10", priority=2)
    life.settle()
    assert life.phases("k", "j", "v1") == ["QuotaReserved", "Pending", "Evicting"]
    assert ("j", "k") in life.preempted()
    for name in ("v1", "v2"):
        life.stop(name)
    life.settle()
    life.verdict("k", "c", "Ready")
    life.settle()
    assert life.phases("k", "j") == ["Admitted", "Pending"]


@pytest.mark.scenario("A15")
def test_a_victim_that_finishes_by_itself_is_not_evicted() -> None:
    life = two_victims(c=DEFERS)
    life.finish("v1")
    life.settle()
    assert victims(life) == ["v2"]
    life.verdict("j", "c", "Ready")
    life.settle()
    assert life.preempted() == [("v2", "j")]
    life.stop("v2")
    life.settle()
    assert life.phase("j") == "Admitted"


@pytest.mark.scenario("A15")
def test_a_plan_that_can_succeed_no_longer_is_given_up() -> None:
    life = two_victims(c=DEFERS)
    life.say(facts.Reprioritized, "v1", priority=5)
    life.settle()
    assert life.revoked() == [("j", "QuotaChanged")]
    assert life.phases("j", "v1", "v2") == ["Pending", "Admitted", "Admitted"]
    assert life.preempted() == []


@pytest.mark.scenario("A26")
def test_a_planned_victim_that_is_protected_now_is_replaced() -> None:
    life = a_life(c=DEFERS)
    run(life, "v1", "4", priority=-2)
    run(life, "v2", "4", priority=-2)
    life.queue("cq", resourceGroups=groups(default="12"), preemption=LOWER)
    run(life, "other", "4", priority=-1)
    ask(life, "c", nominal="12")
    life.submit("j", "cq", "8", priority=1)
    life.settle()
    assert victims(life) == ["v1", "v2"]
    life.say(facts.Reprioritized, "v1", priority=5)
    life.verdict("j", "c", "Ready")
    life.settle()
    assert sorted(life.preempted()) == [("other", "j"), ("v2", "j")]
    assert life.phases("j", "v1") == ["Admitted", "Admitted"]


@pytest.mark.scenario("A25")
def test_without_planned_victims_none_are_preempted_on_demand() -> None:
    life = a_life(c=DEFERS)
    run(life, "v", "5", priority=-1)
    ask(life, "c")
    life.submit("j", "cq", "5", priority=1)
    life.settle()
    life.verdict("j", "c", "Pending", reason="PreemptionRequired", message="quota first")
    life.settle()
    assert life.preempted() == []
    assert life.stored("j").status.admission_checks[0].message == "quota first"
    life.verdict("j", "c", "Ready")
    life.settle()
    assert life.phases("v", "j") == ["Admitted", "Admitted"]


def test_two_plans_do_not_count_on_the_same_quota() -> None:
    life = two_victims(c=DEFERS)
    life.submit("j2", "cq", "5", priority=1)
    life.settle()
    assert life.phase("j2") == "Pending"
    life.submit("small", "cq", "1", priority=-1)
    life.settle()
    assert life.phase("small") == "Pending"


def test_quota_of_a_victim_beyond_a_plan_is_free_for_another_plan() -> None:
    life = a_life(c=DEFERS)
    run(life, "v", "10", priority=-1)
    life.stubborn.add("v")
    ask(life, "c")
    life.submit("j1", "cq", "6", priority=1)
    life.settle()
    life.submit("j2", "cq", "4", priority=1)
    life.submit("j3", "cq", "1", priority=1)
    life.settle()
    assert life.phases("j1", "j2", "j3") == ["QuotaReserved", "QuotaReserved", "Pending"]
    assert used(life) == 10
    life.verdict("j2", "c", "Ready")
    life.settle()
    life.stop("v")
    life.settle()
    assert life.phases("j1", "j2") == ["QuotaReserved", "Admitted"]
    life.verdict("j1", "c", "Ready")
    life.settle()
    assert life.phases("j1", "j2", "v") == ["Admitted", "Admitted", "Pending"]


def test_of_planner_and_victims_the_larger_amount_counts() -> None:
    life = a_life(c=DEFERS)
    run(life, "v", "10", priority=-1)
    ask(life, "c")
    life.submit("j", "cq", "6", priority=1)
    life.settle()
    assert used(life) == 10
    life.finish("v")
    life.settle()
    assert used(life) == 6


def test_a_new_leader_continues_a_planned_preemption() -> None:
    life = two_victims(c=DEFERS)
    life.verdict("j", "c", "Ready")
    told = life.cycle(apply=False)
    assert {type(one) for one in told} == {facts.Planned, facts.Preempted}
    # Only the first of them reached the log.
    life.apply(told[0])
    life.restart()
    assert used(life) == 10
    life.settle()
    assert life.phases("v1", "v2") == ["Evicting", "Evicting"]
    for name in ("v1", "v2"):
        life.stop(name)
    life.settle()
    assert life.phase("j") == "Admitted"


def test_a_decision_that_the_log_refused_is_repeated() -> None:
    life = two_victims(c=DEFERS)
    life.verdict("j", "c", "Ready")
    before = used(life)
    for one in life.cycle(apply=False):
        life.core.forget(one.namespace, one.name, one.revision)
    assert used(life) == before
    life.settle()
    assert life.phases("v1", "v2") == ["Evicting", "Evicting"]


def test_undone_a_reservation_with_a_plan_leaves_no_trace() -> None:
    life = a_life(c=DEFERS)
    run(life, "v", "10", priority=-1)
    ask(life, "c")
    life.submit("j", "cq", "6", priority=1)
    (one,) = life.cycle(apply=False)
    assert isinstance(one, facts.Assigned) and one.pending_preemption is not None
    assert used(life) == 10
    life.core.forget("ns", "j", one.revision)
    world = life.core._state
    assert (used(life), world.planners_by_victim, world.planning_domains) == (10, {}, {})
    life.settle()
    assert life.phase("j") == "QuotaReserved"


def test_a_victim_with_a_new_reservation_leaves_the_plan() -> None:
    life = two_victims(c=DEFERS)
    life.stubborn.clear()
    life.say(facts.Deactivated, "v1")
    life.say(facts.Activated, "v1")
    life.settle()
    assert (life.phase("v1"), victims(life)) == ("Pending", ["v2"])


def test_planned_quota_counts_per_queue_and_its_maximum_in_the_cohort() -> None:
    life = Life()
    a_check(life, "c", DEFERS)
    life.queue("lender", "co", resourceGroups=groups(default="6"), preemption=RECLAIM)
    life.queue("borrower", "co", resourceGroups=groups(default=quota("4", borrow="6")))
    run(life, "v", "10", queue="borrower")
    life.stubborn.add("v")
    life.queue(
        "lender",
        "co",
        resourceGroups=groups(default="6"),
        preemption=RECLAIM,
        admissionChecks=["c"],
    )
    life.submit("j", "lender", "5")
    life.settle()
    assert (life.phase("j"), victims(life)) == ("QuotaReserved", ["v"])
    tree = life.core.catalog.tree
    root = tree.cohorts["co"].cell(("default", "cpu"))
    assert (used(life, "lender"), used(life, "borrower"), root.usage // 1000) == (5, 10, 10)
    life.submit("w", "borrower", "1")
    life.settle()
    assert life.phase("w") == "Pending"
    life.verdict("j", "c", "Ready")
    life.settle()
    life.stop("v")
    life.settle()
    assert life.phases("j", "v", "w") == ["Admitted", "Pending", "Admitted"]
    assert root.usage // 1000 == 6


def test_quota_that_is_not_lent_under_a_plan_counts_as_used() -> None:
    life = Life()
    a_check(life, "c", DEFERS)
    spec: dict[str, Any] = {"resourceGroups": groups(default="10"), "preemption": RECLAIM}
    life.queue("lender", "co", **spec)
    life.queue("borrower", "co", resourceGroups=groups(default="5"))
    run(life, "a", "3", queue="lender")
    run(life, "v", "9", queue="borrower")
    life.queue("lender", "co", admissionChecks=["c"], **spec)
    life.submit("j", "lender", "7")
    life.settle()
    assert life.phase("j") == "QuotaReserved"
    spec["resourceGroups"] = groups(default=quota("10", lend="4"))
    life.queue("lender", "co", admissionChecks=["c"], **spec)
    life.settle()
    root = life.core.catalog.tree.cohorts["co"].cell(("default", "cpu"))
    assert root.usage // 1000 == 9
    # Less of what it has reserved comes from the cohort now, and no more is free there.
    life.finish("a")
    life.settle()
    assert root.usage // 1000 == 9
    life.finish("v")
    life.settle()
    assert root.usage // 1000 == 1


@pytest.mark.parametrize("nominal", ["9", "6"])
def test_a_plan_shrinks_to_the_quota_left_by_a_cut(nominal: str) -> None:
    life = two_victims(c=DEFERS)
    ask(life, "c", nominal=nominal)
    life.settle()
    assert life.phase("j") == "Pending"
    assert life.phases("v1", "v2") == ["Admitted", "Admitted"]
    assert used(life) == 10


def test_usage_of_victims_above_a_cut_quota_is_not_the_planners() -> None:
    life = a_life(c=DEFERS)
    run(life, "v1", "5", priority=-1)
    run(life, "v2", "5", priority=-1)
    ask(life, "c")
    life.submit("j", "cq", "3", priority=1)
    life.settle()
    ask(life, "c", nominal="9")
    life.settle()
    assert (life.phase("j"), life.revoked()) == ("QuotaReserved", [])
    life.verdict("j", "c", "Ready")
    life.settle()
    assert life.phase("j") == "Admitted"
    assert sorted(life.phases("v1", "v2")) == ["Admitted", "Pending"]


def test_an_unrelated_edit_does_not_change_a_plan() -> None:
    life = two_victims(c=DEFERS)
    ask(life, "c", nominal="12")
    life.settle()
    assert (life.phase("j"), used(life)) == ("QuotaReserved", 10)
    life.submit("w", "cq", "2", priority=-1)
    life.settle()
    assert (life.phase("w"), used(life)) == ("QuotaReserved", 12)


def test_as_kueue_victims_are_evicted_first() -> None:
    life = a_life(config=Config(as_kueue=True), c=DEFERS)
    run(life, "v", "10", priority=-1)
    ask(life, "c")
    life.submit("j", "cq", "10", priority=1)
    life.settle()
    assert life.preempted() == [("v", "j")]
    assert life.phase("j") == "QuotaReserved"


def test_a_planner_is_explained_with_its_checks_and_victims() -> None:
    life = two_victims(c=DEFERS)
    why = life.core.explain("ns", "j", now=life.now)
    assert (why.phase, [one.name for one in why.checks]) == ("QuotaReserved", ["c"])
    assert "it will then preempt 2 workloads: ns/v" in why.message
    assert why.waits_for == ()
    life.verdict("j", "c", "Ready")
    life.settle()
    why = life.core.explain("ns", "j", now=life.now)
    assert sorted(one.name for one in why.waits_for) == ["v1", "v2"]
    for name in ("v1", "v2"):
        life.finish(name)
    assert "waits for the recheck" in life.core.explain("ns", "j", now=life.now).message


@pytest.mark.scenario("F10")
def test_a_priority_lowered_below_a_waiting_workload_makes_a_victim() -> None:
    life = a_life()
    run(life, "runs", "10", priority=5)
    life.submit("waits", "cq", "10", priority=3)
    life.settle()
    life.say(facts.Reprioritized, "runs", priority=4)
    life.settle()
    assert life.preempted() == []
    life.say(facts.Reprioritized, "runs", priority=1)
    life.settle()
    assert life.preempted() == [("runs", "waits")]
    assert life.phase("waits") == "Admitted"


def test_below_a_lending_limit_victims_stop_before_the_reservation() -> None:
    life = Life()
    a_check(life, "c", DEFERS)
    spec: dict[str, Any] = {
        "resourceGroups": groups(default=quota("4", lend="1")),
        "preemption": LOWER,
    }
    life.queue("b", "co", resourceGroups=groups(default="2"))
    life.queue("a", "co", **spec)
    run(life, "v", "4", queue="a", priority=-1)
    life.queue("a", "co", admissionChecks=["c"], **spec)
    life.stubborn.add("v")
    life.submit("j", "a", "4", priority=1)
    life.settle()
    assert life.preempted() == [("v", "j")]
    assert life.phases("j", "v") == ["Pending", "Evicting"]
    life.stop("v")
    life.settle()
    assert life.phases("j", "v") == ["QuotaReserved", "Pending"]
    assert victims(life) == []
