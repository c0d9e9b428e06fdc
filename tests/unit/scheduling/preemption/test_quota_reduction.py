"""Quota is cut under what holds it: LIFECYCLE T09 and 6, and ``onQuotaCut``."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import facts
from admittance.scheduling.state.config import Config
from support.cores.scheduling_story import groups, quota

from living import Life

CHECKED: dict[str, Any] = {"admissionChecks": ["c"]}


def a_life(nominal: str = "10", **spec: Any) -> Life:
    """One queue; its workloads wait for a check after they get quota."""
    life = Life()
    life.check("c")
    life.queue("cq", resourceGroups=groups(default=nominal), **{**CHECKED, **spec})
    return life


def cut(life: Life, nominal: str, **spec: Any) -> None:
    life.queue("cq", resourceGroups=groups(default=nominal), **{**CHECKED, **spec})
    life.settle()


def test_a_revoked_reservation_returns_when_the_quota_does() -> None:
    life = a_life()
    life.submit("w", "cq", "8")
    life.settle()
    assert life.phase("w") == "QuotaReserved"
    cut(life, "5")
    assert life.revoked() == [("w", "QuotaChanged")]
    stored = life.stored("w")
    assert stored.status.admission is None
    assert life.reason("w", "QuotaReserved").startswith("False")
    assert life.reason("w", "Requeued") == "True: QuotaChanged"
    assert life.reason("w", "Evicted") == ""
    assert [row.state for row in stored.status.admission_checks] == ["Pending"]
    cut(life, "8")
    assert life.phase("w") == "QuotaReserved"


def test_a_revocation_has_the_numbers() -> None:
    life = a_life()
    life.submit("w", "cq", "8")
    life.settle()
    cut(life, "5")
    (one,) = [one for one in life.decided if isinstance(one, facts.Revoked)]
    assert one.message == (
        "cpu in flavor default: ClusterQueue cq may use 5, and 8 are reserved; 8 of it by this "
        "workload"
    )
    (short,) = one.shortfalls
    assert (short.flavor, short.resource, short.requested, short.available) == (
        "default", "cpu", 8_000, 5_000,
    )  # fmt: skip
    assert one.revision < one.seen


def test_the_lowest_priority_then_the_newest_is_revoked_first() -> None:
    life = a_life()
    for name, priority in (("first", 0), ("second", 0), ("low", -1), ("high", 1)):
        life.submit(name, "cq", "2", priority=priority)
        life.settle()
    cut(life, "7")
    assert life.revoked() == [("low", "QuotaChanged")]
    cut(life, "5")
    assert life.revoked()[1:] == [("second", "QuotaChanged")]
    assert life.phases("first", "high") == ["QuotaReserved", "QuotaReserved"]


def test_only_needed_reservations_are_revoked() -> None:
    life = a_life()
    life.submit("small", "cq", "1", priority=-1)
    life.settle()
    life.submit("big", "cq", "8", priority=1)
    life.settle()
    cut(life, "3")
    assert life.revoked() == [("big", "QuotaChanged")]
    assert life.phase("small") == "QuotaReserved"


def test_admitted_workloads_stay_above_a_reduced_quota() -> None:
    life = a_life()
    life.submit("runs", "cq", "6")
    life.settle()
    life.verdict("runs", "c", "Ready")
    life.submit("waits", "cq", "3")
    life.settle()
    cut(life, "5")
    assert life.phases("runs", "waits") == ["Admitted", "Pending"]
    assert life.revoked() == [("waits", "QuotaChanged")]
    life.finish("runs")
    life.settle()
    assert life.phase("waits") == "QuotaReserved"


def test_a_verdict_before_the_revocation_does_not_admit_beyond_quota() -> None:
    life = a_life()
    life.submit("w", "cq", "8")
    life.settle()
    life.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    (decision,) = life.cycle(apply=False)
    assert isinstance(decision, facts.Revoked)
    life.verdict("w", "c", "Ready")
    life.apply(decision)
    life.settle()
    assert life.revoked() == [("w", "QuotaChanged")] * 2
    assert life.phase("w") == "Pending"


def test_a_revocation_is_repeated_when_the_workload_changed() -> None:
    life = a_life()
    life.submit("w", "cq", "8")
    life.settle()
    life.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    (decision,) = life.cycle(apply=False)
    life.verdict("w", "c", "Pending", message="still looking")
    life.apply(decision)
    life.settle()
    assert life.revoked() == [("w", "QuotaChanged")] * 2
    assert life.phase("w") == "Pending"


def test_a_revocation_is_repeated_when_the_log_refused_it() -> None:
    life = a_life()
    life.submit("w", "cq", "8")
    life.settle()
    life.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    (decision,) = life.cycle(apply=False)
    life.core.forget("ns", "w", decision.revision)
    life.settle()
    assert life.phase("w") == "Pending"


def test_a_scheduler_that_takes_over_after_the_cut_finds_it() -> None:
    life = a_life()
    life.submit("w", "cq", "8")
    life.settle()
    life.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    life.restart()
    life.settle()
    assert life.phase("w") == "Pending"


def test_a_preemptor_counts_on_quota_that_is_being_revoked() -> None:
    life = a_life(preemption={"withinClusterQueue": "LowerPriority"})
    more = {"preemption": {"withinClusterQueue": "LowerPriority"}, **CHECKED}
    life.submit("runs", "cq", "4", priority=-1)
    life.settle()
    life.verdict("runs", "c", "Ready")
    life.submit("reserved", "cq", "4")
    life.settle()
    life.queue("cq", resourceGroups=groups(default="7"), **more)
    life.submit("high", "cq", "3", priority=5)
    told = life.cycle(apply=False)
    assert [one.name for one in told if isinstance(one, facts.Revoked)] == ["reserved"]
    assert not [one for one in told if isinstance(one, facts.Preempted)]
    for one in told:
        life.apply(one)
    life.settle()
    assert life.phase("high") == "QuotaReserved"
    assert ("runs", "high") not in life.preempted()


def test_two_cuts_at_once_publish_one_revocation() -> None:
    life = a_life()
    life.submit("w", "cq", "8")
    life.settle()
    life.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    life.queue("cq", resourceGroups=groups(default="4"), **CHECKED)
    life.settle()
    assert life.revoked() == [("w", "QuotaChanged")]


def test_reservations_are_checked_only_after_quota_edits() -> None:
    life = a_life()
    life.submit("w", "cq", "8")
    life.settle()
    (domain,) = life.core._state.domains.values()
    assert not domain.quota_reduced
    life.put("Namespace", "ns")
    life.put("LocalQueue", "more", {"clusterQueue": "cq"}, namespace="ns")
    life.check("c")
    assert not domain.quota_reduced


def test_played_as_kueue_the_reservation_stays() -> None:
    life = Life(Config(as_kueue=True))
    life.check("c")
    life.queue("cq", resourceGroups=groups(default="10"), **CHECKED)
    life.submit("w", "cq", "8")
    life.settle()
    cut(life, "5")
    assert life.revoked() == []
    assert life.phase("w") == "QuotaReserved"


# Flavors. -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "deaf",
    [
        pytest.param(False, id="the controller sees it first"),
        pytest.param(True, id="the scheduler sees it first"),
    ],
)
def test_a_reservation_on_a_removed_flavor_moves_to_another(deaf: bool) -> None:
    life = a_life()
    life.put("ResourceFlavor", "other")
    life.queue("cq", resourceGroups=groups(default="10", other="10"), **CHECKED)
    life.submit("w", "cq", "8")
    life.settle()
    life.verdict("w", "c", "Pending", message="half way")
    life.deaf = deaf
    life.queue("cq", resourceGroups=groups(other="10"), **CHECKED)
    life.settle()
    assert life.revoked() == ([("w", "FlavorsChanged")] if deaf else [])
    assert life.reason("w", "Requeued") == "True: FlavorsChanged"
    assert life.reason("w", "Evicted") == ""
    admission = life.stored("w").status.admission
    assert admission is not None
    assert admission.pod_set_assignments[0].flavors == {"cpu": "other"}
    assert life.stored("w").status.admission_checks[0].message == ""


def with_check(flavor: str, nominal: str = "10") -> dict[str, Any]:
    """Quota of one flavor that brings the check along."""
    (group,) = groups(**{flavor: nominal})
    group["flavors"][0]["admissionChecks"] = ["c"]
    return group


def test_removing_a_flavor_with_its_check_starts_no_job() -> None:
    life = Life()
    life.check("c")
    life.put("ResourceFlavor", "other")
    life.queue("cq", resourceGroups=[with_check("default")])
    life.submit("w", "cq", "8")
    life.settle()
    assert life.phase("w") == "QuotaReserved"
    life.queue("cq", resourceGroups=groups(other="0"))
    assert life.phase("w") == "Pending"
    assert life.reason("w", "Requeued") == "True: FlavorsChanged"
    life.settle()
    assert not [one for one in life.said if isinstance(one, facts.Admitted)]


def test_no_verdict_admits_to_a_flavor_that_is_offered_no_more() -> None:
    life = a_life()
    life.put("ResourceFlavor", "other")
    life.submit("w", "cq", "8")
    life.settle()
    # The verdict was said before the edit, and is read after it.
    heard = life.deaf
    life.deaf = True
    life.queue("cq", resourceGroups=groups(other="0"), **CHECKED)
    life.deaf = heard
    life.verdict("w", "c", "Ready")
    (decision,) = life.cycle(apply=False)
    assert isinstance(decision, facts.Revoked)
    life.apply(decision)
    assert life.phase("w") == "Pending"
    assert life.reason("w", "QuotaReserved") == "False: FlavorsChanged"


def test_a_removed_flavor_still_counts_its_running_workloads() -> None:
    life = a_life(admissionChecks=[])
    life.put("ResourceFlavor", "other")
    life.queue("cq", resourceGroups=groups(default="10", other="0"))
    life.submit("w", "cq", "8")
    life.settle()
    life.queue("cq", resourceGroups=groups(other="0"))
    life.settle()
    assert life.revoked() == []
    assert life.phase("w") == "Admitted"
    life.queue("cq", resourceGroups=groups(default="10", other="0"))
    life.submit("next", "cq", "8")
    life.settle()
    assert life.phase("next") == "Pending"


def test_quota_of_another_queue_does_not_replace_a_removed_flavor() -> None:
    life = a_life()
    life.put("ResourceFlavor", "other")
    life.queue("cq", "co", resourceGroups=groups(default="5", other="5"), **CHECKED)
    life.queue("rich", "co", resourceGroups=groups(default="50"))
    life.submit("w", "cq", "4")
    life.settle()
    life.queue("cq", "co", resourceGroups=groups(other="3"), **CHECKED)
    life.settle()
    assert life.reason("w", "Requeued") == "True: FlavorsChanged"
    assert life.phase("w") == "Pending"


# Trees. -------------------------------------------------------------------------------------


def a_cohort(**cq: Any) -> Life:
    """cq has nothing of its own and borrows what rich does not use."""
    life = Life()
    life.check("c")
    life.queue("cq", "co", resourceGroups=groups(default="0"), **{**CHECKED, **cq})
    life.queue("rich", "co", resourceGroups=groups(default="10"), **CHECKED)
    life.submit("borrows", "cq", "6")
    life.settle()
    return life


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(
            lambda life: life.queue("rich", "co", resourceGroups=groups(default="5"), **CHECKED),
            id="the lender has less",
        ),
        pytest.param(
            lambda life: life.queue(
                "rich", "co", resourceGroups=groups(default=quota("10", lend="5")), **CHECKED
            ),
            id="the lender lends less",
        ),
        pytest.param(
            lambda life: life.queue(
                "cq", "co", resourceGroups=groups(default=quota("0", borrow="5")), **CHECKED
            ),
            id="the borrower may borrow less",
        ),
        pytest.param(
            lambda life: life.queue("rich", "away", resourceGroups=groups(default="10"), **CHECKED),
            id="the lender moves to another cohort",
        ),
        pytest.param(
            lambda life: life.queue("cq", "away", resourceGroups=groups(default="0"), **CHECKED),
            id="the borrower moves to another cohort",
        ),
        pytest.param(
            lambda life: life.queue("cq", resourceGroups=groups(default="0"), **CHECKED),
            id="the borrower leaves its cohort",
        ),
        pytest.param(
            lambda life: life.delete("ClusterQueue", "rich"), id="the lender is deleted"
        ),
    ],
)  # fmt: skip
def test_borrowed_quota_is_revoked_when_it_is_reduced(edit: Any) -> None:
    life = a_cohort()
    assert life.phase("borrows") == "QuotaReserved"
    edit(life)
    life.settle()
    assert life.revoked() == [("borrows", "QuotaChanged")]
    assert life.phase("borrows") == "Pending"


@pytest.mark.parametrize("how", ["cut", "deleted", "moved"])
def test_quota_of_a_cohort_is_revoked_when_it_is_reduced(how: str) -> None:
    life = Life()
    life.check("c")
    life.put("Cohort", "co", {"resourceGroups": groups(default="10")})
    life.queue("cq", "co", resourceGroups=groups(default="0"), **CHECKED)
    life.submit("w", "cq", "6")
    life.settle()
    assert life.phase("w") == "QuotaReserved"
    if how == "cut":
        life.put("Cohort", "co", {"resourceGroups": groups(default="5")})
    elif how == "deleted":
        life.delete("Cohort", "co")
    else:
        life.put("Cohort", "up", {})
        limited = groups(default=quota("4", borrow="0"))
        life.put("Cohort", "co", {"parentName": "up", "resourceGroups": limited})
    life.settle()
    assert life.revoked() == [("w", "QuotaChanged")]


def test_borrowing_reservations_are_revoked_first() -> None:
    life = Life()
    life.check("c")
    life.put("Cohort", "co", {"resourceGroups": groups(default="6")})
    life.queue("borrower", "co", resourceGroups=groups(default="0"), **CHECKED)
    life.queue("owner", "co", resourceGroups=groups(default="10"), **CHECKED)
    life.submit("mine", "owner", "10", priority=-9)
    life.submit("borrows", "borrower", "6", priority=9)
    life.settle()
    life.put("Cohort", "co", {})
    life.settle()
    assert life.revoked() == [("borrows", "QuotaChanged")]
    assert life.phase("mine") == "QuotaReserved"


def test_a_reservation_in_nominal_quota_yields_to_running_borrowers() -> None:
    life = Life()
    life.check("c")
    life.put("Cohort", "co", {"resourceGroups": groups(default="6")})
    life.queue("borrower", "co", resourceGroups=groups(default="0"))
    life.queue("owner", "co", resourceGroups=groups(default="10"), **CHECKED)
    life.submit("mine", "owner", "10")
    life.submit("runs", "borrower", "6")
    life.settle()
    life.put("Cohort", "co", {})
    life.settle()
    assert life.revoked() == [("mine", "QuotaChanged")]
    assert life.phases("mine", "runs") == ["Pending", "Admitted"]


def test_quota_that_is_not_lent_is_never_revoked_for_others() -> None:
    life = Life()
    life.check("c")
    life.put("Cohort", "co", {"resourceGroups": groups(default="6")})
    life.queue("borrower", "co", resourceGroups=groups(default="0"))
    life.queue("owner", "co", resourceGroups=groups(default=quota("10", lend="0")), **CHECKED)
    life.submit("mine", "owner", "10")
    life.submit("runs", "borrower", "6")
    life.settle()
    life.put("Cohort", "co", {})
    life.settle()
    assert life.revoked() == []
    assert life.phase("mine") == "QuotaReserved"


def test_in_a_cycle_of_cohorts_all_reservations_stay() -> None:
    life = Life()
    life.check("c")
    life.put("Cohort", "up", {"resourceGroups": groups(default="10")})
    life.put("Cohort", "co", {"parentName": "up"})
    life.queue("cq", "co", resourceGroups=groups(default="0"), **CHECKED)
    life.submit("w", "cq", "6")
    life.settle()
    private = groups(default=quota("10", lend="0"))
    life.put("Cohort", "up", {"resourceGroups": private, "parentName": "co"})
    life.settle()
    assert life.phase("w") == "QuotaReserved"
    life.put("Cohort", "up", {"resourceGroups": groups(default="5")})
    life.settle()
    assert life.revoked() == [("w", "QuotaChanged")]


# onQuotaCut. --------------------------------------------------------------------------------

EVICT: dict[str, Any] = {"onQuotaCut": "evict", "admissionChecks": []}


def running(life: Life, *workloads: tuple[str, str, int]) -> None:
    for name, cpu, priority in workloads:
        life.submit(name, "cq", cpu, priority=priority)
        life.settle()
        assert life.phase(name) == "Admitted"


def test_by_default_and_as_kueue_nothing_that_runs_is_evicted() -> None:
    life = a_life(admissionChecks=[])
    running(life, ("one", "5", 0), ("two", "5", 0))
    cut(life, "5", admissionChecks=[])
    assert life.phases("one", "two") == ["Admitted", "Admitted"]


def test_with_evict_workloads_are_evicted_until_the_rest_fits() -> None:
    life = a_life(**EVICT)
    running(life, ("old", "3", 0), ("new", "3", 0), ("high", "3", 5))
    cut(life, "6", **EVICT)
    assert life.revoked() == [("new", "QuotaChanged")]
    assert life.phases("old", "new", "high") == ["Admitted", "Pending", "Admitted"]
    assert life.reason("new", "Evicted") == "True: QuotaChanged"
    assert life.reason("new", "Requeued") == "True: QuotaChanged"
    cut(life, "9", **EVICT)
    assert life.phase("new") == "Admitted"


def test_with_evict_no_needless_workload_is_evicted() -> None:
    life = a_life(**EVICT)
    running(life, ("small", "1", -1), ("big", "8", 0))
    cut(life, "2", **EVICT)
    assert life.revoked() == [("big", "QuotaChanged")]
    assert life.phase("small") == "Admitted"


def test_with_evict_the_quota_counts_until_the_job_has_stopped() -> None:
    life = a_life(**EVICT)
    running(life, ("one", "5", 0), ("two", "5", 0))
    life.stubborn.add("two")
    cut(life, "5", **EVICT)
    assert life.phase("two") == "Evicting"
    assert life.stored("two").status.admission is not None
    assert life.revoked() == [("two", "QuotaChanged")]
    cut(life, "5", **{**EVICT, "queueingStrategy": "StrictFIFO"})
    assert life.revoked() == [("two", "QuotaChanged")]
    life.stop("two")
    life.settle()
    assert life.phases("one", "two") == ["Admitted", "Pending"]


def test_with_evict_reservations_are_revoked_before_running_jobs() -> None:
    life = a_life(onQuotaCut="evict")
    life.submit("runs", "cq", "5", priority=-5)
    life.settle()
    life.verdict("runs", "c", "Ready")
    life.submit("reserved", "cq", "5", priority=5)
    life.settle()
    cut(life, "5", onQuotaCut="evict")
    assert life.revoked() == [("reserved", "QuotaChanged")]
    assert life.phase("runs") == "Admitted"


def test_with_evict_a_job_on_a_removed_flavor_is_evicted() -> None:
    life = a_life(**EVICT)
    life.put("ResourceFlavor", "other")
    running(life, ("w", "5", 0))
    life.queue("cq", resourceGroups=groups(other="10"), **EVICT)
    life.settle()
    assert life.revoked() == [("w", "FlavorsChanged")]
    assert life.reason("w", "Requeued") == "True: FlavorsChanged"
    assert life.phase("w") == "Admitted"


def test_on_quota_cut_evict_spares_other_queues_and_nominal_usage() -> None:
    life = Life()
    life.put("Cohort", "co", {"resourceGroups": groups(default="12")})
    life.queue("keeps", "co", resourceGroups=groups(default="0"))
    life.queue("gives", "co", resourceGroups=groups(default="0"), onQuotaCut="evict")
    life.queue("within", "co", resourceGroups=groups(default="6"), onQuotaCut="evict")
    for name in ("keeps", "gives", "within"):
        life.submit(name, name, "6", priority={"gives": 9}.get(name, 0))
    life.settle()
    life.put("Cohort", "co", {})
    life.settle()
    assert life.revoked() == [("gives", "QuotaChanged")]
    assert life.phases("keeps", "gives", "within") == ["Admitted", "Pending", "Admitted"]


def test_saying_evict_while_over_quota_evicts_now() -> None:
    life = a_life(admissionChecks=[])
    running(life, ("one", "5", 0), ("two", "5", 0))
    cut(life, "5", admissionChecks=[])
    cut(life, "5", **EVICT)
    assert life.revoked() == [("two", "QuotaChanged")]


def test_unlimited_quota_is_never_exceeded() -> None:
    huge = str(2**63)
    life = a_life(huge)
    life.submit("w", "cq", str(2**60))
    life.settle()
    assert life.phase("w") == "QuotaReserved"
    cut(life, huge)
    assert life.revoked() == []


# A standby. ---------------------------------------------------------------------------------


def test_a_standby_cuts_reservations_of_others_after_a_takeover() -> None:
    life = a_life()
    standby = Life()
    standby.controller = life.controller
    standby._objects = life._objects
    standby.restart()
    for domain in standby.core.domains():
        standby.core.disown(domain)
    life.submit("w", "cq", "8")
    for _ in range(3):
        known = life.controller.workloads.get("workload.ns.w")
        standby.core.apply_workload("ns", "w", known.workload, known.revision, now=life.now)
        life.settle()
    (queue,) = standby.core._state.queues.values()
    assert [entry[3] for entry in queue.candidates] == [("ns", "w")]
    assert [one.state for one in queue.holding] == ["QuotaReserved"]
