"""Two-stage admission with preemption: when victims are evicted. LIFECYCLE 2.7, 2.8, 7.1."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import facts

from long_living import LongLife, a_long_life

scenario = pytest.mark.scenario
AFTER = {"preemptionPolicy": "AfterCheckPassedOrOnDemand"}
LOWER = {"withinClusterQueue": "LowerPriority"}


def a_town(checks: dict[str, dict[str, Any]], *, nominal: str = "4", low: int = 2) -> LongLife:
    """A queue full of victims of two cpu each, and ``j``, which needs the room of two of them.

    The victims run before the queue has any check.
    """
    life = a_long_life(nominal=nominal, preemption=LOWER)
    for number in range(low):
        life.submit(f"v{number + 1}", "cq", "2", age=100 - number)
    life.go()
    for name, spec in checks.items():
        life.check(name, **spec)
    spec = life.spec("ClusterQueue", "cq")
    life.put("ClusterQueue", "cq", {**spec, "admissionChecks": list(checks)})
    life.go()
    life.submit("j", "cq", "4", priority=10)
    life.go()
    return life


def planned(life: LongLife) -> set[str]:
    """The workloads that ``j`` plans to preempt, or waits for."""
    pending = life.stored("j").status.pending_preemption
    return {one.name for one in pending.victims} if pending is not None else set()


@scenario("A9")
def test_victims_run_on_until_the_deferring_check_has_passed() -> None:
    life = a_town({"c1": AFTER})
    assert life.phases("j", "v1", "v2") == ["QuotaReserved", "Admitted", "Admitted"]
    assert life.states("j") == {"c1": "Pending"}
    assert planned(life) == {"v1", "v2"}
    life.advance(3600)
    assert life.phases("j", "v1", "v2") == ["QuotaReserved", "Admitted", "Admitted"]
    assert not life.preempted()
    life.stubborn |= {"v1", "v2"}
    life.judge("j", "c1", "Ready")
    assert life.phases("j", "v1", "v2") == ["QuotaReserved", "Evicting", "Evicting"]
    assert life.evicted_for("v1") == life.evicted_for("v2") == ["Preempted"]
    life.stop("v1")
    life.go()
    assert life.phase("j") == "QuotaReserved", "the second one still runs"
    life.advance(10)
    life.stop("v2")
    life.go()
    assert life.phase("j") == "Admitted"
    assert life.starts("j") == 1
    assert life.phases("v1", "v2") == ["Pending", "Pending"]
    assert not planned(life)


@scenario("A9")
def test_quota_of_a_deferred_reservation_goes_to_no_other_workload() -> None:
    life = a_town({"c1": AFTER})
    life.submit("other", "cq", "2", priority=5)
    life.go()
    life.finish("v1")
    life.go()
    assert life.phases("j", "other") == ["QuotaReserved", "Pending"]
    life.judge("j", "c1", "Ready")
    assert life.phases("j", "v2", "other") == ["Admitted", "Pending", "Pending"]


@scenario("A10")
def test_a_pending_verdict_can_evict_the_victims_at_once() -> None:
    life = a_town({"c1": AFTER})
    life.judge("j", "c1", "Pending", reason="PreemptionRequired", message="needs the room")
    assert life.evicted_for("v1") == life.evicted_for("v2") == ["Preempted"]
    assert life.phases("j", "v1", "v2") == ["QuotaReserved", "Pending", "Pending"]
    assert life.states("j") == {"c1": "Pending"}
    assert life.starts("j") == 0
    life.advance(3600)
    assert life.phase("j") == "QuotaReserved"
    life.judge("j", "c1", "Ready")
    assert life.phase("j") == "Admitted"


@scenario("A10")
@pytest.mark.parametrize("check", ["c1", "c2"], ids=["the Anytime one", "the deferring one"])
def test_any_check_may_ask_for_early_preemption(check: str) -> None:
    life = a_town({"c1": {}, "c2": AFTER})
    assert not life.preempted()
    life.judge("j", check, "Pending", reason="PreemptionRequired")
    assert sorted(life.preempted()) == [("v1", "j"), ("v2", "j")]
    assert life.phase("j") == "QuotaReserved"


@scenario("A10")
@pytest.mark.parametrize("state", ["Ready", "Retry"])
def test_the_reason_for_early_preemption_counts_only_while_pending(state: str) -> None:
    life = a_town({"c1": AFTER, "c2": AFTER})
    life.judge("j", "c1", state, reason="PreemptionRequired")
    assert life.rows("j")["c1"].reason == ""
    assert not life.preempted()


@scenario("A11")
def test_a_rejection_touches_no_victim() -> None:
    life = a_town({"c1": AFTER})
    life.judge("j", "c1", "Rejected")
    life.advance(3600)
    assert life.phases("j", "v1", "v2") == ["Rejected", "Admitted", "Admitted"]
    assert not life.preempted()
    assert not planned(life)
    assert (life.starts("v1"), life.starts("v2")) == (1, 1)


@scenario("A11")
def test_a_retry_touches_no_victim() -> None:
    life = a_town({"c1": AFTER})
    life.judge("j", "c1", "Retry", after=60)
    assert life.phases("j", "v1", "v2") == ["Backoff", "Admitted", "Admitted"]
    assert not planned(life)
    life.advance(60)
    assert life.phases("j", "v1", "v2") == ["QuotaReserved", "Admitted", "Admitted"]
    assert not life.preempted()


@scenario("A12")
def test_only_the_deferring_check_decides_when_preemption_starts() -> None:
    life = a_town({"c1": {}, "c2": AFTER})
    life.judge("j", "c1", "Ready")
    assert not life.preempted()
    assert life.phases("v1", "v2") == ["Admitted", "Admitted"]
    life = a_town({"c1": {}, "c2": AFTER})
    life.judge("j", "c2", "Ready")
    assert sorted(life.preempted()) == [("v1", "j"), ("v2", "j")]
    assert life.states("j") == {"c1": "Pending", "c2": "Ready"}
    assert life.phase("j") == "QuotaReserved"
    life.judge("j", "c1", "Ready")
    assert life.phase("j") == "Admitted"


@scenario("A12")
@pytest.mark.parametrize("slower", ["the checks", "the victims"])
def test_where_all_are_anytime_victims_go_at_once_and_checks_judge_meanwhile(slower: str) -> None:
    life = a_long_life(nominal="4", preemption=LOWER)
    life.submit("v1", "cq", "2", age=2)
    life.submit("v2", "cq", "2", age=1)
    life.go()
    life.stubborn |= {"v1", "v2"}
    life.check("c1")
    life.check("c2")
    spec = life.spec("ClusterQueue", "cq")
    life.put("ClusterQueue", "cq", {**spec, "admissionChecks": ["c1", "c2"]})
    life.submit("j", "cq", "4", priority=10)
    life.go()
    assert life.phases("j", "v1", "v2") == ["QuotaReserved", "Evicting", "Evicting"]
    assert len(life.requests("c1", "j")) == len(life.requests("c2", "j")) == 1

    def checks() -> None:
        life.judge("j", "c1", "Ready")
        life.judge("j", "c2", "Ready")

    def victims() -> None:
        life.stop("v1")
        life.go()
        life.stop("v2")
        life.go()

    first, second = (victims, checks) if slower == "the checks" else (checks, victims)
    first()
    life.advance(60)
    assert (life.phase("j"), life.starts("j")) == ("QuotaReserved", 0)
    second()
    assert (life.phase("j"), life.starts("j")) == ("Admitted", 1)


@scenario("A15")
def test_a_planned_victim_that_finishes_is_not_evicted() -> None:
    life = a_town({"c1": AFTER})
    life.finish("v1")
    life.go()
    assert planned(life) <= {"v1", "v2"}
    life.judge("j", "c1", "Ready")
    assert life.preempted() == [("v2", "j")]
    assert life.phase("j") == "Admitted"


@scenario("A15")
def test_no_workload_is_evicted_when_all_planned_victims_finished() -> None:
    life = a_town({"c1": AFTER})
    life.finish("v1")
    life.finish("v2")
    life.go()
    life.judge("j", "c1", "Ready")
    assert not life.preempted()
    assert life.phase("j") == "Admitted"


@scenario("A15")
@pytest.mark.parametrize("when", ["before Ready", "with Ready"])
def test_a_plan_that_cannot_succeed_releases_the_reservation(when: str) -> None:
    life = a_town({"c1": AFTER})
    life.say(facts.Reprioritized, "v1", priority=20)
    if when == "before Ready":
        life.go()
    if life.phase("j") == "QuotaReserved":
        life.judge("j", "c1", "Ready")
    life.go()
    assert life.phases("j", "v1", "v2") == ["Pending", "Admitted", "Admitted"]
    assert not life.evicted_for("v2"), "in vain"
    assert life.states("j") == {"c1": "Pending"}
    assert life.starts("j") == 0
    assert not planned(life)
    life.say(facts.Reprioritized, "v1", priority=0)
    life.go()
    assert life.phase("j") == "QuotaReserved"


@scenario("A25")
@pytest.mark.parametrize("policy", [{}, AFTER], ids=["Anytime", "deferring"])
def test_a_reservation_without_victims_evicts_no_workload(policy: dict[str, Any]) -> None:
    life = a_long_life(nominal="4", preemption=LOWER)
    life.submit("low", "cq", "2")
    life.go()
    life.check("c1", **policy)
    life.put("ClusterQueue", "cq", {**life.spec("ClusterQueue", "cq"), "admissionChecks": ["c1"]})
    life.submit("j", "cq", "2", priority=10)
    life.go()
    assert life.phase("j") == "QuotaReserved"
    life.judge("j", "c1", "Pending", reason="PreemptionRequired", message="elsewhere it is full")
    assert life.phases("j", "low") == ["QuotaReserved", "Admitted"]
    assert not life.preempted()
    row = life.rows("j")["c1"]
    assert (row.state, row.reason, row.message) == (
        "Pending", "PreemptionRequired", "elsewhere it is full",
    )  # fmt: skip
    life.judge("j", "c1", "Ready")
    assert (life.phase("j"), life.rows("j")["c1"].reason) == ("Admitted", "")


@scenario("A26")
def test_victims_are_selected_again_at_the_recheck() -> None:
    life = a_town({"c1": AFTER}, nominal="6", low=3)
    first = planned(life)
    assert len(first) == 2
    (other,) = {"v1", "v2", "v3"} - first
    risen, kept = sorted(first)
    life.say(facts.Reprioritized, risen, priority=20)
    life.answer("j", "c1", "Ready")
    life.go()
    assert {name for name, _ in life.preempted()} == {kept, other}
    assert life.phases("j", risen) == ["Admitted", "Admitted"]
    assert not life.evicted_for(risen)


@scenario("A9")
def test_two_deferred_reservations_plan_no_victim_for_the_same_room() -> None:
    life = a_town({"c1": AFTER})
    life.submit("k", "cq", "4", priority=10)
    life.go()
    life.advance(600)
    assert life.phases("j", "k") == ["QuotaReserved", "Pending"]
    life.judge("j", "c1", "Rejected")
    assert life.phases("k", "v1", "v2") == ["QuotaReserved", "Admitted", "Admitted"]
    assert not life.preempted()


@scenario("A9")
def test_two_deferred_reservations_with_room_for_both_plan_different_victims() -> None:
    life = a_town({"c1": AFTER}, nominal="8", low=4)
    life.submit("k", "cq", "4", priority=10)
    life.go()
    assert life.phases("j", "k") == ["QuotaReserved", "QuotaReserved"]
    life.judge("k", "c1", "Ready")
    assert life.phases("j", "k") == ["QuotaReserved", "Admitted"]
    assert len(life.preempted()) == 2
    life.judge("j", "c1", "Ready")
    assert life.phases("j", "k") == ["Admitted", "Admitted"]
    assert {name for name, _ in life.preempted()} == {"v1", "v2", "v3", "v4"}


@scenario("A13")
def test_a_preempted_workload_loses_its_planned_preemption() -> None:
    life = a_town({"c1": AFTER})
    life.submit("top", "cq", "4", priority=20)
    life.go()
    life.judge("top", "c1", "Ready")
    assert (life.phase("top"), life.starts("j")) == ("Admitted", 0)
    assert life.phase("j") == "Pending"
    assert not planned(life)
    assert life.usage("cq") == 4_000


@scenario("A12")
def test_a_check_pending_again_does_not_stop_a_started_preemption() -> None:
    life = a_town({"c1": AFTER})
    life.stubborn |= {"v1", "v2"}
    life.judge("j", "c1", "Ready")
    life.stop("v1")
    life.judge("j", "c1", "Pending", message="looking again")
    life.stop("v2")
    life.go()
    assert (life.phase("j"), life.starts("j")) == ("QuotaReserved", 0)
    life.judge("j", "c1", "Ready")
    assert (life.phase("j"), life.starts("j")) == ("Admitted", 1)


@scenario("A11")
def test_a_plan_that_loses_its_reservation_to_a_cut_evicts_no_victim() -> None:
    life = a_town({"c1": AFTER})
    spec = life.spec("ClusterQueue", "cq")
    life.put("ClusterQueue", "cq", {**spec, "stopPolicy": "Hold"})
    life.go()
    assert life.phases("j", "v1", "v2") == ["Pending", "Admitted", "Admitted"]
    assert not planned(life)
    life.put("ClusterQueue", "cq", spec)
    life.go()
    assert life.phase("j") == "QuotaReserved"
    assert planned(life) == {"v1", "v2"}
    assert not life.preempted()
