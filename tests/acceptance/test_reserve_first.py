"""Two-stage admission with preemption: when victims are evicted. docs/spec/lifecycle.md#2.7, #2.8,
#7.1."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import facts
from support.cores.timed_cores import TimedCores, cores_with_queue

scenario = pytest.mark.scenario
AFTER = {"preemptionPolicy": "AfterCheckPassedOrOnDemand"}
LOWER = {"withinClusterQueue": "LowerPriority"}


def a_town(checks: dict[str, dict[str, Any]], *, nominal: str = "4", low: int = 2) -> TimedCores:
    """A queue full of victims of two cpu each, and ``j``, which needs the room of two of them.

    The victims run before the queue has any check.
    """
    cores = cores_with_queue(nominal=nominal, preemption=LOWER)
    for number in range(low):
        cores.submit(f"v{number + 1}", "cq", "2", age=100 - number)
    cores.go()
    for name, spec in checks.items():
        cores.check(name, **spec)
    spec = cores.spec("ClusterQueue", "cq")
    cores.put("ClusterQueue", "cq", {**spec, "admissionChecks": list(checks)})
    cores.go()
    cores.submit("j", "cq", "4", priority=10)
    cores.go()
    return cores


def planned(cores: TimedCores) -> set[str]:
    """The workloads that ``j`` plans to preempt, or waits for."""
    pending = cores.stored("j").status.pending_preemption
    return {victim.name for victim in pending.victims} if pending is not None else set()


@scenario("A9")
def test_victims_run_on_until_the_deferring_check_has_passed() -> None:
    cores = a_town({"c1": AFTER})
    assert cores.phases("j", "v1", "v2") == ["QuotaReserved", "Admitted", "Admitted"]
    assert cores.states("j") == {"c1": "Pending"}
    assert planned(cores) == {"v1", "v2"}
    cores.advance(3600)
    assert cores.phases("j", "v1", "v2") == ["QuotaReserved", "Admitted", "Admitted"]
    assert not cores.preempted()
    cores.slow_jobs |= {"v1", "v2"}
    cores.report("j", "c1", "Ready")
    assert cores.phases("j", "v1", "v2") == ["QuotaReserved", "Evicting", "Evicting"]
    assert cores.evicted_for("v1") == cores.evicted_for("v2") == ["Preempted"]
    cores.stop("v1")
    cores.go()
    assert cores.phase("j") == "QuotaReserved", "the second one still runs"
    cores.advance(10)
    cores.stop("v2")
    cores.go()
    assert cores.phase("j") == "Admitted"
    assert cores.starts("j") == 1
    assert cores.phases("v1", "v2") == ["Pending", "Pending"]
    assert not planned(cores)


@scenario("A9")
def test_quota_of_a_deferred_reservation_goes_to_no_other_workload() -> None:
    cores = a_town({"c1": AFTER})
    cores.submit("other", "cq", "2", priority=5)
    cores.go()
    cores.finish("v1")
    cores.go()
    assert cores.phases("j", "other") == ["QuotaReserved", "Pending"]
    cores.report("j", "c1", "Ready")
    assert cores.phases("j", "v2", "other") == ["Admitted", "Pending", "Pending"]


@scenario("A10")
def test_a_pending_verdict_can_evict_the_victims_at_once() -> None:
    cores = a_town({"c1": AFTER})
    cores.report("j", "c1", "Pending", reason="PreemptionRequired", message="needs the room")
    assert cores.evicted_for("v1") == cores.evicted_for("v2") == ["Preempted"]
    assert cores.phases("j", "v1", "v2") == ["QuotaReserved", "Pending", "Pending"]
    assert cores.states("j") == {"c1": "Pending"}
    assert cores.starts("j") == 0
    cores.advance(3600)
    assert cores.phase("j") == "QuotaReserved"
    cores.report("j", "c1", "Ready")
    assert cores.phase("j") == "Admitted"


@scenario("A10")
@pytest.mark.parametrize("check", ["c1", "c2"], ids=["the Anytime one", "the deferring one"])
def test_any_check_may_ask_for_early_preemption(check: str) -> None:
    cores = a_town({"c1": {}, "c2": AFTER})
    assert not cores.preempted()
    cores.report("j", check, "Pending", reason="PreemptionRequired")
    assert sorted(cores.preempted()) == [("v1", "j"), ("v2", "j")]
    assert cores.phase("j") == "QuotaReserved"


@scenario("A10")
@pytest.mark.parametrize("state", ["Ready", "Retry"])
def test_the_reason_for_early_preemption_counts_only_while_pending(state: str) -> None:
    cores = a_town({"c1": AFTER, "c2": AFTER})
    cores.report("j", "c1", state, reason="PreemptionRequired")
    assert cores.rows("j")["c1"].reason == ""
    assert not cores.preempted()


@scenario("A11")
def test_a_rejection_touches_no_victim() -> None:
    cores = a_town({"c1": AFTER})
    cores.report("j", "c1", "Rejected")
    cores.advance(3600)
    assert cores.phases("j", "v1", "v2") == ["Rejected", "Admitted", "Admitted"]
    assert not cores.preempted()
    assert not planned(cores)
    assert (cores.starts("v1"), cores.starts("v2")) == (1, 1)


@scenario("A11")
def test_a_retry_touches_no_victim() -> None:
    cores = a_town({"c1": AFTER})
    cores.report("j", "c1", "Retry", after=60)
    assert cores.phases("j", "v1", "v2") == ["Backoff", "Admitted", "Admitted"]
    assert not planned(cores)
    cores.advance(60)
    assert cores.phases("j", "v1", "v2") == ["QuotaReserved", "Admitted", "Admitted"]
    assert not cores.preempted()


@scenario("A12")
def test_only_the_deferring_check_decides_when_preemption_starts() -> None:
    cores = a_town({"c1": {}, "c2": AFTER})
    cores.report("j", "c1", "Ready")
    assert not cores.preempted()
    assert cores.phases("v1", "v2") == ["Admitted", "Admitted"]
    cores = a_town({"c1": {}, "c2": AFTER})
    cores.report("j", "c2", "Ready")
    assert sorted(cores.preempted()) == [("v1", "j"), ("v2", "j")]
    assert cores.states("j") == {"c1": "Pending", "c2": "Ready"}
    assert cores.phase("j") == "QuotaReserved"
    cores.report("j", "c1", "Ready")
    assert cores.phase("j") == "Admitted"


@scenario("A12")
@pytest.mark.parametrize("slower", ["the checks", "the victims"])
def test_where_all_are_anytime_victims_stop_at_once_while_checks_decide(slower: str) -> None:
    cores = cores_with_queue(nominal="4", preemption=LOWER)
    cores.submit("v1", "cq", "2", age=2)
    cores.submit("v2", "cq", "2", age=1)
    cores.go()
    cores.slow_jobs |= {"v1", "v2"}
    cores.check("c1")
    cores.check("c2")
    spec = cores.spec("ClusterQueue", "cq")
    cores.put("ClusterQueue", "cq", {**spec, "admissionChecks": ["c1", "c2"]})
    cores.submit("j", "cq", "4", priority=10)
    cores.go()
    assert cores.phases("j", "v1", "v2") == ["QuotaReserved", "Evicting", "Evicting"]
    assert len(cores.requests("c1", "j")) == len(cores.requests("c2", "j")) == 1

    def checks() -> None:
        cores.report("j", "c1", "Ready")
        cores.report("j", "c2", "Ready")

    def victims() -> None:
        cores.stop("v1")
        cores.go()
        cores.stop("v2")
        cores.go()

    first, second = (victims, checks) if slower == "the checks" else (checks, victims)
    first()
    cores.advance(60)
    assert (cores.phase("j"), cores.starts("j")) == ("QuotaReserved", 0)
    second()
    assert (cores.phase("j"), cores.starts("j")) == ("Admitted", 1)


@scenario("A15")
def test_a_planned_victim_that_finishes_is_not_evicted() -> None:
    cores = a_town({"c1": AFTER})
    cores.finish("v1")
    cores.go()
    assert planned(cores) <= {"v1", "v2"}
    cores.report("j", "c1", "Ready")
    assert cores.preempted() == [("v2", "j")]
    assert cores.phase("j") == "Admitted"


@scenario("A15")
def test_no_workload_is_evicted_when_all_planned_victims_finished() -> None:
    cores = a_town({"c1": AFTER})
    cores.finish("v1")
    cores.finish("v2")
    cores.go()
    cores.report("j", "c1", "Ready")
    assert not cores.preempted()
    assert cores.phase("j") == "Admitted"


@scenario("A15")
@pytest.mark.parametrize("when", ["before Ready", "with Ready"])
def test_a_plan_that_cannot_succeed_releases_the_reservation(when: str) -> None:
    cores = a_town({"c1": AFTER})
    cores.publish(facts.Reprioritized, "v1", priority=20)
    if when == "before Ready":
        cores.go()
    if cores.phase("j") == "QuotaReserved":
        cores.report("j", "c1", "Ready")
    cores.go()
    assert cores.phases("j", "v1", "v2") == ["Pending", "Admitted", "Admitted"]
    assert not cores.evicted_for("v2"), "in vain"
    assert cores.states("j") == {"c1": "Pending"}
    assert cores.starts("j") == 0
    assert not planned(cores)
    cores.publish(facts.Reprioritized, "v1", priority=0)
    cores.go()
    assert cores.phase("j") == "QuotaReserved"


@scenario("A25")
@pytest.mark.parametrize("policy", [{}, AFTER], ids=["Anytime", "deferring"])
def test_a_reservation_without_victims_evicts_no_workload(policy: dict[str, Any]) -> None:
    cores = cores_with_queue(nominal="4", preemption=LOWER)
    cores.submit("low", "cq", "2")
    cores.go()
    cores.check("c1", **policy)
    cores.put("ClusterQueue", "cq", {**cores.spec("ClusterQueue", "cq"), "admissionChecks": ["c1"]})
    cores.submit("j", "cq", "2", priority=10)
    cores.go()
    assert cores.phase("j") == "QuotaReserved"
    cores.report("j", "c1", "Pending", reason="PreemptionRequired", message="elsewhere it is full")
    assert cores.phases("j", "low") == ["QuotaReserved", "Admitted"]
    assert not cores.preempted()
    row = cores.rows("j")["c1"]
    assert (row.state, row.reason, row.message) == (
        "Pending", "PreemptionRequired", "elsewhere it is full",
    )  # fmt: skip
    cores.report("j", "c1", "Ready")
    assert (cores.phase("j"), cores.rows("j")["c1"].reason) == ("Admitted", "")


@scenario("A26")
def test_victims_are_selected_again_at_the_recheck() -> None:
    cores = a_town({"c1": AFTER}, nominal="6", low=3)
    first = planned(cores)
    assert len(first) == 2
    (other,) = {"v1", "v2", "v3"} - first
    risen, kept = sorted(first)
    cores.publish(facts.Reprioritized, risen, priority=20)
    cores.answer("j", "c1", "Ready")
    cores.go()
    assert {name for name, _ in cores.preempted()} == {kept, other}
    assert cores.phases("j", risen) == ["Admitted", "Admitted"]
    assert not cores.evicted_for(risen)


@scenario("A9")
def test_two_deferred_reservations_plan_no_victim_for_the_same_room() -> None:
    cores = a_town({"c1": AFTER})
    cores.submit("k", "cq", "4", priority=10)
    cores.go()
    cores.advance(600)
    assert cores.phases("j", "k") == ["QuotaReserved", "Pending"]
    cores.report("j", "c1", "Rejected")
    assert cores.phases("k", "v1", "v2") == ["QuotaReserved", "Admitted", "Admitted"]
    assert not cores.preempted()


@scenario("A9")
def test_two_deferred_reservations_with_room_for_both_plan_different_victims() -> None:
    cores = a_town({"c1": AFTER}, nominal="8", low=4)
    cores.submit("k", "cq", "4", priority=10)
    cores.go()
    assert cores.phases("j", "k") == ["QuotaReserved", "QuotaReserved"]
    cores.report("k", "c1", "Ready")
    assert cores.phases("j", "k") == ["QuotaReserved", "Admitted"]
    assert len(cores.preempted()) == 2
    cores.report("j", "c1", "Ready")
    assert cores.phases("j", "k") == ["Admitted", "Admitted"]
    assert {name for name, _ in cores.preempted()} == {"v1", "v2", "v3", "v4"}


@scenario("A13")
def test_a_preempted_workload_loses_its_planned_preemption() -> None:
    cores = a_town({"c1": AFTER})
    cores.submit("top", "cq", "4", priority=20)
    cores.go()
    cores.report("top", "c1", "Ready")
    assert (cores.phase("top"), cores.starts("j")) == ("Admitted", 0)
    assert cores.phase("j") == "Pending"
    assert not planned(cores)
    assert cores.usage("cq") == 4_000


@scenario("A12")
def test_a_check_pending_again_does_not_stop_a_started_preemption() -> None:
    cores = a_town({"c1": AFTER})
    cores.slow_jobs |= {"v1", "v2"}
    cores.report("j", "c1", "Ready")
    cores.stop("v1")
    cores.report("j", "c1", "Pending", message="looking again")
    cores.stop("v2")
    cores.go()
    assert (cores.phase("j"), cores.starts("j")) == ("QuotaReserved", 0)
    cores.report("j", "c1", "Ready")
    assert (cores.phase("j"), cores.starts("j")) == ("Admitted", 1)


@scenario("A11")
def test_a_plan_that_loses_its_reservation_to_a_cut_evicts_no_victim() -> None:
    cores = a_town({"c1": AFTER})
    spec = cores.spec("ClusterQueue", "cq")
    cores.put("ClusterQueue", "cq", {**spec, "stopPolicy": "Hold"})
    cores.go()
    assert cores.phases("j", "v1", "v2") == ["Pending", "Admitted", "Admitted"]
    assert not planned(cores)
    cores.put("ClusterQueue", "cq", spec)
    cores.go()
    assert cores.phase("j") == "QuotaReserved"
    assert planned(cores) == {"v1", "v2"}
    assert not cores.preempted()
