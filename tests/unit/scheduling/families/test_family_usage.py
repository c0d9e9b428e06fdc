"""The quota charged for a family, and its effect on other variants and other workloads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.events.requests import Queues
from admittance.scheduling.cycle.decisions import named
from admittance.scheduling.cycle.recheck import exceeds_quota
from admittance.scheduling.fairsharing.shares import share_of
from admittance.scheduling.fairsharing.usage import Account
from admittance.scheduling.state.config import AdmissionFairSharing, Config, FairSharing
from admittance.scheduling.state.workload_info import Victim
from support.cores.family_scheduler import FamilyScheduler, both, explicit
from support.cores.stepped_scheduler import groups

ON_DEMAND = {"gpu": "on-demand", "cpu": "cpu-only"}
RESERVATION = {"gpu": "reservation", "cpu": "cpu-only"}
TAGS = {"reservation": ("reservation", "cpu-only"), "on-demand": ("on-demand", "cpu-only")}
PODS = [(1, {"cpu": "4"}), (4, {"gpu": "2", "cpu": "4"})]
"""Story 7: 8 gpus and 20 cpus."""


def story_7(cpu: str = "30", config: Config | None = None, **spec: Any) -> FamilyScheduler:
    """Two gpu flavors of 8 each, and the cpus that both variants share."""
    kin = FamilyScheduler(config)
    for flavor in ("reservation", "on-demand", "cpu-only"):
        kin.flavor(flavor)
    kin.put("AdmissionCheck", "slow", {"controllerName": "ctl"})
    kin.queue(
        "q",
        resourceGroups=both({"reservation": "8", "on-demand": "8"}, cpu),
        concurrentAdmission=explicit("reservation", "on-demand"),
        **spec,
    )
    return kin


def with_slow_reservation(
    cpu: str = "30", config: Config | None = None, **spec: Any
) -> FamilyScheduler:
    """The same, and the reservation brings a check."""
    strategy = {"admissionChecks": [{"name": "slow", "onFlavors": ["reservation"]}]}
    return story_7(cpu, config, admissionChecksStrategy=strategy, **spec)


def story_7_with_late_preemption(**spec: Any) -> FamilyScheduler:
    """Story 7 with a check of the reservation that preempts only after the check has passed."""
    strategy = {"admissionChecks": [{"name": "late", "onFlavors": ["reservation"]}]}
    kin = story_7(admissionChecksStrategy=strategy, **spec)
    deferred = {"controllerName": "ctl", "preemptionPolicy": "AfterCheckPassedOrOnDemand"}
    kin.put("AdmissionCheck", "late", deferred)
    return kin


def runs_on_demand(kin: FamilyScheduler, *, r1_priority: int = 0) -> None:
    """Job ``r1`` runs on all reserved gpus, so family ``j`` runs on demand."""
    kin.job("r1", "q", [(1, {"gpu": "8"})], age=100, priority=r1_priority)
    kin.settle()
    if kin.admission("r1") is not None and not kin.confirmed:
        kin.says_ready("r1")
        kin.settle()
    kin.family("j", "q", TAGS, PODS)
    kin.settle()
    assert kin.stored["j"].status.admitted_variant == "j.on-demand"


def runs_on_demand_and_reserved_better(kin: FamilyScheduler) -> None:
    """Family ``j`` runs on demand, and its reservation waits for a check."""
    runs_on_demand(kin, r1_priority=5)
    kin.gone("r1")
    kin.settle()
    assert kin.holds("j.reservation")


def test_an_upgrade_needs_only_what_the_family_has_not() -> None:
    kin = story_7()
    runs_on_demand(kin)
    kin.gone("r1")
    # Of the 30 cpus only 10 are free, and it asks for 20.
    assert kin.settle() == ["j.reservation"]
    assert kin.used("q") == {
        ("reservation", "gpu"): 8,
        ("on-demand", "gpu"): 8,
        ("cpu-only", "cpu"): 20_000,
    }
    kin.end_swap("j")
    assert kin.used("q") == {("reservation", "gpu"): 8, ("cpu-only", "cpu"): 20_000}


def test_a_decision_lists_quota_beyond_what_the_family_holds() -> None:
    kin = story_7()
    runs_on_demand(kin)
    kin.gone("r1")
    kin.cycle()
    (told,) = kin.decided
    assert [(one.flavor, one.resource, one.amount) for one in told.taken] == [
        ("reservation", "gpu", 8)
    ]
    booked = [one.resource_usage for one in told.admission.pod_set_assignments]
    assert booked == [{"cpu": "4"}, {"cpu": "16", "gpu": "8"}], "and is booked as a whole"


def test_quota_held_by_a_family_is_not_free_for_others() -> None:
    kin = with_slow_reservation()
    runs_on_demand_and_reserved_better(kin)
    kin.job("stranger", "q", [(1, {"cpu": "11"})], age=50)
    assert kin.settle() == []
    assert kin.parked() == ["stranger"]
    kin.job("small", "q", [(1, {"cpu": "10"})])
    assert kin.settle() == ["small"]


def test_a_waiting_variant_is_tried_again_when_its_family_gets_quota() -> None:
    kin = with_slow_reservation(cpu="20")
    kin.job("x", "q", [(1, {"cpu": "1"})], age=100)
    kin.settle()
    kin.family("j", "q", TAGS, PODS, age=10)
    kin.family("k", "q", TAGS, PODS)
    kin.settle()
    assert kin.parked() == ["j", "k"]
    # Stored by an earlier leader: 20 cpus, of which one is too many.
    kin.reserve("j.on-demand", "q", ON_DEMAND)
    kin.admit("j.on-demand")
    assert kin.settle() == ["j.reservation"]
    assert kin.parked() == ["k"], "no other workload had room"


def test_reclaimed_pods_reduce_promised_quota_once() -> None:
    kin = story_7()
    kin.family("j", "q", TAGS, PODS)
    promised = kin.as_admission("j.on-demand", "q", {"cpu": "cpu-only"}, ON_DEMAND)
    kin.change("j.on-demand", promised=promised)
    assert kin.used("q") == {("on-demand", "gpu"): 8, ("cpu-only", "cpu"): 20_000}
    kin.reclaim("j.on-demand", 0, 1)
    left = {("on-demand", "gpu"): 6, ("cpu-only", "cpu"): 16_000}
    assert kin.used("q") == kin.should_be_used()["q"] == left


def assert_counters(kin: FamilyScheduler, *, reserved_gpus: int) -> None:
    """The counters of both queues show one family, admitted on demand; its reservation is
    promised ``reserved_gpus``.
    """
    reply = kin.core.queues(Queues(cluster_queue="q"))
    for status in (*reply.cluster_queues, *reply.local_queues):
        rows = {(row.flavor, row.resource): (row.reserved, row.admitted) for row in status.usage}
        assert rows == {
            ("reservation", "gpu"): (reserved_gpus, 0),
            ("on-demand", "gpu"): (8, 8),
            ("cpu-only", "cpu"): (20_000, 20_000),
        }
        assert (status.reserving, status.admitted, status.pending) == (1, 1, 0)


def test_queue_counters_count_a_family_once_without_promised_quota() -> None:
    kin = story_7()
    runs_on_demand(kin)
    kin.gone("r1")
    kin.settle()
    assert_counters(kin, reserved_gpus=0)


def test_both_are_shown_where_the_better_one_is_reserved() -> None:
    kin = with_slow_reservation()
    runs_on_demand_and_reserved_better(kin)
    assert_counters(kin, reserved_gpus=8)


# Strangers. -----------------------------------------------------------------------------------

LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def test_quota_held_by_both_variants_needs_both_as_victims() -> None:
    kin = with_slow_reservation(**LOWER)
    runs_on_demand_and_reserved_better(kin)
    kin.stubborn = True
    kin.job("stranger", "q", [(1, {"cpu": "11"})], priority=9)
    kin.cycle()
    assert sorted(one.name for one in kin.preempted) == ["j.on-demand", "j.reservation"]


def test_quota_held_by_one_variant_needs_one_victim() -> None:
    kin = with_slow_reservation(**LOWER)
    runs_on_demand_and_reserved_better(kin)
    kin.stubborn = True
    kin.job("stranger", "q", [(1, {"gpu": "9"})], priority=9)
    kin.cycle()
    assert not kin.preempted, "no flavor has so many"
    kin.job("other", "q", [(1, {"gpu": "8", "cpu": "10"})], priority=9)
    kin.cycle()
    (told,) = kin.decided
    assert [one.name for one in told.preempts] == ["j.reservation"], "it has started nothing"


def test_a_sole_holder_is_preferred_to_two_shared_holders() -> None:
    kin = with_slow_reservation(**LOWER)
    runs_on_demand_and_reserved_better(kin)
    kin.now += timedelta(minutes=1)
    kin.job("lone", "q", [(1, {"cpu": "10"})])
    kin.settle()
    kin.stubborn = True
    kin.job("stranger", "q", [(1, {"cpu": "10"})], priority=9)
    kin.cycle()
    assert [one.name for one in kin.preempted] == ["lone"]


def test_no_sibling_is_preempted_for_a_sibling() -> None:
    kin = with_slow_reservation(**LOWER)
    runs_on_demand(kin, r1_priority=5)
    kin.job("x", "q", [(1, {"cpu": "10"})], priority=5)
    kin.settle()
    # Their parent matters more from now on, and only one of them has heard it yet.
    kin.respec("j.reservation", priority=1)
    member = kin.member("j.reservation")
    node = kin.queue_of("q").node
    assert node is not None
    need = {node.cells["cpu-only", "cpu"]: 1_000}
    search = kin.core._cycle.search(kin.queue_of("q"), member)
    assert search.victims(need, {("cpu-only", "cpu"): None}) == []
    kin.family("k", "q", TAGS, PODS, priority=1)
    search = kin.core._cycle.search(kin.queue_of("q"), kin.member("k.reservation"))
    found = search.victims(need, {("cpu-only", "cpu"): None})
    assert [one.workload.key[1] for one in found] == ["j.on-demand"], "but it does for others"


def test_victims_of_one_family_are_named_as_one_workload() -> None:
    kin = with_slow_reservation()
    runs_on_demand_and_reserved_better(kin)
    going = [
        Victim(kin.member(name), "InClusterQueue") for name in ("j.on-demand", "j.reservation")
    ]
    assert named(going) == "1 workload (ns/j at priority 0)"


def test_a_plan_for_one_resource_leaves_the_family_the_other() -> None:
    kin = story_7_with_late_preemption(**LOWER)
    kin.job("r1", "q", [(1, {"gpu": "8"})], age=100, priority=-5)
    kin.settle()
    kin.says_ready("r1")
    kin.settle()
    kin.stubborn = True
    kin.family("j", "q", TAGS, PODS)
    kin.settle()
    pending = kin.stored["j.reservation"].status.pending_preemption
    assert pending is not None and [one.name for one in pending.victims] == ["r1"]
    # Of 30 cpus the reservation has 20: no others are needed to run on demand meanwhile.
    assert kin.stored["j"].status.admitted_variant == "j.on-demand"
    kin.says_ready("j.reservation")
    kin.settle()
    assert [one.name for one in kin.told] == ["r1"], "nor are they when the plan is carried out"
    assert kin.revoked == []
    kin.stops("r1")
    kin.settle()
    assert kin.confirmed[-1] == "j.reservation"


# Cuts. ----------------------------------------------------------------------------------------


def cut(kin: FamilyScheduler, cpu: str, **spec: Any) -> None:
    """Reduces the cpu quota of the queue."""
    strategy = {"admissionChecks": [{"name": "slow", "onFlavors": ["reservation"]}]}
    kin.queue(
        "q",
        resourceGroups=both({"reservation": "8", "on-demand": "8"}, cpu),
        concurrentAdmission=explicit("reservation", "on-demand"),
        admissionChecksStrategy=strategy,
        **spec,
    )


def test_a_cut_spares_a_reservation_covered_by_its_siblings_usage() -> None:
    kin = with_slow_reservation()
    runs_on_demand_and_reserved_better(kin)
    cut(kin, "10")
    kin.settle()
    assert kin.revoked == []
    kin.says_ready("j.reservation")
    kin.settle()
    assert kin.confirmed[-1:] == ["j.reservation"], "nor does it keep it from being admitted"


def test_a_cut_takes_reservations_of_one_family_together() -> None:
    kin = story_7()
    kin.family("j", "q", TAGS, PODS)
    kin.reserve("j.on-demand", "q", ON_DEMAND)
    kin.reserve("j.reservation", "q", RESERVATION)
    cut(kin, "10")
    kin.cycle()
    assert sorted(kin.revoked) == ["j.on-demand", "j.reservation"]


def test_a_quota_cut_that_evicts_takes_the_whole_family() -> None:
    kin = with_slow_reservation(onQuotaCut="evict")
    runs_on_demand_and_reserved_better(kin)
    cut(kin, "10", onQuotaCut="evict")
    kin.stubborn = True
    kin.cycle()
    assert sorted(kin.revoked) == ["j.on-demand", "j.reservation"]


def test_two_reservations_are_no_excuse_for_each_other() -> None:
    kin = with_slow_reservation()
    kin.family("j", "q", TAGS, PODS)
    kin.reserve("j.on-demand", "q", ON_DEMAND)
    kin.reserve("j.reservation", "q", RESERVATION)
    assert not exceeds_quota(kin.member("j.reservation"))
    cut(kin, "10")
    assert exceeds_quota(kin.member("j.reservation"))


# Shares. --------------------------------------------------------------------------------------


@pytest.fixture
def fair() -> FamilyScheduler:
    """Queue ``q`` has nothing of its own, and borrows what ``lender`` has."""
    kin = FamilyScheduler(Config(fair_sharing=FairSharing()))
    for flavor in ("best", "worst"):
        kin.flavor(flavor)
    kin.put("AdmissionCheck", "slow", {"controllerName": "ctl"})
    policy = {"migrationConstraints": {"mode": "UpgradeOnly"}}
    kin.queue("q", "co", resourceGroups=groups(best="0", worst="0"), concurrentAdmission=policy)
    kin.queue("lender", "co", resourceGroups=groups(best="10", worst="10"))
    kin.family("j", "q", {"best": ("best",), "worst": ("worst",)}, [(1, {"cpu": "4"})])
    return kin


def share(kin: FamilyScheduler) -> float:
    node = kin.queue_of("q").node
    assert node is not None
    return share_of(node).ratio


def test_a_share_counts_only_the_variant_that_is_admitted(fair: FamilyScheduler) -> None:
    fair.reserve("j.worst", "q", {"cpu": "worst"})
    fair.admit("j.worst")
    alone = share(fair)
    assert alone == pytest.approx(200)
    fair.reserve("j.best", "q", {"cpu": "best"})
    assert share(fair) == alone
    fair.lose("j.worst", "FlavorMigration")
    assert share(fair) == alone, "and then the other one"
    fair.lose("j.best", "Preempted")
    assert share(fair) == 0


def test_the_request_of_a_variant_replaces_its_family_quota(fair: FamilyScheduler) -> None:
    fair.reserve("j.worst", "q", {"cpu": "worst"})
    fair.admit("j.worst")
    node = fair.queue_of("q").node
    overlap = fair.member("j.worst").family_quota
    assert node is not None and overlap is not None
    best, worst = node.cells["best", "cpu"], node.cells["worst", "cpu"]
    overlap.assume({best: 6_000})
    assert (best.usage, worst.usage) == (6_000, 4_000)
    assert share(fair) == pytest.approx(300)
    overlap.end_assumption()
    assert (best.usage, worst.usage) == (0, 4_000)
    assert share(fair) == pytest.approx(200)


def test_before_an_admission_the_best_reservation_counts_in_shares(fair: FamilyScheduler) -> None:
    fair.family("k", "q", {"best": ("best",), "worst": ("worst",)}, [(1, {"cpu": "2"})])
    fair.reserve("j.best", "q", {"cpu": "best"})
    fair.reserve("j.worst", "q", {"cpu": "worst"})
    overlap = fair.member("j.best").family_quota
    assert overlap is not None and overlap.counts is fair.member("j.best")
    assert share(fair) == pytest.approx(200)
    fair.reserve("k.worst", "q", {"cpu": "worst"})
    assert share(fair) == pytest.approx(300)


def test_uncounted_quota_moves_with_its_queue(fair: FamilyScheduler) -> None:
    fair.reserve("j.worst", "q", {"cpu": "worst"})
    fair.reserve("j.best", "q", {"cpu": "best"})
    fair.put("Cohort", "co", {"parentName": "top"})
    fair.queue("top-lender", "top", resourceGroups=groups(best="10", worst="10"))
    cohort = fair.core.catalog.tree.cohorts["co"]
    assert share_of(cohort).ratio == 0, "it is within what its lender has"
    fair.queue("lender", "co", resourceGroups=groups(best="0", worst="1"))
    assert share_of(cohort).ratio == pytest.approx(4_000 / 21_000 * 1_000)
    policy = {"migrationConstraints": {"mode": "UpgradeOnly"}}
    fair.queue("q", "other", resourceGroups=groups(best="0", worst="0"), concurrentAdmission=policy)
    assert share_of(cohort).ratio == 0
    assert not any(cell.has_discount for cell in cohort.cells.values())


USAGE_BASED: dict[str, Any] = {
    "config": Config(
        admission_fair_sharing=AdmissionFairSharing(
            usage_half_life_time=timedelta(hours=1), usage_sampling_interval=timedelta(minutes=5)
        )
    ),
    "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
}


def account_of(kin: FamilyScheduler) -> Account:
    """The account of LocalQueue ``q``."""
    accounts = kin.core._state.accounts
    account = None if accounts is None else accounts.of(("ns", "q"))
    assert account is not None
    return account


def test_usage_of_a_local_queue_counts_a_family_once_and_charges_it_once() -> None:
    kin = with_slow_reservation(**USAGE_BASED)
    runs_on_demand_and_reserved_better(kin)
    account = account_of(kin)
    running = dict(account.rate)
    assert account.pending == {}, "no penalty for the one that may take over"
    seen = dict(account.seen)
    kin.says_ready("j.reservation")
    kin.settle()
    kin.end_swap("j")
    assert account.rate == running
    assert account.seen == seen, "moving up costs nothing"
    assert account.pending == {}


def test_two_reservations_of_a_family_are_charged_as_one() -> None:
    kin = story_7(**USAGE_BASED)
    kin.family("j", "q", TAGS, PODS)
    account = account_of(kin)
    kin.reserve("j.on-demand", "q", ON_DEMAND)
    alone = dict(account.pending)
    assert alone["gpu"] > 0
    kin.reserve("j.reservation", "q", RESERVATION)
    assert account.pending == alone
    kin.admit("j.on-demand")
    assert account.pending == {}
    assert account.seen == alone
