"""Two-stage admission: quota first, then every check, and only then the start.
docs/spec/lifecycle.md#7.1."""

from __future__ import annotations

import pytest

from admittance.events import facts
from admittance.workload.stored import StoredWorkload, encode, head
from support.cores.stepped_scheduler import groups
from support.cores.timed_cores import TimedCores, cores_with_queue

scenario = pytest.mark.scenario
BOTH = ("c1", "c2")


def a_reserved(*checks: str, nominal: str = "10") -> TimedCores:
    """One workload that holds quota and waits for its checks."""
    cores = cores_with_queue(*checks, nominal=nominal)
    cores.submit("w", "cq", "8")
    cores.go()
    return cores


def revisions_of(cores: TimedCores, name: str) -> list[StoredWorkload]:
    return [
        revision
        for workload, revision in cores.revisions
        if workload == name and revision is not None
    ]


@scenario("A1")
def test_a_workload_that_fits_is_reserved_and_waits_for_all_its_checks() -> None:
    cores = cores_with_queue(*BOTH)
    cores.submit("w", "cq", "8")
    assert cores.phase("w") == "Pending"
    assert cores.states("w") == {"c1": "Pending", "c2": "Pending"}
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    assert cores.reason("w", "QuotaReserved") == "True: QuotaReserved"
    admission = cores.stored("w").status.admission
    assert admission is not None
    assert admission.cluster_queue == "cq"
    (place,) = admission.pod_set_assignments
    assert (place.flavors, place.resource_usage, place.count) == (
        {"cpu": "default"}, {"cpu": "8"}, 1,
    )  # fmt: skip
    assert cores.states("w") == {"c1": "Pending", "c2": "Pending"}
    assert not cores.reason("w", "Admitted").startswith("True")
    assert cores.usage("cq") == 8_000
    assert cores.starts("w") == 0


@scenario("A1")
def test_each_revision_with_a_reservation_has_the_rows() -> None:
    cores = a_reserved(*BOTH)
    for revision in revisions_of(cores, "w"):
        if revision.status.admission is not None:
            assert {row.name for row in revision.status.admission_checks} == set(BOTH)


@scenario("A2")
@pytest.mark.parametrize("first", BOTH)
def test_it_is_admitted_with_the_last_check_and_not_before(first: str) -> None:
    cores = a_reserved(*BOTH)
    (second,) = set(BOTH) - {first}
    cores.report("w", first, "Ready")
    assert cores.phase("w") == "QuotaReserved"
    cores.advance(86_400)
    assert cores.phase("w") == "QuotaReserved"
    cores.report("w", second, "Ready")
    assert cores.phase("w") == "Admitted"
    assert cores.reason("w", "Admitted") == "True: Admitted"
    cores.report("w", second, "Ready")
    cores.report("w", first, "Ready")
    cores.advance(60)
    assert cores.starts("w") == 1


@scenario("A3")
def test_a_quota_cut_sends_a_reservation_back_and_it_comes_again_with_the_quota() -> None:
    cores = a_reserved("c1")
    cycle = cores.stored("w").status.admission_cycle
    cores.queue("cq", resourceGroups=groups(default="5"), admissionChecks=["c1"])
    cores.go()
    assert cores.phase("w") == "Pending"
    assert cores.reason("w", "QuotaReserved").startswith("False")
    assert cores.reason("w", "Evicted") == ""
    assert cores.stored("w").status.admission is None
    assert cores.states("w") == {"c1": "Pending"}
    assert cores.stored("w").status.admission_cycle == cycle + 1
    assert cores.usage("cq") == 0
    assert [why for why, _ in cores.withdrawn("c1", "w")] == ["QuotaChanged"]
    cores.advance(3600)
    assert cores.phase("w") == "Pending"
    cores.queue("cq", resourceGroups=groups(default="8"), admissionChecks=["c1"])
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    assert cores.requests("c1", "w")[-1].cycle == cycle + 1
    cores.report("w", "c1", "Ready")
    assert cores.phase("w") == "Admitted"


@scenario("A3")
def test_a_cut_that_leaves_enough_takes_nothing_back() -> None:
    cores = a_reserved("c1")
    before = encode(cores.stored("w"))
    cores.queue("cq", resourceGroups=groups(default="8"), admissionChecks=["c1"])
    cores.go()
    assert encode(cores.stored("w")) == before


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
    cores = TimedCores()
    cores.put("ResourceFlavor", "f")
    cores.put("ResourceFlavor", "g")
    cores.check("c1")
    cores.queue("cq", resourceGroups=groups(f="10", g="10"), admissionChecks=["c1"])
    cores.submit("w", "cq", "8")
    cores.go()
    assert cores.flavor("w") == "f"
    # Nothing is decided in between: what is seen at the recheck is seen there first.
    if ready_first:
        cores.answer("w", "c1", "Ready")
    cores.queue("cq", resourceGroups=groups(**offered), admissionChecks=["c1"])
    if not ready_first:
        cores.answer("w", "c1", "Ready")
    cores.go()
    assert (cores.phase("w"), cores.flavor("w")) == ("QuotaReserved", "g")
    assert cores.states("w") == {"c1": "Pending"}
    backs = [revision for revision in revisions_of(cores, "w") if revision.status.admission is None]
    assert cores.starts("w") == 0
    assert backs[-1].status.admission_cycle == 1
    assert cores.reason("w", "Requeued") == f"True: {reason}"
    cores.report("w", "c1", "Ready")
    assert (cores.phase("w"), cores.flavor("w")) == ("Admitted", "g")


@scenario("A4")
def test_a_better_flavor_that_became_free_moves_no_valid_reservation() -> None:
    cores = TimedCores()
    cores.put("ResourceFlavor", "f")
    cores.put("ResourceFlavor", "g")
    cores.check("c1")
    cores.queue("cq", resourceGroups=groups(f="5", g="10"), admissionChecks=["c1"])
    cores.submit("w", "cq", "8")
    cores.go()
    assert cores.flavor("w") == "g"
    cores.queue("cq", resourceGroups=groups(f="10", g="10"), admissionChecks=["c1"])
    cores.go()
    cores.report("w", "c1", "Ready")
    assert (cores.phase("w"), cores.flavor("w"), cores.starts("w")) == ("Admitted", "g", 1)


@scenario("A5")
@pytest.mark.parametrize("others", [(), ("c2",)], ids=["the only check", "one of two checks"])
def test_one_retry_suspends_it_and_frees_its_quota_at_once(others: tuple[str, ...]) -> None:
    cores = a_reserved("c1", *others)
    for other in others:
        cores.report("w", other, "Ready")
    cores.submit("next", "cq", "8")
    cores.go()
    assert cores.phases("w", "next") == ["QuotaReserved", "Pending"]
    cores.answer("w", "c1", "Retry", message="not today", after=60)
    assert cores.phase("w") == "Backoff"
    assert cores.stored("w").status.admission is None
    assert cores.usage("cq") == 0
    assert cores.reason("w", "Evicted") == "True: AdmissionCheck"
    assert 'AdmissionCheck in Retry state: "c1" (not today)' in cores.message("w", "Evicted")
    assert {why for why, _ in cores.withdrawn("c1", "w")} == {"AdmissionCheck"}
    cores.go()
    assert cores.phases("w", "next") == ["Backoff", "QuotaReserved"]
    cores.publish(facts.Deleted, "next")
    cores.advance(60)
    assert cores.phase("w") == "QuotaReserved"
    assert set(cores.states("w").values()) == {"Pending"}, "a Ready does not outlive what it judged"
    assert cores.starts("w") == 0


@scenario("A5")
def test_without_a_delay_it_competes_again_at_once() -> None:
    cores = a_reserved("c1")
    cores.answer("w", "c1", "Retry")
    assert (cores.phase("w"), cores.usage("cq")) == ("Pending", 0)
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    assert len(cores.requests("c1", "w")) == 2


@scenario("A6")
@pytest.mark.parametrize("others", [(), ("c2",)], ids=["the only check", "one of two checks"])
def test_one_rejection_is_the_end_of_it(others: tuple[str, ...]) -> None:
    cores = a_reserved("c1", *others)
    for other in others:
        cores.report("w", other, "Ready")
    cores.answer("w", "c1", "Rejected", message="never")
    assert cores.phase("w") == "Rejected"
    assert not head(cores.stored("w")).active
    assert cores.reason("w", "Evicted") == "True: DeactivatedDueToAdmissionCheck"
    assert cores.usage("cq") == 0
    assert cores.states("w") == {"c1": "Rejected", **dict.fromkeys(others, "Pending")}
    (said,) = [fact for fact in cores.published if isinstance(fact, facts.Rejected)]
    assert said.reason == "AdmissionCheckRejected"
    assert '"c1"' in said.message
    assert "never" in said.message
    cores.advance(8 * 86_400)
    assert cores.phase("w") == "Rejected"
    assert not cores.waits_for("w")
    assert cores.starts("w") == 0
    assert cores.reason("w", "DeactivationTarget") == ""


@scenario("A7")
def test_without_checks_it_is_admitted_in_the_write_that_reserves() -> None:
    cores = cores_with_queue()
    cores.submit("w", "cq", "8")
    cores.go()
    assert cores.phase("w") == "Admitted"
    assert cores.reason("w", "QuotaReserved") == "True: QuotaReserved"
    for revision in revisions_of(cores, "w"):
        reserved = revision.status.admission is not None
        assert reserved == any(c.type == "Admitted" for c in revision.status.conditions)
    assert cores.starts("w") == 1


@scenario("A8")
@pytest.mark.parametrize("runs", [False, True], ids=["admitted", "running"])
@pytest.mark.parametrize("verdict", ["Retry", "Rejected"])
def test_a_check_that_changes_its_mind_suspends_at_once_and_the_job_stops_first(
    verdict: str, runs: bool
) -> None:
    cores = a_reserved(*BOTH)
    cores.report("w", "c1", "Ready")
    cores.report("w", "c2", "Ready")
    if runs:
        cores.ready("w")
    cores.advance(100)
    cores.slow_jobs.add("w")
    more = {"after": 600} if verdict == "Retry" else {}
    cores.report("w", "c1", verdict, message="over budget", **more)
    assert cores.phase("w") == ("Evicting" if verdict == "Retry" else "Rejected")
    assert cores.usage("cq") == 8_000, "the job still runs"
    assert cores.stored("w").status.admission is not None
    assert len(cores.evicted_for("w")) == 1
    cores.advance(20)
    cores.stop("w")
    cores.go()
    assert cores.usage("cq") == 0
    assert cores.job_events == [
        ("started", "w", 0.0),
        ("stopped", "w", 120.0),
        ("freed", "w", 120.0),
    ]
    if verdict == "Rejected":
        assert cores.phase("w") == "Rejected"
        cores.advance(86_400)
        assert cores.phase("w") == "Rejected"
    else:
        assert (cores.phase("w"), cores.wait("w")) == ("Backoff", 580)
        cores.at(699.9)
        assert cores.phase("w") == "Backoff"
        cores.at(700)
        assert cores.phase("w") == "QuotaReserved"
        assert cores.states("w") == {"c1": "Pending", "c2": "Pending"}
        assert cores.counts("w") == {"c1": 1, "c2": 0}
    # Being turned off wipes the account.
    spent = None if verdict == "Rejected" else 120
    assert cores.stored("w").status.accumulated_past_execution_time_seconds == spent


@scenario("A8")
def test_a_check_that_is_pending_again_evicts_no_workload() -> None:
    cores = a_reserved("c1")
    cores.report("w", "c1", "Ready")
    cores.report("w", "c1", "Pending", message="looking again")
    assert cores.phase("w") == "Admitted"
    assert cores.rows("w")["c1"].message == "looking again"
    assert not cores.evicted_for("w")


@scenario("A13")
def test_a_workload_that_waits_for_checks_can_be_preempted() -> None:
    cores = cores_with_queue("c1", preemption={"withinClusterQueue": "LowerPriority"})
    cores.submit("w", "cq", "8")
    cores.go()
    cores.report("w", "c1", "Pending", message="judging")
    cycle = cores.stored("w").status.admission_cycle
    cores.submit("high", "cq", "8", priority=10)
    cores.go()
    assert cores.phases("w", "high") == ["Pending", "QuotaReserved"]
    assert cores.reason("w", "QuotaReserved").startswith("False")
    assert cores.reason("w", "Evicted") == "True: Preempted"
    assert cores.reason("w", "Requeued") == "True: Preempted"
    assert cores.stored("w").status.admission is None
    (row,) = cores.rows("w").values()
    assert (row.state, row.retry_count) == ("Pending", 0)
    assert cores.stored("w").status.admission_cycle == cycle + 1
    assert cores.withdrawn("c1", "w") == [("Preempted", cycle)]
    assert cores.usage("cq") == 8_000


@scenario("A14")
def test_workload_1001_waits_because_reservations_use_quota() -> None:
    cores = cores_with_queue("c1", nominal="1000", queueingStrategy="BestEffortFIFO")
    for number in range(1000):
        cores.submit(f"w-{number}", "cq", "1", age=2000 - number)
    cores.go()
    assert {str(cores.phase(f"w-{number}")) for number in range(1000)} == {"QuotaReserved"}
    cores.submit("last", "cq", "1")
    cores.go()
    cores.advance(600)
    assert cores.phase("last") == "Pending"
    assert cores.reason("last", "QuotaReserved") == "False: WaitingForQuota"
    assert cores.usage("cq") == 1_000_000
    cores.answer("w-0", "c1", "Retry", after=60)
    cores.go()
    assert cores.phases("w-0", "last") == ["Backoff", "QuotaReserved"]


@scenario("A16")
@pytest.mark.parametrize("messages", [1, 3])
def test_a_ready_verdict_before_the_flavor_is_assigned_does_not_count(messages: int) -> None:
    cores = cores_with_queue("c1")
    cores.submit("first", "cq", "8")
    cores.go()
    cores.submit("w", "cq", "8")
    cores.go()
    for _ in range(messages):
        early = cores.answer("w", "c1", "Ready")
        assert early is not None
        assert early.outcome == "ignored"
    assert cores.states("w") == {"c1": "Pending"}
    cores.finish("first")
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    assert cores.states("w") == {"c1": "Pending"}
    assert cores.starts("w") == 0
    cores.report("w", "c1", "Ready")
    assert cores.phase("w") == "Admitted"


@scenario("A18")
def test_an_added_check_leaves_admitted_workloads_alone() -> None:
    cores = a_reserved("c1")
    cores.report("w", "c1", "Ready")
    cores.check("c2")
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["c1", "c2"])
    cores.go()
    assert cores.phase("w") == "Admitted"
    assert cores.states("w") == {"c1": "Ready", "c2": "Pending"}
    cores.advance(86_400)
    assert cores.phase("w") == "Admitted"
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["c2"])
    cores.go()
    assert cores.phase("w") == "Admitted"
    assert cores.states("w") == {"c2": "Pending"}
    assert not cores.evicted_for("w")


@scenario("A18")
def test_a_retry_of_a_check_that_was_added_later_evicts_all_the_same() -> None:
    cores = a_reserved("c1")
    cores.report("w", "c1", "Ready")
    cores.check("c2")
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["c1", "c2"])
    cores.go()
    cores.report("w", "c2", "Retry", after=60)
    assert (cores.phase("w"), cores.wait("w")) == ("Backoff", 60)


@scenario("A30")
def test_all_checks_of_a_thousand_workloads_are_requested_at_once() -> None:
    cores = cores_with_queue(*BOTH, nominal="1000")
    for number in range(1000):
        cores.submit(f"w-{number}", "cq", "1")
    cores.go()
    for check in BOTH:
        asked = [request.name for request in cores.requests(check)]
        assert len(asked) == len(set(asked)) == 1000
    first, second = (
        {request.name: request.revision for request in cores.requests(check)} for check in BOTH
    )
    assert first == second, "both are asked by the write that reserves"
    # No order: of every second one the other check answers first.
    for number in range(1000):
        for check in BOTH if number % 2 else reversed(BOTH):
            cores.answer(f"w-{number}", check, "Ready")
    cores.go()
    assert {str(cores.phase(f"w-{number}")) for number in range(1000)} == {"Admitted"}
    for number in range(0, 1000, 10):
        cores.answer(f"w-{number}", BOTH[number // 10 % 2], "Retry", after=3600)
    cores.go()
    waits = [number for number in range(1000) if cores.phase(f"w-{number}") == "Backoff"]
    assert waits == list(range(0, 1000, 10))
