"""Reservations that are made before their victims have stopped (docs/spec/lifecycle.md#2.7)."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import facts
from admittance.scheduling.state.config import Config
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups, quota

LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}
RECLAIM: dict[str, Any] = {"reclaimWithinCohort": "Any", **LOWER}
DEFERS = "AfterCheckPassedOrOnDemand"


def a_check(cores: SteppedCores, name: str, policy: str) -> None:
    cores.put("AdmissionCheck", name, {"controllerName": f"ctl-{name}", "preemptionPolicy": policy})


def configured_cores(
    nominal: str = "10", config: Config | None = None, **checks: str
) -> SteppedCores:
    """One queue that requires these checks from now on and required none before."""
    cores = SteppedCores(config)
    for name, policy in checks.items():
        a_check(cores, name, policy)
    cores.queue("cq", resourceGroups=groups(default=nominal), preemption=LOWER)
    return cores


def run(cores: SteppedCores, name: str, cpu: str, *, queue: str = "cq", priority: int = 0) -> None:
    cores.submit(name, queue, cpu, priority=priority)
    cores.settle()
    assert cores.phase(name) == "Admitted"


def ask(cores: SteppedCores, *checks: str, nominal: str = "10") -> None:
    """Makes reservations require these checks."""
    cores.queue(
        "cq", resourceGroups=groups(default=nominal), preemption=LOWER, admissionChecks=list(checks)
    )


def two_victims(wants: str = "10", **checks: Any) -> SteppedCores:
    """Two workloads that run, and one that gets their quota once its checks pass."""
    cores = configured_cores(**checks)
    run(cores, "v1", "5", priority=-1)
    run(cores, "v2", "5", priority=-1)
    cores.slow_jobs.update({"v1", "v2"})
    ask(cores, *checks)
    cores.submit("j", "cq", wants, priority=1)
    cores.settle()
    assert cores.phase("j") == "QuotaReserved"
    return cores


def victims(cores: SteppedCores, name: str = "j") -> list[str]:
    pending = cores.stored(name).status.pending_preemption
    return sorted(victim.name for victim in pending.victims) if pending is not None else []


def used(cores: SteppedCores, queue: str = "cq") -> int:
    return cores.scheduler.catalog.tree.queues[queue].cell(("default", "cpu")).usage // 1000


@pytest.mark.scenario("A9")
def test_victims_run_on_until_the_check_that_defers_has_passed() -> None:
    cores = two_victims(c=DEFERS)
    assert victims(cores) == ["v1", "v2"]
    assert cores.phases("v1", "v2") == ["Admitted", "Admitted"]
    assert cores.preempted() == []
    assert used(cores) == 10
    cores.verdict("j", "c", "Ready")
    cores.settle()
    assert sorted(cores.preempted()) == [("v1", "j"), ("v2", "j")]
    assert cores.phases("j", "v1", "v2") == ["QuotaReserved", "Evicting", "Evicting"]
    cores.stop("v1")
    cores.settle()
    assert (cores.phase("j"), victims(cores)) == ("QuotaReserved", ["v2"])
    cores.stop("v2")
    cores.settle()
    assert cores.phase("j") == "Admitted"
    assert cores.stored("j").status.pending_preemption is None
    assert len(cores.preempted()) == 2


@pytest.mark.parametrize(
    ("checks", "runs_on"),
    [({"c": DEFERS}, True), ({"c": DEFERS, "d": "Anytime"}, True), ({"d": "Anytime"}, False)],
)
def test_victims_run_on_if_one_of_the_checks_defers(checks: dict[str, str], runs_on: bool) -> None:
    cores = two_victims(**checks)
    assert (cores.preempted() == []) is runs_on


@pytest.mark.scenario("A10")
def test_on_demand_the_victims_are_evicted_before_the_verdict() -> None:
    cores = two_victims(c=DEFERS)
    cores.verdict("j", "c", "Pending", reason="PreemptionRequired")
    cores.settle()
    for name in ("v1", "v2"):
        cores.stop(name)
    cores.settle()
    assert cores.phases("j", "v1", "v2") == ["QuotaReserved", "Pending", "Pending"]
    assert used(cores) == 10
    cores.verdict("j", "c", "Ready")
    cores.settle()
    assert cores.phase("j") == "Admitted"


@pytest.mark.scenario("A11")
@pytest.mark.parametrize("state", ["Rejected", "Retry"])
def test_a_rejecting_verdict_leaves_planned_victims_running(state: str) -> None:
    cores = two_victims(c=DEFERS)
    cores.verdict("j", "c", state, **({"requeue_after_seconds": 60} if state == "Retry" else {}))
    cores.settle()
    assert cores.phases("v1", "v2") == ["Admitted", "Admitted"]
    assert cores.phase("j") == ("Rejected" if state == "Rejected" else "Backoff")
    assert (cores.preempted(), used(cores)) == ([], 10)
    assert victims(cores) == []


@pytest.mark.scenario("A12")
def test_only_a_deferring_check_decides_when_victims_are_evicted() -> None:
    cores = two_victims(c1="Anytime", c2=DEFERS)
    cores.verdict("j", "c1", "Ready")
    cores.settle()
    assert cores.preempted() == []
    cores.verdict("j", "c1", "Pending")
    cores.verdict("j", "c2", "Ready")
    cores.settle()
    assert len(cores.preempted()) == 2


@pytest.mark.scenario("A12")
def test_where_no_check_defers_victims_stop_while_the_checks_decide() -> None:
    cores = two_victims(c1="Anytime", c2="Anytime")
    assert len(cores.preempted()) == 2
    assert cores.phases("j", "v1", "v2") == ["QuotaReserved", "Evicting", "Evicting"]
    for name in ("c1", "c2"):
        cores.verdict("j", name, "Ready")
    cores.settle()
    assert cores.phase("j") == "QuotaReserved"
    for name in ("v1", "v2"):
        cores.stop(name)
    cores.settle()
    assert cores.phase("j") == "Admitted"


@pytest.mark.scenario("A13")
def test_a_planner_and_its_victims_can_be_preempted() -> None:
    cores = two_victims(c=DEFERS)
    cores.submit("k", "cq", "10", priority=2)
    cores.settle()
    assert cores.phases("k", "j", "v1", "v2") == [
        "QuotaReserved",
        "QuotaReserved",
        "Admitted",
        "Admitted",
    ]
    assert victims(cores, "k") == ["j", "v1", "v2"]
    assert used(cores) == 10
    cores.verdict("k", "c", "Ready")
    cores.settle()
    assert cores.phases("k", "j", "v1") == ["QuotaReserved", "Pending", "Evicting"]
    for name in ("v1", "v2"):
        cores.stop(name)
    cores.settle()
    assert cores.phases("k", "j") == ["Admitted", "Pending"]
    assert used(cores) == 10


@pytest.mark.scenario("A13")
def test_a_planner_without_deferring_checks_is_preempted_at_once() -> None:
    cores = two_victims(c="Anytime")
    cores.submit("k", "cq", "10", priority=2)
    cores.settle()
    assert cores.phases("k", "j", "v1") == ["QuotaReserved", "Pending", "Evicting"]
    assert ("j", "k") in cores.preempted()
    for name in ("v1", "v2"):
        cores.stop(name)
    cores.settle()
    cores.verdict("k", "c", "Ready")
    cores.settle()
    assert cores.phases("k", "j") == ["Admitted", "Pending"]


@pytest.mark.scenario("A15")
def test_a_victim_that_finishes_by_itself_is_not_evicted() -> None:
    cores = two_victims(c=DEFERS)
    cores.finish("v1")
    cores.settle()
    assert victims(cores) == ["v2"]
    cores.verdict("j", "c", "Ready")
    cores.settle()
    assert cores.preempted() == [("v2", "j")]
    cores.stop("v2")
    cores.settle()
    assert cores.phase("j") == "Admitted"


@pytest.mark.parametrize("nominal", [12, 0], ids=["own", "borrowed"])
def test_a_planned_victim_is_spared_when_other_quota_has_become_free(nominal: int) -> None:
    cores = SteppedCores()
    a_check(cores, "c", DEFERS)
    queue: dict[str, Any] = {
        "resourceGroups": groups(default=str(nominal)),
        "preemption": RECLAIM | {"borrowWithinCohort": {"policy": "LowerPriority"}},
    }
    cores.queue("cq", "co", **queue)
    cores.queue("lender", "co", resourceGroups=groups(default=str(12 - nominal)))
    run(cores, "v1", "4", priority=-2)
    run(cores, "v2", "4", priority=-1)
    run(cores, "other", "4", priority=5)
    cores.queue("cq", "co", admissionChecks=["c"], **queue)
    cores.submit("j", "cq", "8", priority=1)
    cores.settle()
    assert victims(cores) == ["v1", "v2"]
    cores.finish("other")
    cores.verdict("j", "c", "Ready")
    cores.settle()
    assert cores.preempted() == [("v1", "j")]
    assert cores.phases("j", "v2") == ["Admitted", "Admitted"]


@pytest.mark.parametrize(("reclaim", "stays"), [("Any", True), ("LowerPriority", False)])
def test_a_victim_in_another_queue_stays_planned_if_it_may_be_reclaimed(
    reclaim: str, stays: bool
) -> None:
    cores = SteppedCores()
    a_check(cores, "c", DEFERS)
    cores.queue(
        "a",
        "co",
        resourceGroups=groups(default="5"),
        preemption={"reclaimWithinCohort": reclaim},
        admissionChecks=["c"],
    )
    cores.queue("b", "co", resourceGroups=groups(default="5"))
    for name in ("v1", "v2"):
        run(cores, name, "5", queue="b", priority=-1)
    cores.submit("j", "a", "5", priority=1)
    cores.settle()
    (planned,) = victims(cores)
    (other,) = {"v1", "v2"} - {planned}
    cores.publish(facts.Reprioritized, other, priority=-9)
    cores.publish(facts.Reprioritized, planned, priority=5)
    cores.settle()
    assert victims(cores) == [planned if stays else other]


@pytest.mark.scenario("A15")
def test_a_plan_that_can_succeed_no_longer_is_given_up() -> None:
    cores = two_victims(c=DEFERS)
    cores.publish(facts.Reprioritized, "v1", priority=5)
    cores.settle()
    assert cores.revoked() == [("j", "QuotaChanged")]
    assert cores.phases("j", "v1", "v2") == ["Pending", "Admitted", "Admitted"]
    assert cores.preempted() == []


@pytest.mark.scenario("A26")
def test_a_planned_victim_that_is_protected_now_is_replaced() -> None:
    cores = configured_cores(c=DEFERS)
    run(cores, "v1", "4", priority=-2)
    run(cores, "v2", "4", priority=-2)
    cores.queue("cq", resourceGroups=groups(default="12"), preemption=LOWER)
    run(cores, "other", "4", priority=-1)
    ask(cores, "c", nominal="12")
    cores.submit("j", "cq", "8", priority=1)
    cores.settle()
    assert victims(cores) == ["v1", "v2"]
    cores.publish(facts.Reprioritized, "v1", priority=5)
    cores.verdict("j", "c", "Ready")
    cores.settle()
    assert sorted(cores.preempted()) == [("other", "j"), ("v2", "j")]
    assert cores.phases("j", "v1") == ["Admitted", "Admitted"]


def test_a_victim_that_is_stopping_stays_the_only_one_when_it_is_protected_later() -> None:
    cores = two_victims(c="Anytime", wants="5")
    (going,) = victims(cores)
    cores.publish(facts.Reprioritized, going, priority=9)
    cores.settle()
    assert victims(cores) == [going]
    assert len(cores.preempted()) == 1


@pytest.mark.scenario("A25")
def test_without_planned_victims_none_are_preempted_on_demand() -> None:
    cores = configured_cores(c=DEFERS)
    run(cores, "v", "5", priority=-1)
    ask(cores, "c")
    cores.submit("j", "cq", "5", priority=1)
    cores.settle()
    cores.verdict("j", "c", "Pending", reason="PreemptionRequired", message="quota first")
    cores.settle()
    assert cores.preempted() == []
    assert cores.stored("j").status.admission_checks[0].message == "quota first"
    cores.verdict("j", "c", "Ready")
    cores.settle()
    assert cores.phases("v", "j") == ["Admitted", "Admitted"]


def test_two_plans_do_not_count_on_the_same_quota() -> None:
    cores = two_victims(c=DEFERS)
    cores.submit("j2", "cq", "5", priority=1)
    cores.settle()
    assert cores.phase("j2") == "Pending"
    cores.submit("small", "cq", "1", priority=-1)
    cores.settle()
    assert cores.phase("small") == "Pending"


def test_quota_of_a_victim_beyond_a_plan_is_free_for_another_plan() -> None:
    cores = configured_cores(c=DEFERS)
    run(cores, "v", "10", priority=-1)
    cores.slow_jobs.add("v")
    ask(cores, "c")
    cores.submit("j1", "cq", "6", priority=1)
    cores.settle()
    cores.submit("j2", "cq", "4", priority=1)
    cores.submit("j3", "cq", "1", priority=1)
    cores.settle()
    assert cores.phases("j1", "j2", "j3") == ["QuotaReserved", "QuotaReserved", "Pending"]
    assert used(cores) == 10
    cores.verdict("j2", "c", "Ready")
    cores.settle()
    cores.stop("v")
    cores.settle()
    assert cores.phases("j1", "j2") == ["QuotaReserved", "Admitted"]
    cores.verdict("j1", "c", "Ready")
    cores.settle()
    assert cores.phases("j1", "j2", "v") == ["Admitted", "Admitted", "Pending"]


def test_victims_serve_two_plans_where_neither_plan_needs_a_victim_alone() -> None:
    """The smallest case in which it matters which plan gets which victim's quota: the large plan
    must leave to the small one what it can get from the other victim (decision 64)."""
    cores = configured_cores("8", c=DEFERS)
    for name in ("v1", "v2"):
        run(cores, name, "4", priority=-1)
    ask(cores, "c", nominal="8")
    for name, cpu in (("large", "6"), ("small", "2"), ("none", "1")):
        cores.submit(name, "cq", cpu, priority=1)
        cores.settle()
    assert victims(cores, "large") == ["v1", "v2"]
    assert len(victims(cores, "small")) == 1
    assert cores.phases("large", "small", "none") == ["QuotaReserved", "QuotaReserved", "Pending"]
    assert used(cores) == 8
    for name in ("small", "large"):
        cores.verdict(name, "c", "Ready")
        cores.settle()
    assert cores.phases("large", "small", "v1", "v2") == ["Admitted"] * 2 + ["Pending"] * 2


def test_of_planner_and_victims_the_larger_amount_counts() -> None:
    cores = configured_cores(c=DEFERS)
    run(cores, "v", "10", priority=-1)
    ask(cores, "c")
    cores.submit("j", "cq", "6", priority=1)
    cores.settle()
    assert used(cores) == 10
    cores.finish("v")
    cores.settle()
    assert used(cores) == 6


def test_a_new_leader_continues_a_planned_preemption() -> None:
    cores = two_victims(c=DEFERS)
    cores.verdict("j", "c", "Ready")
    decisions = cores.cycle(apply=False)
    assert {type(decision) for decision in decisions} == {facts.Planned, facts.Preempted}
    # Only the first of them reached the log.
    cores.apply(decisions[0])
    cores.restart_scheduler()
    assert used(cores) == 10
    cores.settle()
    assert cores.phases("v1", "v2") == ["Evicting", "Evicting"]
    for name in ("v1", "v2"):
        cores.stop(name)
    cores.settle()
    assert cores.phase("j") == "Admitted"


def test_a_decision_that_the_log_refused_is_repeated() -> None:
    cores = two_victims(c=DEFERS)
    cores.verdict("j", "c", "Ready")
    workload = cores.scheduler._state.workloads["ns", "j"]
    before = used(cores), workload.pending_preemption
    decisions = cores.cycle(apply=False)
    assert workload.pending_preemption != before[1]
    for decision in decisions:
        cores.scheduler.forget(decision.namespace, decision.name, decision.revision)
    assert (used(cores), workload.pending_preemption) == before
    cores.settle()
    assert cores.phases("v1", "v2") == ["Evicting", "Evicting"]


def test_undone_a_reservation_with_a_plan_leaves_no_trace() -> None:
    cores = configured_cores(c=DEFERS)
    run(cores, "v", "10", priority=-1)
    ask(cores, "c")
    cores.submit("j", "cq", "6", priority=1)
    (decision,) = cores.cycle(apply=False)
    assert isinstance(decision, facts.Assigned) and decision.pending_preemption is not None
    assert used(cores) == 10
    cores.scheduler.forget("ns", "j", decision.revision)
    world = cores.scheduler._state
    assert (used(cores), world.planners_by_victim, world.planning_domains) == (10, {}, {})
    cores.settle()
    assert cores.phase("j") == "QuotaReserved"


def test_a_victim_with_a_new_reservation_leaves_the_plan() -> None:
    cores = two_victims(c=DEFERS)
    cores.slow_jobs.clear()
    cores.publish(facts.Deactivated, "v1")
    cores.publish(facts.Activated, "v1")
    cores.settle()
    assert (cores.phase("v1"), victims(cores)) == ("Pending", ["v2"])


def test_planned_quota_counts_per_queue_and_its_maximum_in_the_cohort() -> None:
    cores = SteppedCores()
    a_check(cores, "c", DEFERS)
    cores.queue("lender", "co", resourceGroups=groups(default="6"), preemption=RECLAIM)
    cores.queue("borrower", "co", resourceGroups=groups(default=quota("4", borrow="6")))
    run(cores, "v", "10", queue="borrower")
    cores.slow_jobs.add("v")
    cores.queue(
        "lender",
        "co",
        resourceGroups=groups(default="6"),
        preemption=RECLAIM,
        admissionChecks=["c"],
    )
    cores.submit("j", "lender", "5")
    cores.settle()
    assert (cores.phase("j"), victims(cores)) == ("QuotaReserved", ["v"])
    tree = cores.scheduler.catalog.tree
    root = tree.cohorts["co"].cell(("default", "cpu"))
    assert (used(cores, "lender"), used(cores, "borrower"), root.usage // 1000) == (5, 10, 10)
    cores.submit("w", "borrower", "1")
    cores.settle()
    assert cores.phase("w") == "Pending"
    cores.verdict("j", "c", "Ready")
    cores.settle()
    cores.stop("v")
    cores.settle()
    assert cores.phases("j", "v", "w") == ["Admitted", "Pending", "Admitted"]
    assert root.usage // 1000 == 6


def test_quota_that_is_not_lent_under_a_plan_counts_as_used() -> None:
    cores = SteppedCores()
    a_check(cores, "c", DEFERS)
    spec: dict[str, Any] = {"resourceGroups": groups(default="10"), "preemption": RECLAIM}
    cores.queue("lender", "co", **spec)
    cores.queue("borrower", "co", resourceGroups=groups(default="5"))
    run(cores, "a", "3", queue="lender")
    run(cores, "v", "9", queue="borrower")
    cores.queue("lender", "co", admissionChecks=["c"], **spec)
    cores.submit("j", "lender", "7")
    cores.settle()
    assert cores.phase("j") == "QuotaReserved"
    spec["resourceGroups"] = groups(default=quota("10", lend="4"))
    cores.queue("lender", "co", admissionChecks=["c"], **spec)
    cores.settle()
    root = cores.scheduler.catalog.tree.cohorts["co"].cell(("default", "cpu"))
    assert root.usage // 1000 == 9
    # Less of what it has reserved comes from the cohort now, and no more is free there.
    cores.finish("a")
    cores.settle()
    assert root.usage // 1000 == 9
    cores.finish("v")
    cores.settle()
    assert root.usage // 1000 == 1


@pytest.mark.parametrize("nominal", ["9", "6"])
def test_a_plan_shrinks_to_the_quota_left_by_a_cut(nominal: str) -> None:
    cores = two_victims(c=DEFERS)
    ask(cores, "c", nominal=nominal)
    cores.settle()
    assert cores.phase("j") == "Pending"
    assert cores.phases("v1", "v2") == ["Admitted", "Admitted"]
    assert used(cores) == 10


def test_usage_of_victims_above_a_cut_quota_is_not_the_planners() -> None:
    cores = configured_cores(c=DEFERS)
    run(cores, "v1", "5", priority=-1)
    run(cores, "v2", "5", priority=-1)
    ask(cores, "c")
    cores.submit("j", "cq", "3", priority=1)
    cores.settle()
    ask(cores, "c", nominal="9")
    cores.settle()
    assert (cores.phase("j"), cores.revoked()) == ("QuotaReserved", [])
    cores.verdict("j", "c", "Ready")
    cores.settle()
    assert cores.phase("j") == "Admitted"
    assert sorted(cores.phases("v1", "v2")) == ["Admitted", "Pending"]


def test_an_unrelated_edit_does_not_change_a_plan() -> None:
    cores = two_victims(c=DEFERS)
    ask(cores, "c", nominal="12")
    cores.settle()
    assert (cores.phase("j"), used(cores)) == ("QuotaReserved", 10)
    cores.submit("w", "cq", "2", priority=-1)
    cores.settle()
    assert (cores.phase("w"), used(cores)) == ("QuotaReserved", 12)


def test_as_kueue_victims_are_evicted_first() -> None:
    cores = configured_cores(config=Config(as_kueue=True), c=DEFERS)
    run(cores, "v", "10", priority=-1)
    ask(cores, "c")
    cores.submit("j", "cq", "10", priority=1)
    cores.settle()
    assert cores.preempted() == [("v", "j")]
    assert cores.phase("j") == "QuotaReserved"


def test_a_planner_is_explained_with_its_checks_and_victims() -> None:
    cores = two_victims(c=DEFERS)
    why = cores.scheduler.explain("ns", "j", now=cores.now)
    assert (why.phase, [check.name for check in why.checks]) == ("QuotaReserved", ["c"])
    assert "it will then preempt 2 workloads: ns/v" in why.message
    assert why.waits_for == ()
    cores.verdict("j", "c", "Ready")
    cores.settle()
    why = cores.scheduler.explain("ns", "j", now=cores.now)
    assert sorted(wait.name for wait in why.waits_for) == ["v1", "v2"]
    for name in ("v1", "v2"):
        cores.finish(name)
    assert "waits for the recheck" in cores.scheduler.explain("ns", "j", now=cores.now).message


@pytest.mark.scenario("F10")
def test_a_priority_lowered_below_a_waiting_workload_makes_a_victim() -> None:
    cores = configured_cores()
    run(cores, "runs", "10", priority=5)
    cores.submit("waits", "cq", "10", priority=3)
    cores.settle()
    cores.publish(facts.Reprioritized, "runs", priority=4)
    cores.settle()
    assert cores.preempted() == []
    cores.publish(facts.Reprioritized, "runs", priority=1)
    cores.settle()
    assert cores.preempted() == [("runs", "waits")]
    assert cores.phase("waits") == "Admitted"


def test_below_a_lending_limit_victims_stop_before_the_reservation() -> None:
    cores = SteppedCores()
    a_check(cores, "c", DEFERS)
    spec: dict[str, Any] = {
        "resourceGroups": groups(default=quota("4", lend="1")),
        "preemption": LOWER,
    }
    cores.queue("b", "co", resourceGroups=groups(default="2"))
    cores.queue("a", "co", **spec)
    run(cores, "v", "4", queue="a", priority=-1)
    cores.queue("a", "co", admissionChecks=["c"], **spec)
    cores.slow_jobs.add("v")
    cores.submit("j", "a", "4", priority=1)
    cores.settle()
    assert cores.preempted() == [("v", "j")]
    assert cores.phases("j", "v") == ["Pending", "Evicting"]
    cores.stop("v")
    cores.settle()
    assert cores.phases("j", "v") == ["QuotaReserved", "Pending"]
    assert victims(cores) == []
