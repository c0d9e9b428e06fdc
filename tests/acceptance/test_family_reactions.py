"""Migration of a family to a better variant, and the effects of an eviction of its job. LIFECYCLE
4.6, 4.7, 7.4."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.api.configuration import Configuration, RequeuingStrategy, WaitForPodsReady
from admittance.events import facts
from admittance.events.requests import Queues
from admittance.scheduling.state.config import Config, FairSharing, config_of
from admittance.workload.conditions import find
from admittance.workload.limits import Limits, limits_of
from admittance.workload.stored import head

from family_living import LOWER, FamilyLife, Row, a_family_life

scenario = pytest.mark.scenario
TWO = {"reservation": 4, "on-demand": 4}
THREE = {"reservation": 4, "on-demand": 4, "spot": 8}
BETTER, WORSE = "j-variant-reservation", "j-variant-on-demand"
SLOW = {"reservation": ["slow"]}


def variant(tag: str, *flavors: str, **delays: int) -> dict[str, Any]:
    return {"name": tag, "allowedResourceFlavors": list(flavors) or [tag], **delays}


def preempted_by(life: FamilyLife, flavor: str, gpu: int = 4) -> None:
    """A workload of higher priority takes the quota of the job."""
    life.foreigner("p", flavor, gpu)


# Moving up. ---------------------------------------------------------------------------------


@scenario("D6")
def test_it_moves_to_the_better_flavor_that_came_free() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    assert life.on() == "on-demand"
    life.at(100)
    life.done("r1")
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0")
    assert life.evicted_for("j") == ["VariantEvicted"]
    assert life.reason(WORSE, "Evicted") == "True: FlavorMigration"
    causes = [one.underlying_cause for one in life.said if isinstance(one, facts.Evicted)]
    assert causes == ["FlavorMigration"]


@scenario("D7")
def test_it_does_not_move_to_less_than_the_floor() -> None:
    foreign = {"r1": "reservation", "o1": "on-demand"}
    life = a_family_life(THREE, floor="reservation", foreign=foreign)
    life.job()
    life.at(100)
    life.done("o1")
    life.at(86_400)
    assert life.row() == Row("spot", "reservation spot", 0, 1, "4/0/4")


@scenario("D6")
def test_quota_for_a_migrating_variant_goes_to_no_other_workload() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    life.stubborn.add("j")
    life.at(100)
    life.finish("r1")
    life.job("k", allowed=["reservation"])
    assert life.phases("j", "k") == ["Evicting", "Pending"]
    assert life.reason(BETTER, "QuotaReserved") == "False: WaitingForPreemptedWorkloads"
    assert life.message(BETTER, "QuotaReserved") == "Pending the migration of 1 workload(s)"
    assert life.used() == "0/4", "a promise is no usage"
    life.at(130)
    life.stop("j")
    life.go()
    assert (life.on("j"), life.on("k")) == ("reservation", "")
    assert life.lived("j") == [("started", 0), ("stopped", 130), ("started", 130)]


@scenario("D6")
def test_a_job_that_never_reports_its_stop_moves_after_the_drain_timeout() -> None:
    life = a_family_life(
        TWO, foreign={"r1": "reservation"}, limits=Limits(drain=timedelta(seconds=60))
    )
    life.job()
    life.stubborn.add("j")
    life.at(100)
    life.done("r1")
    life.at(159)
    assert life.phase("j") == "Evicting"
    life.at(160)
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0")
    assert "ForcedRelease" in life.noted("j")


@scenario("D6", "D17")
def test_a_family_starts_over_when_the_next_variant_loses_its_quota() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    life.stubborn.add("j")
    life.at(100)
    life.done("r1")
    life.offer({"reservation": 0, "on-demand": 4})
    life.at(130)
    life.stop("j")
    life.go()
    assert life.row() == Row("on-demand", "reservation on-demand", 1, 2, "0/4")
    assert life.lived() == [("started", 0), ("stopped", 130), ("started", 130)]


@scenario("D6", "D17")
@pytest.mark.parametrize("checked", [True, False], ids=["reserved", "promised"])
def test_a_family_starts_over_when_the_next_variant_is_deactivated(checked: bool) -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"}, checks=SLOW if checked else {})
    if checked:
        life.judge("r1", "slow", "Ready")
    life.job()
    life.stubborn.add("j")
    life.at(100)
    life.done("r1")
    if checked:
        life.judge(BETTER, "slow", "Ready")
    assert life.phase("j") == "Evicting"
    life.say(facts.Deactivated, BETTER)
    life.go()
    life.at(130)
    life.stop("j")
    life.go()
    assert life.row() == Row("on-demand", "on-demand", 1, 2, "0/4")
    assert life.lived() == [("started", 0), ("stopped", 130), ("started", 130)]


def in_the_middle(*, explicit: bool = False, **more: Any) -> FamilyLife:
    """The job stops for the reservation, and takes its time; it began on-demand."""
    tags = [variant("reservation"), variant("on-demand")] if explicit else []
    life = a_family_life(TWO, explicit=tags, foreign={"r1": "reservation"}, **more)
    life.job()
    life.stubborn.add("j")
    life.at(100)
    life.done("r1")
    assert life.phase("j") == "Evicting"
    return life


def stopped(life: FamilyLife) -> None:
    life.at(130)
    life.stop("j")
    life.go()


@scenario("D6", "D17")
@pytest.mark.parametrize("stop", ["Hold", "HoldAndDrain"])
def test_a_queue_stopped_during_a_swap_starts_no_variant(stop: str) -> None:
    life = in_the_middle()
    life.says(stopPolicy=stop)
    life.go()
    stopped(life)
    assert (life.on(), life.used()) == ("", "0/0")
    life.at(200)
    life.says(stopPolicy="None")
    life.go()
    assert life.on() == "reservation"
    assert life.lived() == [("started", 0), ("stopped", 130), ("started", 200)]


@scenario("D5", "D6")
def test_a_swap_is_undone_when_its_target_is_no_longer_allowed() -> None:
    life = in_the_middle(explicit=True)
    life.offer({"reservation": 4, "on-demand": 4, "spot": 4})
    life.policy(explicit=[variant("reservation", "spot"), variant("on-demand")])
    life.go()
    stopped(life)
    assert life.flavors_of("j-variant-reservation") <= {"spot"}
    assert life.on() == "spot"


@scenario("D5", "D6")
def test_the_policy_can_be_removed_during_a_swap() -> None:
    life = in_the_middle()
    life.says(concurrentAdmission=None)
    life.go()
    stopped(life)
    assert head(life.stored("j")).role == "regular"
    assert life.on() == "reservation"
    assert life.variants() == {}
    life.at(200)
    life.policy()
    life.done("j")
    assert life.used() == "0/0"


@scenario("D5", "D6")
def test_a_changed_mode_during_a_swap_leaves_the_job_with_quota() -> None:
    life = in_the_middle()
    life.policy("NoMigration")
    life.go()
    stopped(life)
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0")


@scenario("D5", "D6")
@pytest.mark.parametrize("gone", ["reservation", "on-demand"])
def test_a_flavor_can_be_removed_during_a_swap(gone: str) -> None:
    life = in_the_middle()
    left = {flavor: much for flavor, much in TWO.items() if flavor != gone}
    life.offer(left)
    life.go()
    stopped(life)
    (on,) = left
    assert (life.on(), life.active(), life.used()) == (on, on, "4")
    assert life.lived() == [("started", 0), ("stopped", 130), ("started", 130)]


@scenario("D6", "D22")
def test_the_job_can_finish_during_a_swap() -> None:
    life = in_the_middle()
    life.done("j")
    assert life.phase("j") == "Finished"
    assert life.used() == "0/0"
    life.job("k")
    assert life.on("k") == "reservation"


@scenario("D6", "D17")
def test_a_family_starts_over_when_the_reserved_variant_is_preempted() -> None:
    life = a_family_life(TWO, checks=SLOW, preemption=LOWER)
    life.job()
    life.stubborn.add("j")
    life.at(100)
    life.judge(BETTER, "slow", "Ready")
    assert life.phase("j") == "Evicting"
    life.foreigner("p", "reservation")
    assert life.states("p") == {"slow": "Pending"}
    stopped(life)
    assert life.on() == "on-demand"
    assert life.lived() == [("started", 0), ("stopped", 130), ("started", 130)]


@scenario("D6", "D22")
def test_a_parent_deleted_during_a_swap_leaves_no_variant() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    life.stubborn.add("j")
    life.at(100)
    life.done("r1")
    assert life.phase("j") == "Evicting"
    life.say(facts.Deleted, "j")
    life.go()
    life.stop("j")
    life.go()
    assert not any(map(life.has, ("j", BETTER, WORSE)))
    assert life.used() == "0/0"
    life.job("k")
    assert life.on("k") == "reservation"


def fair() -> FamilyLife:
    """``cq`` owns nothing and borrows from ``lender``."""
    life = FamilyLife(Config(fair_sharing=FairSharing()))
    life.offer(TWO, checks=SLOW)
    rows = life.offered["resourceGroups"]
    life.queue("lender", cohort="all", resourceGroups=rows)
    life.offer({"reservation": 0, "on-demand": 0}, checks=SLOW, cohortName="all")
    life.policy()
    return life


def share(life: FamilyLife) -> int | None:
    (status,) = life.core.queues(Queues(cluster_queue="cq", local_queues=False)).cluster_queues
    return status.weighted_share


@scenario("D15")
def test_while_the_better_one_is_judged_the_job_runs_and_the_share_counts_once() -> None:
    life = fair()
    life.job("alone", allowed=["on-demand"])
    once = share(life)
    assert once
    life.done("alone")
    assert share(life) == 0
    life.job()
    assert (life.on(), life.reserved(), life.used()) == ("on-demand", "reservation", "4/4")
    for moment in (0, 300, 599):
        life.at(moment)
        assert life.phase("j") == "Admitted"
        assert share(life) == once
    life.at(600)
    life.judge(BETTER, "slow", "Ready")
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0")
    assert share(life) == once
    assert life.lived() == [("started", 0), ("stopped", 600), ("started", 600)]


@scenario("D15")
def test_an_admitted_one_with_checks_runs_until_the_better_one_is_through() -> None:
    checks = {"reservation": ["slow"], "on-demand": ["quick"]}
    life = a_family_life(TWO, checks=checks)
    life.job()
    assert life.reserved() == "reservation on-demand"
    life.at(10)
    life.judge(WORSE, "quick", "Ready")
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4")
    life.at(609)
    assert life.lived() == [("started", 10)]
    life.at(610)
    life.judge(BETTER, "slow", "Ready")
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0")
    assert life.withdrawn("quick", WORSE)


@scenario("D15")
def test_two_that_are_ready_at_once_are_not_both_admitted() -> None:
    checks = {"reservation": ["slow"], "on-demand": ["quick"]}
    life = a_family_life(TWO, checks=checks)
    life.job()
    life.at(10)
    life.answer(WORSE, "quick", "Ready")
    life.answer(BETTER, "slow", "Ready")
    life.go()
    assert life.row() == Row("reservation", "reservation", 0, 1, "4/0")
    assert life.lived() == [("started", 10)]


@scenario("D16")
def test_a_rejected_better_variant_does_not_affect_its_siblings() -> None:
    life = a_family_life(TWO, checks=SLOW)
    life.job()
    life.at(100)
    life.judge(BETTER, "slow", "Rejected")
    assert life.row() == Row("on-demand", "on-demand", 0, 1, "0/4")
    assert life.why() == {"reservation": "Rejected", "on-demand": "admitted"}
    life.at(86_400)
    assert life.row() == Row("on-demand", "on-demand", 0, 1, "0/4")
    assert life.lived() == [("started", 0)]
    assert len(life.requests("slow")) == 1


@scenario("D16")
def test_a_better_one_that_is_put_off_tries_again_after_its_delay() -> None:
    life = a_family_life(TWO, checks=SLOW)
    life.job()
    life.at(100)
    life.judge(BETTER, "slow", "Retry", after=60)
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "0/4")
    life.at(159)
    assert (life.phase(BETTER), life.used()) == ("Backoff", "0/4")
    life.at(160)
    assert (life.phase(BETTER), life.used()) == ("QuotaReserved", "4/4")
    assert len(life.requests("slow")) == 2
    life.judge(BETTER, "slow", "Ready")
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0")
    assert life.lived() == [("started", 0), ("stopped", 160), ("started", 160)]


@scenario("D16")
def test_a_delayed_variant_does_not_delay_its_siblings() -> None:
    life = a_family_life(TWO, checks={**SLOW, "on-demand": ["quick"]}, foreign={"x": "on-demand"})
    life.judge("x", "quick", "Ready")
    life.job()
    life.judge(BETTER, "slow", "Retry", after=600)
    life.at(10)
    life.done("x")
    assert life.reserved() == "on-demand"
    life.judge(WORSE, "quick", "Ready")
    assert life.on() == "on-demand"


@scenario("D6", "D15")
@pytest.mark.parametrize("policy", ["Anytime", "AfterCheckPassedOrOnDemand"])
def test_a_family_migrates_once_to_a_flavor_freed_by_preemption(policy: str) -> None:
    life = FamilyLife()
    life.check("slow", preemptionPolicy=policy)
    life.offer(TWO, checks=SLOW, preemption=LOWER)
    life.foreigner("r1", "reservation", priority=-1)
    life.judge("r1", "slow", "Ready")
    life.policy()
    life.job(priority=100)
    assert life.on() == "on-demand"
    assert life.reserved() == "reservation"
    life.at(600)
    life.judge(BETTER, "slow", "Ready")
    assert life.preempted() == [("r1", BETTER)]
    assert life.row() == Row("reservation", "reservation", 1, 2, "4/0")
    assert life.lived() == [("started", 0), ("stopped", 600), ("started", 600)]
    assert life.phase("r1") == "Pending"


# Evicted by others. -------------------------------------------------------------------------


@scenario("D17")
def test_a_preempted_family_starts_over_with_all_variants() -> None:
    explicit = [
        variant("reservation"), variant("on-demand"), variant("spot", createDelaySeconds=300),
    ]  # fmt: skip
    checks = {"reservation": ["slow"], "on-demand": ["quick"]}
    life = a_family_life(THREE, explicit=explicit, checks=checks, preemption=LOWER)
    life.job()
    life.at(10)
    life.judge(WORSE, "quick", "Ready")
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4/0")
    cycle = life.stored(BETTER).status.admission_cycle
    life.at(1000)
    preempted_by(life, "on-demand")
    assert life.row() == Row("", "reservation on-demand", 0, 1, "4/4/0")
    assert life.why()["spot"] == "createDelay"
    assert life.stored(BETTER).status.admission_cycle == cycle + 1
    assert life.states(BETTER) == {"slow": "Pending"}
    assert len(life.requests("slow", BETTER)) == 2
    assert life.reason(WORSE, "Evicted") == "True: Preempted"
    assert life.reason("j", "Evicted") == "True: VariantEvicted"
    life.at(1299)
    assert life.row() == Row("", "reservation on-demand", 0, 1, "4/4/0")
    life.at(1300)
    assert life.row() == Row("spot", "reservation on-demand spot", 0, 2, "4/4/4")


@scenario("D17")
def test_a_preempted_reservation_of_a_variant_leaves_the_job_running() -> None:
    explicit = [variant("reservation"), variant("on-demand", createDelaySeconds=300)]
    life = a_family_life(TWO, explicit=explicit, checks=SLOW, preemption=LOWER)
    life.job()
    assert life.reserved() == "reservation"
    life.at(100)
    preempted_by(life, "reservation")
    assert life.stored("j").status.family_start is None
    life.at(299)
    assert life.active() == "reservation"
    life.at(300)
    assert life.on() == "on-demand"
    assert life.evicted_for("j") == []


@scenario("D31")
def test_rejected_variants_compete_again_after_a_preemption() -> None:
    life = a_family_life(TWO, checks=SLOW, preemption=LOWER)
    life.job()
    life.judge(BETTER, "slow", "Rejected")
    assert life.active() == "on-demand"
    life.at(100)
    preempted_by(life, "on-demand")
    assert life.row() == Row("", "reservation on-demand", 0, 1, "4/4")
    assert life.reserved() == "reservation"
    life.judge(BETTER, "slow", "Ready")
    assert life.on() == "reservation"


@scenario("D31")
def test_a_users_stop_outlasts_a_preemption() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"}, preemption=LOWER)
    life.job()
    life.say(facts.Deactivated, BETTER)
    life.go()
    assert life.why()["reservation"] == "User"
    life.done("r1")
    life.at(100)
    preempted_by(life, "on-demand")
    life.at(200)
    assert life.row() == Row("", "on-demand", 0, 1, "0/4")
    life.say(facts.Activated, BETTER)
    life.go()
    assert life.row() == Row("reservation", "reservation", 0, 2, "4/4")


@scenario("D31")
def test_rejected_variants_stay_inactive_after_a_check_s_retry() -> None:
    checks = {"reservation": ["slow"], "on-demand": ["quick"]}
    life = a_family_life(THREE, checks=checks, foreign={"s1": "spot"})
    life.job()
    life.judge(BETTER, "slow", "Rejected")
    life.judge(WORSE, "quick", "Ready")
    assert life.row() == Row("on-demand", "on-demand", 0, 1, "0/4/8")
    life.at(100)
    life.judge(WORSE, "quick", "Retry", after=60)
    assert life.row() == Row("", "on-demand spot", 0, 1, "0/0/8")
    assert life.why()["reservation"] == "Rejected"
    assert life.phase("j") == "Pending"
    life.at(159)
    assert life.phase(WORSE) == "Backoff"
    life.at(160)
    assert (life.reserved(), life.used()) == ("on-demand", "0/4/8")
    life.done("s1")
    assert life.row() == Row("spot", "on-demand spot", 0, 2, "0/4/4")


@scenario("D31")
def test_siblings_compete_at_once_when_a_check_delays_a_variant() -> None:
    life = a_family_life(TWO, checks=SLOW, foreign={"x": "on-demand"})
    life.job()
    life.judge(BETTER, "slow", "Ready")
    assert life.on() == "reservation"
    life.done("x")
    life.at(100)
    life.judge(BETTER, "slow", "Retry", after=600)
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 2, "0/4")
    assert life.lived() == [("started", 0), ("stopped", 100), ("started", 100)]


@scenario("D31")
def test_siblings_of_a_variant_rejected_after_admission_compete() -> None:
    life = a_family_life(TWO, checks=SLOW)
    life.job()
    life.judge(BETTER, "slow", "Ready")
    life.at(100)
    life.judge(BETTER, "slow", "Rejected")
    assert life.row() == Row("on-demand", "on-demand", 1, 3, "0/4")
    assert life.why()["reservation"] == "Rejected"
    life.at(86_400)
    assert life.active() == "on-demand"


@scenario("D31")
def test_a_parent_is_rejected_only_when_all_variants_are() -> None:
    checks = {"reservation": ["slow"], "on-demand": ["quick"]}
    life = a_family_life(TWO, checks=checks)
    life.job()
    life.judge(BETTER, "slow", "Rejected")
    assert (life.phase("j"), life.active()) == ("Pending", "on-demand")
    life.judge(WORSE, "quick", "Rejected")
    assert life.phase("j") == "Rejected"
    assert life.used() == "0/0"
    life.at(86_400)
    assert life.phase("j") == "Rejected"
    life.say(facts.Activated, "j")
    life.go()
    assert life.reserved() == "reservation on-demand"


@scenario("D17")
@pytest.mark.parametrize("drains", [True, False], ids=["drained", "held"])
def test_a_stopped_queue_stops_the_job_if_it_drains_and_all_start_as_new(drains: bool) -> None:
    explicit = [variant("reservation"), variant("on-demand", createDelaySeconds=300)]
    life = a_family_life(TWO, explicit=explicit)
    life.job()
    life.at(1000)
    life.says(stopPolicy="HoldAndDrain" if drains else "Hold")
    life.go()
    assert life.on() == ("" if drains else "reservation")
    life.at(2000)
    life.says(stopPolicy="None")
    life.go()
    assert life.on() == "reservation"
    assert life.starts("j") == (2 if drains else 1)
    if drains:
        assert life.reason("j", "Evicted").endswith("QuotaReserved")
        assert life.lived() == [("started", 0), ("stopped", 1000), ("started", 2000)]


@scenario("D17")
def test_a_lost_node_starts_the_family_over() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    life.at(100)
    admitted = life.stored("j").status.admitted_revision
    life.say(facts.Stopped, "j", revision=admitted, reason="NodeFailures")
    life.go()
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 2, "4/4")


# Traps. -------------------------------------------------------------------------------------


@scenario("D23")
def test_a_variant_left_for_a_better_one_can_be_admitted_again() -> None:
    foreign = {"r1": "reservation", "o1": "on-demand"}
    life = a_family_life(THREE, foreign=foreign, preemption=LOWER)
    life.job()
    life.done("o1")
    assert (life.on(), life.active()) == ("on-demand", "reservation on-demand")
    assert life.phase("j-variant-spot") == "Deactivated"
    life.at(100)
    preempted_by(life, "on-demand")
    assert life.row() == Row("spot", "reservation on-demand spot", 1, 3, "4/4/4")
    requeued = find(life.stored("j-variant-spot"), "Requeued")
    assert requeued is None or requeued.status == "True"


@scenario("D23")
def test_a_rejected_variant_stays_inactive_while_none_is_admitted() -> None:
    life = a_family_life(TWO, checks=SLOW, foreign={"x": "on-demand"})
    life.job()
    life.judge(BETTER, "slow", "Rejected")
    for _ in range(10):
        life.advance(600)
        assert (life.active(), life.phase("j")) == ("on-demand", "Pending")
    assert len(life.requests("slow")) == 1
    life.done("x")
    assert life.on() == "on-demand"


def patient(limit: int | None = None, **more: Any) -> FamilyLife:
    waits = WaitForPodsReady(
        timeout="30s",
        recovery_timeout="30s",
        requeuing_strategy=RequeuingStrategy(backoff_limit_count=limit, backoff_base_seconds=60),
    )
    configuration = Configuration(wait_for_pods_ready=waits)
    return a_family_life(
        TWO,
        foreign={"r1": "reservation"},
        config=config_of(configuration),
        limits=limits_of(configuration),
        **more,
    )


def ready(life: FamilyLife, *names: str) -> None:
    for name in names:
        life.ready(name)
    life.go()


@scenario("D23")
def test_pods_that_are_never_ready_stop_the_variant_with_a_delay() -> None:
    life = patient()
    ready(life, "r1")
    life.job()
    life.at(29)
    assert life.on() == "on-demand"
    life.at(30)
    assert life.phase("j") == "Backoff"
    assert (life.count("j"), life.wait("j")) == (1, 60)
    assert life.reason("j", "Evicted") == "True: PodsReadyTimeout"
    assert life.reason(WORSE, "Evicted") == "True: PodsReadyTimeout"
    assert life.used() == "4/0"
    assert life.evictions(WORSE) == {"PodsReadyTimeout": 1}
    assert life.count(WORSE) is None
    life.done("r1")
    life.at(89)
    assert (life.phase("j"), life.used()) == ("Backoff", "0/0"), "no variant of the family competes"
    life.at(90)
    assert life.row() == Row("reservation", "reservation", 0, 2, "4/0")
    assert life.lived() == [("started", 0), ("stopped", 30), ("started", 90)]


@scenario("D23")
def test_pods_that_are_not_ready_too_often_end_the_family() -> None:
    life = patient(limit=1)
    ready(life, "r1")
    life.job()
    life.at(30)
    assert (life.phase("j"), life.count("j")) == ("Backoff", 1)
    life.at(90)
    assert life.on() == "on-demand"
    life.at(120)
    assert life.phase("j") == "Deactivated"
    assert life.reason("j", "Evicted") == "True: DeactivatedDueToRequeuingLimitExceeded"
    assert life.active() == ""
    assert life.used() == "4/0"
    life.at(86_400)
    assert life.starts("j") == 2


@scenario("D23")
def test_moving_up_neither_counts_nor_forgives_pods_that_were_not_ready() -> None:
    life = patient()
    ready(life, "r1")
    life.job()
    life.at(30)
    life.at(90)
    assert (life.on(), life.count("j")) == ("on-demand", 1)
    life.done("r1")
    assert (life.on(), life.count("j")) == ("reservation", 1)


@scenario("D23")
def test_the_time_that_a_job_may_run_goes_on_over_a_move() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job(maximumExecutionTimeSeconds=100)
    life.at(60)
    life.done("r1")
    assert life.on() == "reservation"
    life.at(99)
    assert life.phase("j") == "Admitted"
    life.at(100)
    assert life.phase("j") == "Deactivated"
    assert life.reason("j", "Evicted").endswith("DeactivatedDueToMaximumExecutionTimeExceeded")
    assert life.used() == "0/0"
    assert not any(head(one).active for one in life.variants().values())
