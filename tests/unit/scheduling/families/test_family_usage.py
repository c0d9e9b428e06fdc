"""The quota charged for a family, and its effect on other variants and other workloads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.events.requests.queues import Queues
from admittance.scheduling.cycle.decisions import victims_text
from admittance.scheduling.fairsharing.shares import share_of
from admittance.scheduling.fairsharing.usage import Account
from admittance.scheduling.state.config import CohortFairSharing, Config, UsageFairSharing
from admittance.scheduling.state.workload_info import Victim
from support.cores.families.family_queues import both, explicit
from support.cores.families.family_scheduler import FamilyScheduler
from support.cores.stepped_scheduler import groups

ON_DEMAND = {"gpu": "on-demand", "cpu": "cpu-only"}
RESERVATION = {"gpu": "reservation", "cpu": "cpu-only"}
TAGS = {"reservation": ("reservation", "cpu-only"), "on-demand": ("on-demand", "cpu-only")}
PODS = [(1, {"cpu": "4"}), (4, {"gpu": "2", "cpu": "4"})]
"""Story 7: 8 gpus and 20 cpus."""


def story_7(cpu: str = "30", config: Config | None = None, **spec: Any) -> FamilyScheduler:
    """Two gpu flavors of 8 each, and the cpus that both variants share."""
    scheduler = FamilyScheduler(config)
    for flavor in ("reservation", "on-demand", "cpu-only"):
        scheduler.flavor(flavor)
    scheduler.put("AdmissionCheck", "slow", {"controllerName": "ctl"})
    scheduler.queue(
        "q",
        resourceGroups=both({"reservation": "8", "on-demand": "8"}, cpu),
        concurrentAdmission=explicit("reservation", "on-demand"),
        **spec,
    )
    return scheduler


def with_slow_reservation(
    cpu: str = "30", config: Config | None = None, **spec: Any
) -> FamilyScheduler:
    """The same, and the reservation brings a check."""
    strategy = {"admissionChecks": [{"name": "slow", "onFlavors": ["reservation"]}]}
    return story_7(cpu, config, admissionChecksStrategy=strategy, **spec)


def story_7_with_late_preemption(**spec: Any) -> FamilyScheduler:
    """Story 7 with a check of the reservation that preempts only after the check has passed."""
    strategy = {"admissionChecks": [{"name": "late", "onFlavors": ["reservation"]}]}
    scheduler = story_7(admissionChecksStrategy=strategy, **spec)
    deferred = {"controllerName": "ctl", "preemptionPolicy": "AfterCheckPassedOrOnDemand"}
    scheduler.put("AdmissionCheck", "late", deferred)
    return scheduler


def runs_on_demand(scheduler: FamilyScheduler, *, r1_priority: int = 0) -> None:
    """Job ``r1`` runs on all reserved gpus, so family ``j`` runs on demand."""
    scheduler.job("r1", "q", [(1, {"gpu": "8"})], age=100, priority=r1_priority)
    scheduler.settle()
    if scheduler.admission("r1") is not None and not scheduler.confirmed:
        scheduler.passes("r1")
        scheduler.settle()
    scheduler.open_family("j", "q", TAGS, PODS)
    scheduler.settle()
    assert scheduler.stored["j"].status.admitted_variant == "j-on-demand"


def runs_on_demand_and_reserved_better(scheduler: FamilyScheduler) -> None:
    """Family ``j`` runs on demand, and its reservation waits for a check."""
    runs_on_demand(scheduler, r1_priority=5)
    scheduler.gone("r1")
    scheduler.settle()
    assert scheduler.holds("j-reservation")


def test_a_decision_lists_quota_beyond_what_the_family_holds() -> None:
    scheduler = story_7()
    runs_on_demand(scheduler)
    scheduler.gone("r1")
    scheduler.cycle()
    (decision,) = scheduler.decided
    assert [
        (quantity.flavor, quantity.resource, quantity.amount) for quantity in decision.taken
    ] == [("reservation", "gpu", 8)]
    booked = [assignment.resource_usage for assignment in decision.admission.pod_set_assignments]
    assert booked == [{"cpu": "4"}, {"cpu": "16", "gpu": "8"}], "and is booked as a whole"


def test_a_waiting_variant_is_tried_again_when_its_family_gets_quota() -> None:
    scheduler = with_slow_reservation(cpu="20")
    scheduler.job("x", "q", [(1, {"cpu": "1"})], age=100)
    scheduler.settle()
    scheduler.open_family("j", "q", TAGS, PODS, age=10)
    scheduler.open_family("k", "q", TAGS, PODS)
    scheduler.settle()
    assert scheduler.parked() == ["j", "k"]
    # Stored by an earlier leader: 20 cpus, of which one is too many.
    scheduler.reserve("j-on-demand", "q", ON_DEMAND)
    scheduler.admit("j-on-demand")
    assert scheduler.settle() == ["j-reservation"]
    assert scheduler.parked() == ["k"], "no other workload had room"


def test_reclaimed_pods_reduce_promised_quota_once() -> None:
    scheduler = story_7()
    scheduler.open_family("j", "q", TAGS, PODS)
    promised = scheduler.as_admission("j-on-demand", "q", {"cpu": "cpu-only"}, ON_DEMAND)
    scheduler.change("j-on-demand", promised=promised)
    assert scheduler.used("q") == {("on-demand", "gpu"): 8, ("cpu-only", "cpu"): 20_000}
    scheduler.reclaim("j-on-demand", 0, 1)
    left = {("on-demand", "gpu"): 6, ("cpu-only", "cpu"): 16_000}
    assert scheduler.used("q") == scheduler.should_be_used()["q"] == left


def assert_counters(scheduler: FamilyScheduler, *, reserved_gpus: int) -> None:
    """The counters of both queues show one family, admitted on demand; its reservation is
    promised ``reserved_gpus``.
    """
    reply = scheduler.core.queues(Queues(cluster_queue="q"))
    for status in (*reply.cluster_queues, *reply.local_queues):
        rows = {(row.flavor, row.resource): (row.reserved, row.admitted) for row in status.usage}
        assert rows == {
            ("reservation", "gpu"): (reserved_gpus, 0),
            ("on-demand", "gpu"): (8, 8),
            ("cpu-only", "cpu"): (20_000, 20_000),
        }
        assert (status.reserving, status.admitted, status.pending) == (1, 1, 0)


def test_both_are_shown_where_the_better_one_is_reserved() -> None:
    scheduler = with_slow_reservation()
    runs_on_demand_and_reserved_better(scheduler)
    assert_counters(scheduler, reserved_gpus=8)


# Strangers. -----------------------------------------------------------------------------------

LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def test_quota_held_by_both_variants_needs_both_as_victims() -> None:
    scheduler = with_slow_reservation(**LOWER)
    runs_on_demand_and_reserved_better(scheduler)
    scheduler.jobs_stop = False
    scheduler.job("stranger", "q", [(1, {"cpu": "11"})], priority=9)
    scheduler.cycle()
    assert sorted(preemption.name for preemption in scheduler.preempted) == [
        "j-on-demand",
        "j-reservation",
    ]


def test_no_sibling_is_preempted_for_a_sibling() -> None:
    scheduler = with_slow_reservation(**LOWER)
    runs_on_demand(scheduler, r1_priority=5)
    scheduler.job("x", "q", [(1, {"cpu": "10"})], priority=5)
    scheduler.settle()
    # The priority of their parent rises, and only one of the variants has the new priority yet.
    scheduler.respec("j-reservation", priority=1)
    member = scheduler.member("j-reservation")
    node = scheduler.queue_of("q").node
    assert node is not None
    need = {node.cells["cpu-only", "cpu"]: 1_000}
    search = scheduler.core._cycle.search(scheduler.queue_of("q"), member, scheduler.now)
    assert search.victims(need, {("cpu-only", "cpu"): None}) == []
    scheduler.open_family("k", "q", TAGS, PODS, priority=1)
    search = scheduler.core._cycle.search(
        scheduler.queue_of("q"), scheduler.member("k-reservation"), scheduler.now
    )
    removed = search.victims(need, {("cpu-only", "cpu"): None})
    assert [victim.workload.key[1] for victim in removed] == ["j-on-demand"], (
        "but it does for others"
    )


def test_victims_of_one_family_are_named_as_one_workload() -> None:
    scheduler = with_slow_reservation()
    runs_on_demand_and_reserved_better(scheduler)
    going = [
        Victim(scheduler.member(name), "InClusterQueue")
        for name in ("j-on-demand", "j-reservation")
    ]
    assert victims_text(going) == "1 workload (ns/j at priority 0)"


def test_a_plan_for_one_resource_leaves_the_family_the_other() -> None:
    scheduler = story_7_with_late_preemption(**LOWER)
    scheduler.job("r1", "q", [(1, {"gpu": "8"})], age=100, priority=-5)
    scheduler.settle()
    scheduler.passes("r1")
    scheduler.settle()
    scheduler.jobs_stop = False
    scheduler.open_family("j", "q", TAGS, PODS)
    scheduler.settle()
    pending = scheduler.stored["j-reservation"].status.pending_preemption
    assert pending is not None and [victim.name for victim in pending.victims] == ["r1"]
    # Of 30 cpus the reservation has 20: no others are needed to run on demand meanwhile.
    assert scheduler.stored["j"].status.admitted_variant == "j-on-demand"
    scheduler.passes("j-reservation")
    scheduler.settle()
    assert [preemption.name for preemption in scheduler.all_preempted] == ["r1"], (
        "nor are they when the plan is carried out"
    )
    assert scheduler.revoked == []
    scheduler.stops("r1")
    scheduler.settle()
    assert scheduler.confirmed[-1] == "j-reservation"


# Cuts. ----------------------------------------------------------------------------------------


def cut(scheduler: FamilyScheduler, cpu: str, **spec: Any) -> None:
    """Reduces the cpu quota of the queue."""
    strategy = {"admissionChecks": [{"name": "slow", "onFlavors": ["reservation"]}]}
    scheduler.queue(
        "q",
        resourceGroups=both({"reservation": "8", "on-demand": "8"}, cpu),
        concurrentAdmission=explicit("reservation", "on-demand"),
        admissionChecksStrategy=strategy,
        **spec,
    )


def test_a_quota_cut_that_evicts_takes_the_whole_family() -> None:
    scheduler = with_slow_reservation(onQuotaCut="evict")
    runs_on_demand_and_reserved_better(scheduler)
    cut(scheduler, "10", onQuotaCut="evict")
    scheduler.jobs_stop = False
    scheduler.cycle()
    assert sorted(scheduler.revoked) == ["j-on-demand", "j-reservation"]


# Shares. --------------------------------------------------------------------------------------


@pytest.fixture
def fair() -> FamilyScheduler:
    """Queue ``q`` has no own quota, and borrows the quota of ``lender``."""
    scheduler = FamilyScheduler(Config(fair_sharing=CohortFairSharing()))
    for flavor in ("best", "worst"):
        scheduler.flavor(flavor)
    scheduler.put("AdmissionCheck", "slow", {"controllerName": "ctl"})
    policy = {"migrationConstraints": {"mode": "UpgradeOnly"}}
    scheduler.queue(
        "q", "co", resourceGroups=groups(best="0", worst="0"), concurrentAdmission=policy
    )
    scheduler.queue("lender", "co", resourceGroups=groups(best="10", worst="10"))
    scheduler.open_family("j", "q", {"best": ("best",), "worst": ("worst",)}, [(1, {"cpu": "4"})])
    return scheduler


def share(scheduler: FamilyScheduler) -> float:
    node = scheduler.queue_of("q").node
    assert node is not None
    return share_of(node).ratio


def test_the_request_of_a_variant_replaces_its_family_quota(fair: FamilyScheduler) -> None:
    fair.reserve("j-worst", "q", {"cpu": "worst"})
    fair.admit("j-worst")
    node = fair.queue_of("q").node
    overlap = fair.member("j-worst").family_quota
    assert node is not None and overlap is not None
    best, worst = node.cells["best", "cpu"], node.cells["worst", "cpu"]
    overlap.assume({best: 6_000})
    assert (best.usage, worst.usage) == (6_000, 4_000)
    assert share(fair) == pytest.approx(300)
    overlap.end_assumption()
    assert (best.usage, worst.usage) == (0, 4_000)
    assert share(fair) == pytest.approx(200)


USAGE_BASED: dict[str, Any] = {
    "config": Config(
        admission_fair_sharing=UsageFairSharing(
            usage_half_life_time=timedelta(hours=1), usage_sampling_interval=timedelta(minutes=5)
        )
    ),
    "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
}


def account_of(scheduler: FamilyScheduler) -> Account:
    """The account of LocalQueue ``q``."""
    accounts = scheduler.core._state.accounts
    account = None if accounts is None else accounts.of(("ns", "q"))
    assert account is not None
    return account


def test_families_of_one_usage_are_ordered_by_age() -> None:
    scheduler = story_7(cpu="1", **USAGE_BASED)
    for name, age in (("young", 1), ("old", 2)):
        scheduler.open_family(name, "q", TAGS, PODS, age=age)
    scheduler.settle()
    assert [scheduler.why(name).position for name in ("old", "young")] == [1, 2]


def test_two_reservations_of_a_family_are_charged_as_one() -> None:
    scheduler = story_7(**USAGE_BASED)
    scheduler.open_family("j", "q", TAGS, PODS)
    account = account_of(scheduler)
    scheduler.reserve("j-on-demand", "q", ON_DEMAND)
    alone = dict(account.pending)
    assert alone["gpu"] > 0
    scheduler.reserve("j-reservation", "q", RESERVATION)
    assert account.pending == alone
    scheduler.admit("j-on-demand")
    assert account.pending == {}
    assert account.seen == alone
    scheduler.gone("j-on-demand")
    assert account.pending == {}, "the family has paid before"


def test_of_a_family_the_pods_of_the_admitted_variant_must_be_ready() -> None:
    scheduler = FamilyScheduler(Config(block_admission=True))
    scheduler.family_queue()
    scheduler.family("j")
    scheduler.settle()
    assert scheduler.admitted("j") == "best"
    scheduler.submit("x", "cq", "1")
    assert scheduler.settle() == []
    scheduler.change("j-best", conditions={"PodsReady": (True, "Started")})
    assert scheduler.settle() == ["x"]


def test_before_an_admission_the_best_reservation_counts_in_shares(fair: FamilyScheduler) -> None:
    fair.open_family("k", "q", {"best": ("best",), "worst": ("worst",)}, [(1, {"cpu": "2"})])
    fair.reserve("j-best", "q", {"cpu": "best"})
    fair.reserve("j-worst", "q", {"cpu": "worst"})
    overlap = fair.member("j-best").family_quota
    assert overlap is not None and overlap.counts is fair.member("j-best")
    assert share(fair) == pytest.approx(200)
    fair.reserve("k-worst", "q", {"cpu": "worst"})
    assert share(fair) == pytest.approx(300)


def test_the_quota_of_a_family_ends_with_its_last_variant() -> None:
    scheduler = with_slow_reservation()
    scheduler.open_family("j", "q", TAGS, PODS)
    assert scheduler.settle() == ["j-reservation", "j-on-demand"]
    family = scheduler.core._state.workloads["ns", "j-on-demand"].family
    assert family is not None and family.quota is not None
    scheduler.gone("j-reservation")
    assert family.quota is not None and len(family.quota.members) == 1
    scheduler.gone("j-on-demand")
    assert family.quota is None


def test_a_family_counts_once_for_the_limit_of_its_user() -> None:
    scheduler = with_slow_reservation(cpu="60", perUser={"gpu": 8})
    scheduler.open_family("j", "q", TAGS, PODS, age=10)
    assert scheduler.settle() == ["j-reservation", "j-on-demand"]
    assert scheduler.used("q")["on-demand", "gpu"] == 8
    scheduler.open_family("k", "q", TAGS, [(1, {"gpu": "1", "cpu": "1"})])
    assert scheduler.settle() == []
    (status,) = scheduler.core.queues(Queues(cluster_queue="q")).cluster_queues
    assert [(row.resource, row.held, row.most) for row in status.persons] == [("gpu", 8, 8)]
    assert scheduler.why("k-reservation").holders == ("ns/j-on-demand", "ns/j-reservation")
    scheduler.passes("j-reservation")
    scheduler.settle()
    scheduler.stops("j-on-demand")
    assert (scheduler.settle(), scheduler.holds("j-on-demand")) == ([], False)
    scheduler.gone("j-reservation")
    scheduler.gone("j")
    assert "k-reservation" in scheduler.settle()
