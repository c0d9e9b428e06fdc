"""Two-stage admission: quota first, then every check, and only then the start. LIFECYCLE 7.1."""

from __future__ import annotations

import pytest

from admittance.events import facts
from admittance.workload.stored import StoredWorkload, encode, head
from support.cores.scheduling_story import groups

from long_living import LongLife, a_long_life

scenario = pytest.mark.scenario
BOTH = ("c1", "c2")


def a_reserved(*checks: str, nominal: str = "10") -> LongLife:
    """One workload that holds quota and waits for its checks."""
    life = a_long_life(*checks, nominal=nominal)
    life.submit("w", "cq", "8")
    life.go()
    return life


def revisions_of(life: LongLife, name: str) -> list[StoredWorkload]:
    return [one for workload, one in life.revisions if workload == name and one is not None]


@scenario("A1")
def test_a_workload_that_fits_is_reserved_and_waits_for_all_its_checks() -> None:
    life = a_long_life(*BOTH)
    life.submit("w", "cq", "8")
    assert life.phase("w") == "Pending"
    assert life.states("w") == {"c1": "Pending", "c2": "Pending"}
    life.go()
    assert life.phase("w") == "QuotaReserved"
    assert life.reason("w", "QuotaReserved") == "True: QuotaReserved"
    admission = life.stored("w").status.admission
    assert admission is not None
    assert admission.cluster_queue == "cq"
    (place,) = admission.pod_set_assignments
    assert (place.flavors, place.resource_usage, place.count) == (
        {"cpu": "default"}, {"cpu": "8"}, 1,
    )  # fmt: skip
    assert life.states("w") == {"c1": "Pending", "c2": "Pending"}
    assert not life.reason("w", "Admitted").startswith("True")
    assert life.usage("cq") == 8_000
    assert life.starts("w") == 0


@scenario("A1")
def test_there_is_no_revision_with_a_reservation_and_without_the_rows() -> None:
    life = a_reserved(*BOTH)
    for one in revisions_of(life, "w"):
        if one.status.admission is not None:
            assert {row.name for row in one.status.admission_checks} == set(BOTH)


@scenario("A2")
@pytest.mark.parametrize("first", BOTH)
def test_it_is_admitted_with_the_last_check_and_not_before(first: str) -> None:
    life = a_reserved(*BOTH)
    (second,) = set(BOTH) - {first}
    life.judge("w", first, "Ready")
    assert life.phase("w") == "QuotaReserved"
    life.advance(86_400)
    assert life.phase("w") == "QuotaReserved"
    life.judge("w", second, "Ready")
    assert life.phase("w") == "Admitted"
    assert life.reason("w", "Admitted") == "True: Admitted"
    life.judge("w", second, "Ready")
    life.judge("w", first, "Ready")
    life.advance(60)
    assert life.starts("w") == 1


@scenario("A3")
def test_a_quota_cut_sends_a_reservation_back_and_it_comes_again_with_the_quota() -> None:
    life = a_reserved("c1")
    cycle = life.stored("w").status.admission_cycle
    life.queue("cq", resourceGroups=groups(default="5"), admissionChecks=["c1"])
    life.go()
    assert life.phase("w") == "Pending"
    assert life.reason("w", "QuotaReserved").startswith("False")
    assert life.reason("w", "Evicted") == ""
    assert life.stored("w").status.admission is None
    assert life.states("w") == {"c1": "Pending"}
    assert life.stored("w").status.admission_cycle == cycle + 1
    assert life.usage("cq") == 0
    assert [why for why, _ in life.withdrawn("c1", "w")] == ["QuotaChanged"]
    life.advance(3600)
    assert life.phase("w") == "Pending"
    life.queue("cq", resourceGroups=groups(default="8"), admissionChecks=["c1"])
    life.go()
    assert life.phase("w") == "QuotaReserved"
    assert life.requests("c1", "w")[-1].cycle == cycle + 1
    life.judge("w", "c1", "Ready")
    assert life.phase("w") == "Admitted"


@scenario("A3")
def test_a_cut_that_leaves_enough_takes_nothing_back() -> None:
    life = a_reserved("c1")
    before = encode(life.stored("w"))
    life.queue("cq", resourceGroups=groups(default="8"), admissionChecks=["c1"])
    life.go()
    assert encode(life.stored("w")) == before


FLAVORS = [
    pytest.param({"g": "10"}, "FlavorsChanged", id="is no longer offered"),
    pytest.param({"f": "5", "g": "10"}, "QuotaChanged", id="is no longer large enough"),
]


@scenario("A4")
@pytest.mark.parametrize("ready_first", [True, False], ids=["after Ready", "before Ready"])
@pytest.mark.parametrize(("offered", "reason"), FLAVORS)
def test_a_flavor_that_holds_no_longer_at_the_recheck_is_left_for_another(
    offered: dict[str, str], reason: str, ready_first: bool
) -> None:
    life = LongLife()
    life.put("ResourceFlavor", "f")
    life.put("ResourceFlavor", "g")
    life.check("c1")
    life.queue("cq", resourceGroups=groups(f="10", g="10"), admissionChecks=["c1"])
    life.submit("w", "cq", "8")
    life.go()
    assert life.flavor("w") == "f"
    # Nothing is decided in between: what is seen at the recheck is seen there first.
    if ready_first:
        life.answer("w", "c1", "Ready")
    life.queue("cq", resourceGroups=groups(**offered), admissionChecks=["c1"])
    if not ready_first:
        life.answer("w", "c1", "Ready")
    life.go()
    assert (life.phase("w"), life.flavor("w")) == ("QuotaReserved", "g")
    assert life.states("w") == {"c1": "Pending"}
    backs = [one for one in revisions_of(life, "w") if one.status.admission is None]
    assert life.starts("w") == 0
    assert backs[-1].status.admission_cycle == 1
    assert life.reason("w", "Requeued") == f"True: {reason}"
    life.judge("w", "c1", "Ready")
    assert (life.phase("w"), life.flavor("w")) == ("Admitted", "g")


@scenario("A4")
def test_a_better_flavor_that_became_free_moves_no_valid_reservation() -> None:
    life = LongLife()
    life.put("ResourceFlavor", "f")
    life.put("ResourceFlavor", "g")
    life.check("c1")
    life.queue("cq", resourceGroups=groups(f="5", g="10"), admissionChecks=["c1"])
    life.submit("w", "cq", "8")
    life.go()
    assert life.flavor("w") == "g"
    life.queue("cq", resourceGroups=groups(f="10", g="10"), admissionChecks=["c1"])
    life.go()
    life.judge("w", "c1", "Ready")
    assert (life.phase("w"), life.flavor("w"), life.starts("w")) == ("Admitted", "g", 1)


@scenario("A5")
@pytest.mark.parametrize("others", [(), ("c2",)], ids=["the only check", "one of two checks"])
def test_one_retry_suspends_it_and_frees_its_quota_at_once(others: tuple[str, ...]) -> None:
    life = a_reserved("c1", *others)
    for other in others:
        life.judge("w", other, "Ready")
    life.submit("next", "cq", "8")
    life.go()
    assert life.phases("w", "next") == ["QuotaReserved", "Pending"]
    life.answer("w", "c1", "Retry", message="not today", after=60)
    assert life.phase("w") == "Backoff"
    assert life.stored("w").status.admission is None
    assert life.usage("cq") == 0
    assert life.reason("w", "Evicted") == "True: AdmissionCheck"
    assert 'AdmissionCheck in Retry state: "c1" (not today)' in life.message("w", "Evicted")
    assert {why for why, _ in life.withdrawn("c1", "w")} == {"AdmissionCheck"}
    life.go()
    assert life.phases("w", "next") == ["Backoff", "QuotaReserved"]
    life.say(facts.Deleted, "next")
    life.advance(60)
    assert life.phase("w") == "QuotaReserved"
    assert set(life.states("w").values()) == {"Pending"}, "a Ready does not outlive what it judged"
    assert life.starts("w") == 0


@scenario("A5")
def test_without_a_delay_it_competes_again_at_once() -> None:
    life = a_reserved("c1")
    life.answer("w", "c1", "Retry")
    assert (life.phase("w"), life.usage("cq")) == ("Pending", 0)
    life.go()
    assert life.phase("w") == "QuotaReserved"
    assert len(life.requests("c1", "w")) == 2


@scenario("A6")
@pytest.mark.parametrize("others", [(), ("c2",)], ids=["the only check", "one of two checks"])
def test_one_rejection_is_the_end_of_it(others: tuple[str, ...]) -> None:
    life = a_reserved("c1", *others)
    for other in others:
        life.judge("w", other, "Ready")
    life.answer("w", "c1", "Rejected", message="never")
    assert life.phase("w") == "Rejected"
    assert not head(life.stored("w")).active
    assert life.reason("w", "Evicted") == "True: DeactivatedDueToAdmissionCheck"
    assert life.usage("cq") == 0
    assert life.states("w") == {"c1": "Rejected", **dict.fromkeys(others, "Pending")}
    (said,) = [one for one in life.said if isinstance(one, facts.Rejected)]
    assert said.reason == "AdmissionCheckRejected"
    assert '"c1"' in said.message
    assert "never" in said.message
    life.advance(8 * 86_400)
    assert life.phase("w") == "Rejected"
    assert not life.timers("w")
    assert life.starts("w") == 0
    assert life.reason("w", "DeactivationTarget") == ""


@scenario("A7")
def test_without_checks_it_is_admitted_in_the_write_that_reserves() -> None:
    life = a_long_life()
    life.submit("w", "cq", "8")
    life.go()
    assert life.phase("w") == "Admitted"
    assert life.reason("w", "QuotaReserved") == "True: QuotaReserved"
    for one in revisions_of(life, "w"):
        reserved = one.status.admission is not None
        assert reserved == any(c.type == "Admitted" for c in one.status.conditions)
    assert life.starts("w") == 1


@scenario("A8")
@pytest.mark.parametrize("runs", [False, True], ids=["admitted", "running"])
@pytest.mark.parametrize("verdict", ["Retry", "Rejected"])
def test_a_check_that_changes_its_mind_suspends_at_once_and_the_job_stops_first(
    verdict: str, runs: bool
) -> None:
    life = a_reserved(*BOTH)
    life.judge("w", "c1", "Ready")
    life.judge("w", "c2", "Ready")
    if runs:
        life.ready("w")
    life.advance(100)
    life.stubborn.add("w")
    more = {"after": 600} if verdict == "Retry" else {}
    life.judge("w", "c1", verdict, message="over budget", **more)
    assert life.phase("w") == ("Evicting" if verdict == "Retry" else "Rejected")
    assert life.usage("cq") == 8_000, "the job still runs"
    assert life.stored("w").status.admission is not None
    assert len(life.evicted_for("w")) == 1
    life.advance(20)
    life.stop("w")
    life.go()
    assert life.usage("cq") == 0
    assert life.story == [("started", "w", 0.0), ("stopped", "w", 120.0), ("freed", "w", 120.0)]
    if verdict == "Rejected":
        assert life.phase("w") == "Rejected"
        life.advance(86_400)
        assert life.phase("w") == "Rejected"
    else:
        assert (life.phase("w"), life.wait("w")) == ("Backoff", 580)
        life.at(699.9)
        assert life.phase("w") == "Backoff"
        life.at(700)
        assert life.phase("w") == "QuotaReserved"
        assert life.states("w") == {"c1": "Pending", "c2": "Pending"}
        assert life.counts("w") == {"c1": 1, "c2": 0}
    # Being turned off wipes the account.
    spent = None if verdict == "Rejected" else 120
    assert life.stored("w").status.accumulated_past_execution_time_seconds == spent


@scenario("A8")
def test_a_check_that_is_pending_again_evicts_no_workload() -> None:
    life = a_reserved("c1")
    life.judge("w", "c1", "Ready")
    life.judge("w", "c1", "Pending", message="looking again")
    assert life.phase("w") == "Admitted"
    assert life.rows("w")["c1"].message == "looking again"
    assert not life.evicted_for("w")


@scenario("A13")
def test_a_workload_that_waits_for_checks_can_be_preempted() -> None:
    life = a_long_life("c1", preemption={"withinClusterQueue": "LowerPriority"})
    life.submit("w", "cq", "8")
    life.go()
    life.judge("w", "c1", "Pending", message="judging")
    cycle = life.stored("w").status.admission_cycle
    life.submit("high", "cq", "8", priority=10)
    life.go()
    assert life.phases("w", "high") == ["Pending", "QuotaReserved"]
    assert life.reason("w", "QuotaReserved").startswith("False")
    assert life.reason("w", "Evicted") == "True: Preempted"
    assert life.reason("w", "Requeued") == "True: Preempted"
    assert life.stored("w").status.admission is None
    (row,) = life.rows("w").values()
    assert (row.state, row.retry_count) == ("Pending", 0)
    assert life.stored("w").status.admission_cycle == cycle + 1
    assert life.withdrawn("c1", "w") == [("Preempted", cycle)]
    assert life.usage("cq") == 8_000


@scenario("A14")
def test_workload_1001_waits_because_reservations_use_quota() -> None:
    life = a_long_life("c1", nominal="1000", queueingStrategy="BestEffortFIFO")
    for number in range(1000):
        life.submit(f"w-{number}", "cq", "1", age=2000 - number)
    life.go()
    assert {str(life.phase(f"w-{number}")) for number in range(1000)} == {"QuotaReserved"}
    life.submit("last", "cq", "1")
    life.go()
    life.advance(600)
    assert life.phase("last") == "Pending"
    assert life.reason("last", "QuotaReserved") == "False: WaitingForQuota"
    assert life.usage("cq") == 1_000_000
    life.answer("w-0", "c1", "Retry", after=60)
    life.go()
    assert life.phases("w-0", "last") == ["Backoff", "QuotaReserved"]


@scenario("A16")
@pytest.mark.parametrize("messages", [1, 3])
def test_a_ready_verdict_before_the_flavor_is_assigned_does_not_count(messages: int) -> None:
    life = a_long_life("c1")
    life.submit("first", "cq", "8")
    life.go()
    life.submit("w", "cq", "8")
    life.go()
    for _ in range(messages):
        early = life.answer("w", "c1", "Ready")
        assert early is not None
        assert early.outcome == "ignored"
    assert life.states("w") == {"c1": "Pending"}
    life.finish("first")
    life.go()
    assert life.phase("w") == "QuotaReserved"
    assert life.states("w") == {"c1": "Pending"}
    assert life.starts("w") == 0
    life.judge("w", "c1", "Ready")
    assert life.phase("w") == "Admitted"


@scenario("A18")
def test_an_added_check_leaves_admitted_workloads_alone() -> None:
    life = a_reserved("c1")
    life.judge("w", "c1", "Ready")
    life.check("c2")
    life.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["c1", "c2"])
    life.go()
    assert life.phase("w") == "Admitted"
    assert life.states("w") == {"c1": "Ready", "c2": "Pending"}
    life.advance(86_400)
    assert life.phase("w") == "Admitted"
    life.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["c2"])
    life.go()
    assert life.phase("w") == "Admitted"
    assert life.states("w") == {"c2": "Pending"}
    assert not life.evicted_for("w")


@scenario("A18")
def test_a_retry_of_a_check_that_was_added_later_evicts_all_the_same() -> None:
    life = a_reserved("c1")
    life.judge("w", "c1", "Ready")
    life.check("c2")
    life.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["c1", "c2"])
    life.go()
    life.judge("w", "c2", "Retry", after=60)
    assert (life.phase("w"), life.wait("w")) == ("Backoff", 60)


@scenario("A30")
def test_all_checks_of_a_thousand_workloads_are_requested_at_once() -> None:
    life = a_long_life(*BOTH, nominal="1000")
    for number in range(1000):
        life.submit(f"w-{number}", "cq", "1")
    life.go()
    for check in BOTH:
        asked = [one.name for one in life.requests(check)]
        assert len(asked) == len(set(asked)) == 1000
    first, second = ({one.name: one.revision for one in life.requests(check)} for check in BOTH)
    assert first == second, "both are asked by the write that reserves"
    # No order: of every second one the other check answers first.
    for number in range(1000):
        for check in BOTH if number % 2 else reversed(BOTH):
            life.answer(f"w-{number}", check, "Ready")
    life.go()
    assert {str(life.phase(f"w-{number}")) for number in range(1000)} == {"Admitted"}
    for number in range(0, 1000, 10):
        life.answer(f"w-{number}", BOTH[number // 10 % 2], "Retry", after=3600)
    life.go()
    waits = [number for number in range(1000) if life.phase(f"w-{number}") == "Backoff"]
    assert waits == list(range(0, 1000, 10))
