"""Quota is reduced below the quota that workloads hold: docs/spec/lifecycle.md#T09, #6, and
``onQuotaCut``."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from admittance.events import facts
from admittance.scheduling.state.config import Config
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups, quota

CHECKED: dict[str, Any] = {"admissionChecks": ["c"]}


def configured_cores(nominal: str = "10", **spec: Any) -> SteppedCores:
    """One queue; its workloads wait for a check after they get quota."""
    cores = SteppedCores()
    cores.check("c")
    cores.queue("cq", resourceGroups=groups(default=nominal), **{**CHECKED, **spec})
    return cores


def cut(cores: SteppedCores, nominal: str, **spec: Any) -> None:
    cores.queue("cq", resourceGroups=groups(default=nominal), **{**CHECKED, **spec})
    cores.settle()


def test_a_revoked_reservation_returns_when_the_quota_does() -> None:
    cores = configured_cores()
    cores.submit("w", "cq", "8")
    cores.settle()
    assert cores.phase("w") == "QuotaReserved"
    cut(cores, "5")
    assert cores.revoked() == [("w", "QuotaChanged")]
    stored = cores.stored("w")
    assert stored.status.admission is None
    assert cores.reason("w", "QuotaReserved").startswith("False")
    assert cores.reason("w", "Requeued") == "True: QuotaChanged"
    assert cores.reason("w", "Evicted") == ""
    assert [row.state for row in stored.status.admission_checks] == ["Pending"]
    cut(cores, "8")
    assert cores.phase("w") == "QuotaReserved"


def test_a_revocation_has_the_numbers() -> None:
    cores = configured_cores()
    cores.submit("w", "cq", "8")
    cores.settle()
    cut(cores, "5")
    (decision,) = [decision for decision in cores.decided if isinstance(decision, facts.Revoked)]
    assert decision.message == (
        "cpu in flavor default: ClusterQueue cq may use 5, and 8 are reserved; 8 of it by this "
        "workload"
    )
    (short,) = decision.shortfalls
    assert (short.flavor, short.resource, short.requested, short.available) == (
        "default", "cpu", 8_000, 5_000,
    )  # fmt: skip
    assert decision.revision < decision.seen


def test_the_lowest_priority_then_the_newest_is_revoked_first() -> None:
    cores = configured_cores()
    for name, priority in (("first", 0), ("second", 0), ("low", -1), ("high", 1)):
        cores.submit(name, "cq", "2", priority=priority)
        cores.settle()
    cut(cores, "7")
    assert cores.revoked() == [("low", "QuotaChanged")]
    cut(cores, "5")
    assert cores.revoked()[1:] == [("second", "QuotaChanged")]
    assert cores.phases("first", "high") == ["QuotaReserved", "QuotaReserved"]


def test_only_needed_reservations_are_revoked() -> None:
    cores = configured_cores()
    cores.submit("small", "cq", "1", priority=-1)
    cores.settle()
    cores.submit("big", "cq", "8", priority=1)
    cores.settle()
    cut(cores, "3")
    assert cores.revoked() == [("big", "QuotaChanged")]
    assert cores.phase("small") == "QuotaReserved"


def test_admitted_workloads_stay_above_a_reduced_quota() -> None:
    cores = configured_cores()
    cores.submit("runs", "cq", "6")
    cores.settle()
    cores.verdict("runs", "c", "Ready")
    cores.submit("waits", "cq", "3")
    cores.settle()
    cut(cores, "5")
    assert cores.phases("runs", "waits") == ["Admitted", "Pending"]
    assert cores.revoked() == [("waits", "QuotaChanged")]
    cores.finish("runs")
    cores.settle()
    assert cores.phase("waits") == "QuotaReserved"


def test_a_verdict_before_the_revocation_does_not_admit_beyond_quota() -> None:
    cores = configured_cores()
    cores.submit("w", "cq", "8")
    cores.settle()
    cores.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    (decision,) = cores.cycle(apply=False)
    assert isinstance(decision, facts.Revoked)
    cores.verdict("w", "c", "Ready")
    cores.apply(decision)
    cores.settle()
    assert cores.revoked() == [("w", "QuotaChanged")] * 2
    assert cores.phase("w") == "Pending"


def test_a_late_decision_of_an_earlier_leader_admits_no_job_beyond_quota() -> None:
    cores = configured_cores()
    cores.submit("w", "cq", "8")
    cores.settle()
    (decision,) = [decision for decision in cores.decided if isinstance(decision, facts.Assigned)]
    cores.submit("late", "cq", "8")
    cores.settle()
    revision = cores.controller.workloads.get("workload.ns.late").revision
    cores.apply_facts(replace(decision, name="late", uid="", revision=revision))
    cores.verdict("late", "c", "Ready")
    cores.settle()
    assert cores.revoked() == [("late", "QuotaChanged")]
    assert cores.phases("w", "late") == ["QuotaReserved", "Pending"]


def test_a_revocation_is_repeated_when_the_workload_changed() -> None:
    cores = configured_cores()
    cores.submit("w", "cq", "8")
    cores.settle()
    cores.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    (decision,) = cores.cycle(apply=False)
    cores.verdict("w", "c", "Pending", message="still looking")
    cores.apply(decision)
    cores.settle()
    assert cores.revoked() == [("w", "QuotaChanged")] * 2
    assert cores.phase("w") == "Pending"


def test_a_revocation_is_repeated_when_the_log_refused_it() -> None:
    cores = configured_cores()
    cores.submit("w", "cq", "8")
    cores.settle()
    cores.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    (decision,) = cores.cycle(apply=False)
    cores.scheduler.forget("ns", "w", decision.revision)
    cores.settle()
    assert cores.phase("w") == "Pending"


def test_a_scheduler_that_takes_over_after_the_cut_finds_it() -> None:
    cores = configured_cores()
    cores.submit("w", "cq", "8")
    cores.settle()
    cores.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    cores.restart_scheduler()
    cores.settle()
    assert cores.phase("w") == "Pending"


def test_a_preemptor_counts_on_quota_that_is_being_revoked() -> None:
    cores = configured_cores(preemption={"withinClusterQueue": "LowerPriority"})
    more = {"preemption": {"withinClusterQueue": "LowerPriority"}, **CHECKED}
    cores.submit("runs", "cq", "4", priority=-1)
    cores.settle()
    cores.verdict("runs", "c", "Ready")
    cores.submit("reserved", "cq", "4")
    cores.settle()
    cores.queue("cq", resourceGroups=groups(default="7"), **more)
    cores.submit("high", "cq", "3", priority=5)
    decisions = cores.cycle(apply=False)
    assert [decision.name for decision in decisions if isinstance(decision, facts.Revoked)] == [
        "reserved"
    ]
    assert not [decision for decision in decisions if isinstance(decision, facts.Preempted)]
    for decision in decisions:
        cores.apply(decision)
    cores.settle()
    assert cores.phase("high") == "QuotaReserved"
    assert ("runs", "high") not in cores.preempted()


def test_two_cuts_at_once_publish_one_revocation() -> None:
    cores = configured_cores()
    cores.submit("w", "cq", "8")
    cores.settle()
    cores.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    cores.queue("cq", resourceGroups=groups(default="4"), **CHECKED)
    cores.settle()
    assert cores.revoked() == [("w", "QuotaChanged")]


def test_reservations_are_checked_only_after_quota_edits() -> None:
    cores = configured_cores()
    cores.submit("w", "cq", "8")
    cores.settle()
    (domain,) = cores.scheduler._state.domains.values()
    assert not domain.quota_reduced
    cores.put("Namespace", "ns")
    cores.put("LocalQueue", "more", {"clusterQueue": "cq"}, namespace="ns")
    cores.check("c")
    assert not domain.quota_reduced


def test_played_as_kueue_the_reservation_stays() -> None:
    cores = SteppedCores(Config(as_kueue=True))
    cores.check("c")
    cores.queue("cq", resourceGroups=groups(default="10"), **CHECKED)
    cores.submit("w", "cq", "8")
    cores.settle()
    cut(cores, "5")
    assert cores.revoked() == []
    assert cores.phase("w") == "QuotaReserved"


# Flavors. -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "announced",
    [
        pytest.param(True, id="the controller sees it first"),
        pytest.param(False, id="the scheduler sees it first"),
    ],
)
def test_a_reservation_on_a_removed_flavor_moves_to_another(announced: bool) -> None:
    cores = configured_cores()
    cores.put("ResourceFlavor", "other")
    cores.queue("cq", resourceGroups=groups(default="10", other="10"), **CHECKED)
    cores.submit("w", "cq", "8")
    cores.settle()
    cores.verdict("w", "c", "Pending", message="half way")
    cores.announces_objects = announced
    cores.queue("cq", resourceGroups=groups(other="10"), **CHECKED)
    cores.settle()
    assert cores.revoked() == ([] if announced else [("w", "FlavorsChanged")])
    assert cores.reason("w", "Requeued") == "True: FlavorsChanged"
    assert cores.reason("w", "Evicted") == ""
    admission = cores.stored("w").status.admission
    assert admission is not None
    assert admission.pod_set_assignments[0].flavors == {"cpu": "other"}
    assert cores.stored("w").status.admission_checks[0].message == ""


def with_check(flavor: str, nominal: str = "10") -> dict[str, Any]:
    """Quota of one flavor that has a check of its own."""
    (group,) = groups(**{flavor: nominal})
    group["flavors"][0]["admissionChecks"] = ["c"]
    return group


def test_removing_a_flavor_with_its_check_starts_no_job() -> None:
    cores = SteppedCores()
    cores.check("c")
    cores.put("ResourceFlavor", "other")
    cores.queue("cq", resourceGroups=[with_check("default")])
    cores.submit("w", "cq", "8")
    cores.settle()
    assert cores.phase("w") == "QuotaReserved"
    cores.queue("cq", resourceGroups=groups(other="0"))
    assert cores.phase("w") == "Pending"
    assert cores.reason("w", "Requeued") == "True: FlavorsChanged"
    cores.settle()
    assert not [fact for fact in cores.published if isinstance(fact, facts.Admitted)]


def test_no_verdict_admits_to_a_flavor_that_the_queue_removed() -> None:
    cores = configured_cores()
    cores.put("ResourceFlavor", "other")
    cores.submit("w", "cq", "8")
    cores.settle()
    # The verdict was said before the edit, and is read after it.
    cores.announces_objects = False
    cores.queue("cq", resourceGroups=groups(other="0"), **CHECKED)
    cores.announces_objects = True
    cores.verdict("w", "c", "Ready")
    (decision,) = cores.cycle(apply=False)
    assert isinstance(decision, facts.Revoked)
    cores.apply(decision)
    assert cores.phase("w") == "Pending"
    assert cores.reason("w", "QuotaReserved") == "False: FlavorsChanged"


def test_a_removed_flavor_still_counts_its_running_workloads() -> None:
    cores = configured_cores(admissionChecks=[])
    cores.put("ResourceFlavor", "other")
    cores.queue("cq", resourceGroups=groups(default="10", other="0"))
    cores.submit("w", "cq", "8")
    cores.settle()
    cores.queue("cq", resourceGroups=groups(other="0"))
    cores.settle()
    assert cores.revoked() == []
    assert cores.phase("w") == "Admitted"
    cores.queue("cq", resourceGroups=groups(default="10", other="0"))
    cores.submit("next", "cq", "8")
    cores.settle()
    assert cores.phase("next") == "Pending"


def test_quota_of_another_queue_does_not_replace_a_removed_flavor() -> None:
    cores = configured_cores()
    cores.put("ResourceFlavor", "other")
    cores.queue("cq", "co", resourceGroups=groups(default="5", other="5"), **CHECKED)
    cores.queue("rich", "co", resourceGroups=groups(default="50"))
    cores.submit("w", "cq", "4")
    cores.settle()
    cores.queue("cq", "co", resourceGroups=groups(other="3"), **CHECKED)
    cores.settle()
    assert cores.reason("w", "Requeued") == "True: FlavorsChanged"
    assert cores.phase("w") == "Pending"


# Trees. -------------------------------------------------------------------------------------


def a_cohort(**cq: Any) -> SteppedCores:
    """cq has nothing of its own and borrows what rich does not use."""
    cores = SteppedCores()
    cores.check("c")
    cores.queue("cq", "co", resourceGroups=groups(default="0"), **{**CHECKED, **cq})
    cores.queue("rich", "co", resourceGroups=groups(default="10"), **CHECKED)
    cores.submit("borrows", "cq", "6")
    cores.settle()
    return cores


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(
            lambda cores: cores.queue("rich", "co", resourceGroups=groups(default="5"), **CHECKED),
            id="the lender has less",
        ),
        pytest.param(
            lambda cores: cores.queue(
                "rich", "co", resourceGroups=groups(default=quota("10", lend="5")), **CHECKED
            ),
            id="the lender lends less",
        ),
        pytest.param(
            lambda cores: cores.queue(
                "cq", "co", resourceGroups=groups(default=quota("0", borrow="5")), **CHECKED
            ),
            id="the borrower may borrow less",
        ),
        pytest.param(
            lambda cores: cores.queue(
                "rich", "away", resourceGroups=groups(default="10"), **CHECKED
            ),
            id="the lender moves to another cohort",
        ),
        pytest.param(
            lambda cores: cores.queue("cq", "away", resourceGroups=groups(default="0"), **CHECKED),
            id="the borrower moves to another cohort",
        ),
        pytest.param(
            lambda cores: cores.queue("cq", resourceGroups=groups(default="0"), **CHECKED),
            id="the borrower leaves its cohort",
        ),
        pytest.param(
            lambda cores: cores.delete("ClusterQueue", "rich"), id="the lender is deleted"
        ),
    ],
)  # fmt: skip
def test_borrowed_quota_is_revoked_when_it_is_reduced(edit: Any) -> None:
    cores = a_cohort()
    assert cores.phase("borrows") == "QuotaReserved"
    edit(cores)
    cores.settle()
    assert cores.revoked() == [("borrows", "QuotaChanged")]
    assert cores.phase("borrows") == "Pending"


@pytest.mark.parametrize("how", ["cut", "deleted", "moved"])
def test_quota_of_a_cohort_is_revoked_when_it_is_reduced(how: str) -> None:
    cores = SteppedCores()
    cores.check("c")
    cores.put("Cohort", "co", {"resourceGroups": groups(default="10")})
    cores.queue("cq", "co", resourceGroups=groups(default="0"), **CHECKED)
    cores.submit("w", "cq", "6")
    cores.settle()
    assert cores.phase("w") == "QuotaReserved"
    if how == "cut":
        cores.put("Cohort", "co", {"resourceGroups": groups(default="5")})
    elif how == "deleted":
        cores.delete("Cohort", "co")
    else:
        cores.put("Cohort", "up", {})
        limited = groups(default=quota("4", borrow="0"))
        cores.put("Cohort", "co", {"parentName": "up", "resourceGroups": limited})
    cores.settle()
    assert cores.revoked() == [("w", "QuotaChanged")]


def test_borrowing_reservations_are_revoked_first() -> None:
    cores = SteppedCores()
    cores.check("c")
    cores.put("Cohort", "co", {"resourceGroups": groups(default="6")})
    cores.queue("borrower", "co", resourceGroups=groups(default="0"), **CHECKED)
    cores.queue("owner", "co", resourceGroups=groups(default="10"), **CHECKED)
    cores.submit("mine", "owner", "10", priority=-9)
    cores.submit("borrows", "borrower", "6", priority=9)
    cores.settle()
    cores.put("Cohort", "co", {})
    cores.settle()
    assert cores.revoked() == [("borrows", "QuotaChanged")]
    assert cores.phase("mine") == "QuotaReserved"


def test_a_reservation_in_nominal_quota_yields_to_running_borrowers() -> None:
    cores = SteppedCores()
    cores.check("c")
    cores.put("Cohort", "co", {"resourceGroups": groups(default="6")})
    cores.queue("borrower", "co", resourceGroups=groups(default="0"))
    cores.queue("owner", "co", resourceGroups=groups(default="10"), **CHECKED)
    cores.submit("mine", "owner", "10")
    cores.submit("runs", "borrower", "6")
    cores.settle()
    cores.put("Cohort", "co", {})
    cores.settle()
    assert cores.revoked() == [("mine", "QuotaChanged")]
    assert cores.phases("mine", "runs") == ["Pending", "Admitted"]


def test_quota_that_is_not_lent_is_never_revoked_for_others() -> None:
    cores = SteppedCores()
    cores.check("c")
    cores.put("Cohort", "co", {"resourceGroups": groups(default="6")})
    cores.queue("borrower", "co", resourceGroups=groups(default="0"))
    cores.queue("owner", "co", resourceGroups=groups(default=quota("10", lend="0")), **CHECKED)
    cores.submit("mine", "owner", "10")
    cores.submit("runs", "borrower", "6")
    cores.settle()
    cores.put("Cohort", "co", {})
    cores.settle()
    assert cores.revoked() == []
    assert cores.phase("mine") == "QuotaReserved"


def test_in_a_cycle_of_cohorts_all_reservations_stay() -> None:
    cores = SteppedCores()
    cores.check("c")
    cores.put("Cohort", "up", {"resourceGroups": groups(default="10")})
    cores.put("Cohort", "co", {"parentName": "up"})
    cores.queue("cq", "co", resourceGroups=groups(default="0"), **CHECKED)
    cores.submit("w", "cq", "6")
    cores.settle()
    private = groups(default=quota("10", lend="0"))
    cores.put("Cohort", "up", {"resourceGroups": private, "parentName": "co"})
    cores.settle()
    assert cores.phase("w") == "QuotaReserved"
    cores.put("Cohort", "up", {"resourceGroups": groups(default="5")})
    cores.settle()
    assert cores.revoked() == [("w", "QuotaChanged")]


# onQuotaCut. --------------------------------------------------------------------------------

EVICT: dict[str, Any] = {"onQuotaCut": "evict", "admissionChecks": []}


def running(cores: SteppedCores, *workloads: tuple[str, str, int]) -> None:
    for name, cpu, priority in workloads:
        cores.submit(name, "cq", cpu, priority=priority)
        cores.settle()
        assert cores.phase(name) == "Admitted"


def test_by_default_and_as_kueue_nothing_that_runs_is_evicted() -> None:
    cores = configured_cores(admissionChecks=[])
    running(cores, ("one", "5", 0), ("two", "5", 0))
    cut(cores, "5", admissionChecks=[])
    assert cores.phases("one", "two") == ["Admitted", "Admitted"]


def test_with_evict_workloads_are_evicted_until_the_rest_fits() -> None:
    cores = configured_cores(**EVICT)
    running(cores, ("old", "3", 0), ("new", "3", 0), ("high", "3", 5))
    cut(cores, "6", **EVICT)
    assert cores.revoked() == [("new", "QuotaChanged")]
    assert cores.phases("old", "new", "high") == ["Admitted", "Pending", "Admitted"]
    assert cores.reason("new", "Evicted") == "True: QuotaChanged"
    assert cores.reason("new", "Requeued") == "True: QuotaChanged"
    cut(cores, "9", **EVICT)
    assert cores.phase("new") == "Admitted"


def test_with_evict_no_needless_workload_is_evicted() -> None:
    cores = configured_cores(**EVICT)
    running(cores, ("small", "1", -1), ("big", "8", 0))
    cut(cores, "2", **EVICT)
    assert cores.revoked() == [("big", "QuotaChanged")]
    assert cores.phase("small") == "Admitted"


def test_with_evict_the_quota_counts_until_the_job_has_stopped() -> None:
    cores = configured_cores(**EVICT)
    running(cores, ("one", "5", 0), ("two", "5", 0))
    cores.slow_jobs.add("two")
    cut(cores, "5", **EVICT)
    assert cores.phase("two") == "Evicting"
    assert cores.stored("two").status.admission is not None
    assert cores.revoked() == [("two", "QuotaChanged")]
    cut(cores, "5", **{**EVICT, "queueingStrategy": "StrictFIFO"})
    assert cores.revoked() == [("two", "QuotaChanged")]
    cores.stop("two")
    cores.settle()
    assert cores.phases("one", "two") == ["Admitted", "Pending"]


def test_with_evict_reservations_are_revoked_before_running_jobs() -> None:
    cores = configured_cores(onQuotaCut="evict")
    cores.submit("runs", "cq", "5", priority=-5)
    cores.settle()
    cores.verdict("runs", "c", "Ready")
    cores.submit("reserved", "cq", "5", priority=5)
    cores.settle()
    cut(cores, "5", onQuotaCut="evict")
    assert cores.revoked() == [("reserved", "QuotaChanged")]
    assert cores.phase("runs") == "Admitted"


def test_with_evict_a_job_on_a_removed_flavor_is_evicted() -> None:
    cores = configured_cores(**EVICT)
    cores.put("ResourceFlavor", "other")
    running(cores, ("w", "5", 0))
    cores.queue("cq", resourceGroups=groups(other="10"), **EVICT)
    cores.settle()
    assert cores.revoked() == [("w", "FlavorsChanged")]
    assert cores.reason("w", "Requeued") == "True: FlavorsChanged"
    assert cores.phase("w") == "Admitted"


def test_on_quota_cut_evict_spares_other_queues_and_nominal_usage() -> None:
    cores = SteppedCores()
    cores.put("Cohort", "co", {"resourceGroups": groups(default="12")})
    cores.queue("keeps", "co", resourceGroups=groups(default="0"))
    cores.queue("gives", "co", resourceGroups=groups(default="0"), onQuotaCut="evict")
    cores.queue("within", "co", resourceGroups=groups(default="6"), onQuotaCut="evict")
    for name in ("keeps", "gives", "within"):
        cores.submit(name, name, "6", priority={"gives": 9}.get(name, 0))
    cores.settle()
    cores.put("Cohort", "co", {})
    cores.settle()
    assert cores.revoked() == [("gives", "QuotaChanged")]
    assert cores.phases("keeps", "gives", "within") == ["Admitted", "Pending", "Admitted"]


def test_saying_evict_while_over_quota_evicts_now() -> None:
    cores = configured_cores(admissionChecks=[])
    running(cores, ("one", "5", 0), ("two", "5", 0))
    cut(cores, "5", admissionChecks=[])
    cut(cores, "5", **EVICT)
    assert cores.revoked() == [("two", "QuotaChanged")]


def test_unlimited_quota_is_never_exceeded() -> None:
    huge = str(2**63)
    cores = configured_cores(huge)
    cores.submit("w", "cq", str(2**60))
    cores.settle()
    assert cores.phase("w") == "QuotaReserved"
    cut(cores, huge)
    assert cores.revoked() == []


# A standby. ---------------------------------------------------------------------------------


def test_a_standby_cuts_reservations_of_others_after_a_takeover() -> None:
    cores = configured_cores()
    standby = SteppedCores()
    standby.load(cores.entries())
    for domain in standby.scheduler.domains():
        standby.scheduler.disown(domain)
    cores.submit("w", "cq", "8")
    for _ in range(3):
        known = cores.controller.workloads.get("workload.ns.w")
        standby.scheduler.apply_workload("ns", "w", known.workload, known.revision, now=cores.now)
        cores.settle()
    (queue,) = standby.scheduler._state.queues.values()
    assert [entry[3] for entry in queue.candidates] == [("ns", "w")]
    assert [holder.state for holder in queue.holding] == ["QuotaReserved"]
