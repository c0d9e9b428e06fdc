"""Migration of a family to a better variant, and the effects of an eviction of its job.
docs/spec/lifecycle.md#4.6, #4.7, #7.4."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from acceptance.families.test_family_stories import pod_set
from admittance.api.configuration import Configuration, RequeuingStrategy, WaitForPodsReady
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.requests.queues import Queues
from admittance.scheduling.state.config import CohortFairSharing, Config, config_of
from admittance.workload.limits import Limits, limits_of
from admittance.workload.stored import head
from support.builders import NOON
from support.cores.families.family_cores import LOWER, FamilyCores, Row, cores_with_families

scenario = pytest.mark.scenario
TWO = {"reservation": 4, "on-demand": 4}
THREE = {"reservation": 4, "on-demand": 4, "spot": 8}
BETTER, WORSE = "j-variant-reservation", "j-variant-on-demand"
SLOW = {"reservation": ["slow"]}


def variant(tag: str, *flavors: str, **delays: int) -> dict[str, Any]:
    return {"name": tag, "allowedResourceFlavors": list(flavors) or [tag], **delays}


def preempted_by(cores: FamilyCores, flavor: str, gpu: int = 4) -> None:
    """Submits a workload of higher priority that takes the quota of the job."""
    cores.submit_regular("p", flavor, gpu)


# Moving up. ---------------------------------------------------------------------------------


@scenario("D6")
def test_quota_for_a_migrating_variant_goes_to_no_other_workload() -> None:
    cores = cores_with_families(TWO, foreign={"r1": "reservation"})
    cores.job()
    cores.slow_jobs.add("j")
    cores.at(100)
    cores.finish("r1")
    cores.job("k", allowed=["reservation"])
    assert cores.phases("j", "k") == ["Evicting", "Pending"]
    assert cores.reason(BETTER, "QuotaReserved") == "False: WaitingForPreemptedWorkloads"
    assert cores.message(BETTER, "QuotaReserved") == "Pending the migration of 1 workload(s)"
    assert cores.used() == "0/4", "a promise is no usage"
    cores.at(130)
    cores.stop("j")
    cores.go()
    assert (cores.on("j"), cores.on("k")) == ("reservation", "")
    assert cores.lived("j") == [("started", 0), ("stopped", 130), ("started", 130)]


@scenario("D6")
def test_a_job_that_never_reports_its_stop_moves_after_the_drain_timeout() -> None:
    cores = cores_with_families(
        TWO, foreign={"r1": "reservation"}, limits=Limits(drain=timedelta(seconds=60))
    )
    cores.job()
    cores.slow_jobs.add("j")
    cores.at(100)
    cores.done("r1")
    cores.at(159)
    assert cores.phase("j") == "Evicting"
    cores.at(160)
    assert cores.row() == Row("reservation", "reservation", 1, 2, "4/0")
    assert "ForcedRelease" in cores.noted("j")


def in_the_middle(*, explicit: bool = False, **more: Any) -> FamilyCores:
    """The job stops for the reservation, and takes its time; it began on-demand."""
    tags = [variant("reservation"), variant("on-demand")] if explicit else []
    cores = cores_with_families(TWO, explicit=tags, foreign={"r1": "reservation"}, **more)
    cores.job()
    cores.slow_jobs.add("j")
    cores.at(100)
    cores.done("r1")
    assert cores.phase("j") == "Evicting"
    return cores


def stopped(cores: FamilyCores) -> None:
    cores.at(130)
    cores.stop("j")
    cores.go()


Change = Callable[[FamilyCores], None]
EXPLICIT = [variant("reservation"), variant("on-demand")]


def no_more_allowed(cores: FamilyCores) -> None:
    cores.offer({**TWO, "spot": 4})
    cores.policy(explicit=[variant("reservation", "spot"), variant("on-demand")])


@scenario("D5", "D6", "D17")
@pytest.mark.parametrize(
    ("change", "on", "active", "used"),
    [
        pytest.param(
            lambda cores: cores.offer({"reservation": 0, "on-demand": 4}),
            "on-demand", "reservation on-demand", "0/4", id="the target loses its quota",
        ),
        pytest.param(
            lambda cores: cores.publish(facts.Deactivated, BETTER),
            "on-demand", "on-demand", "0/4", id="the target is deactivated",
        ),
        pytest.param(
            lambda cores: cores.offer({"on-demand": 4}),
            "on-demand", "on-demand", "4", id="the target's flavor is removed",
        ),
        pytest.param(
            no_more_allowed, "spot", "reservation", "0/0/4", id="the target may not have its flavor"
        ),
        pytest.param(
            lambda cores: cores.offer({"reservation": 4}),
            "reservation", "reservation", "4", id="the source's flavor is removed",
        ),
        pytest.param(
            lambda cores: cores.policy("NoMigration", explicit=EXPLICIT),
            "reservation", "reservation", "4/0", id="the mode changes",
        ),
        pytest.param(
            lambda cores: cores.edit_queue(concurrentAdmission=None),
            "reservation", "", "4/0", id="the policy is removed",
        ),
        pytest.param(
            lambda cores: cores.edit_queue(stopPolicy="Hold"),
            "", "reservation on-demand", "0/0", id="the queue is held",
        ),
    ],
)  # fmt: skip
def test_a_change_during_a_swap_leaves_the_job_with_the_best_that_is_left(
    change: Change, on: str, active: str, used: str
) -> None:
    cores = in_the_middle(explicit=change is no_more_allowed)
    change(cores)
    cores.go()
    stopped(cores)
    assert (cores.on(), cores.active(), cores.used()) == (on, active, used)
    again = [("started", 130)] if on else []
    assert cores.lived() == [("started", 0), ("stopped", 130), *again]


@scenario("D6", "D17")
def test_a_job_does_not_move_if_one_of_its_pod_sets_may_not_have_its_flavor() -> None:
    cores = cores_with_families(
        {"reservation": 4, "extra": 2, "on-demand": 6},
        explicit=[variant("top", "reservation", "extra"), variant("low", "on-demand")],
        foreign={"r1": "reservation"},
    )
    cores.job(pods=[pod_set("a", 4, gpu=1), pod_set("b", 2, gpu=1)])
    cores.slow_jobs.add("j")
    cores.at(100)
    cores.done("r1")
    assert cores.phase("j") == "Evicting"
    cores.policy(explicit=[variant("top", "extra"), variant("low", "on-demand")])
    cores.go()
    stopped(cores)
    assert (cores.on(), cores.used()) == ("on-demand", "0/0/6")


@scenario("D6", "D22")
@pytest.mark.parametrize("fact", [facts.Finished, facts.Deleted])
def test_a_family_that_ends_during_a_swap_leaves_its_quota_to_others(fact: type[Fact]) -> None:
    cores = in_the_middle()
    cores.publish(fact, "j")
    cores.go()
    if fact is facts.Deleted:
        stopped(cores)
        assert not any(map(cores.has, ("j", BETTER, WORSE)))
    assert cores.used() == "0/0"
    cores.job("k")
    assert cores.on("k") == "reservation"


@scenario("D6", "D17")
def test_a_family_starts_over_when_the_reserved_variant_is_preempted() -> None:
    cores = cores_with_families(TWO, checks=SLOW, preemption=LOWER)
    cores.job()
    cores.slow_jobs.add("j")
    cores.at(100)
    cores.report(BETTER, "slow", "Ready")
    assert cores.phase("j") == "Evicting"
    cores.submit_regular("p", "reservation")
    assert cores.states("p") == {"slow": "Pending"}
    stopped(cores)
    assert cores.on() == "on-demand"
    assert cores.lived() == [("started", 0), ("stopped", 130), ("started", 130)]


def fair() -> FamilyCores:
    """``cq`` owns nothing and borrows from ``lender``."""
    cores = FamilyCores(Config(fair_sharing=CohortFairSharing()))
    cores.offer(TWO, checks=SLOW)
    rows = cores.offered["resourceGroups"]
    cores.queue("lender", cohort="all", resourceGroups=rows)
    cores.offer({"reservation": 0, "on-demand": 0}, checks=SLOW, cohortName="all")
    cores.policy()
    return cores


def share(cores: FamilyCores) -> int | None:
    query = Queues(cluster_queue="cq", local_queues=False)
    (status,) = cores.scheduler.queues(query).cluster_queues
    return status.weighted_share


@scenario("D15")
def test_while_the_better_one_awaits_checks_the_job_runs_and_the_share_counts_once() -> None:
    cores = fair()
    cores.job("alone", allowed=["on-demand"])
    once = share(cores)
    assert once
    cores.done("alone")
    assert share(cores) == 0
    cores.job()
    assert (cores.on(), cores.reserved(), cores.used()) == ("on-demand", "reservation", "4/4")
    for moment in (0, 300, 599):
        cores.at(moment)
        assert cores.phase("j") == "Admitted"
        assert share(cores) == once
    cores.at(600)
    cores.report(BETTER, "slow", "Ready")
    assert cores.row() == Row("reservation", "reservation", 1, 2, "4/0")
    assert share(cores) == once
    assert cores.lived() == [("started", 0), ("stopped", 600), ("started", 600)]


@scenario("D15")
def test_two_that_are_ready_at_once_are_not_both_admitted() -> None:
    checks = {"reservation": ["slow"], "on-demand": ["quick"]}
    cores = cores_with_families(TWO, checks=checks)
    cores.job()
    cores.at(10)
    cores.answer(WORSE, "quick", "Ready")
    cores.answer(BETTER, "slow", "Ready")
    cores.go()
    assert cores.row() == Row("reservation", "reservation", 0, 1, "4/0")
    assert cores.lived() == [("started", 10)]


@scenario("D16")
def test_a_better_variant_that_was_delayed_tries_again_after_its_delay() -> None:
    cores = cores_with_families(TWO, checks=SLOW)
    cores.job()
    cores.at(100)
    cores.report(BETTER, "slow", "Retry", after=60)
    assert cores.row() == Row("on-demand", "reservation on-demand", 0, 1, "0/4")
    cores.at(159)
    assert (cores.phase(BETTER), cores.used()) == ("Backoff", "0/4")
    cores.at(160)
    assert (cores.phase(BETTER), cores.used()) == ("QuotaReserved", "4/4")
    assert len(cores.requests("slow")) == 2
    cores.report(BETTER, "slow", "Ready")
    assert cores.row() == Row("reservation", "reservation", 1, 2, "4/0")
    assert cores.lived() == [("started", 0), ("stopped", 160), ("started", 160)]


@scenario("D15")
def test_a_variant_that_got_ready_during_a_swap_is_next() -> None:
    flavors = {**TWO, "spot": 4}
    cores = cores_with_families(flavors, checks=SLOW, foreign={"o1": "on-demand"})
    cores.job()
    assert (cores.on(), cores.reserved()) == ("spot", "reservation")
    cores.slow_jobs.add("j")
    cores.done("o1")
    cores.report(BETTER, "slow", "Ready")
    assert cores.stored("j").status.migrating_to == WORSE
    stopped(cores)
    assert cores.row() == Row("reservation", "reservation", 2, 3, "4/0/0")


@scenario("D6", "D15")
@pytest.mark.parametrize("policy", ["Anytime", "AfterCheckPassedOrOnDemand"])
def test_a_family_migrates_once_to_a_flavor_freed_by_preemption(policy: str) -> None:
    cores = FamilyCores()
    cores.check("slow", preemptionPolicy=policy)
    cores.offer(TWO, checks=SLOW, preemption=LOWER)
    cores.submit_regular("r1", "reservation", priority=-1)
    cores.report("r1", "slow", "Ready")
    cores.policy()
    cores.job(priority=100)
    assert cores.on() == "on-demand"
    assert cores.reserved() == "reservation"
    cores.at(600)
    cores.report(BETTER, "slow", "Ready")
    assert cores.preempted() == [("r1", BETTER)]
    assert cores.row() == Row("reservation", "reservation", 1, 2, "4/0")
    assert cores.lived() == [("started", 0), ("stopped", 600), ("started", 600)]
    assert cores.phase("r1") == "Pending"


# Evicted by others. -------------------------------------------------------------------------


@scenario("D31")
def test_rejected_variants_compete_again_after_a_preemption() -> None:
    cores = cores_with_families(TWO, checks=SLOW, preemption=LOWER)
    cores.job()
    cores.report(BETTER, "slow", "Rejected")
    assert cores.active() == "on-demand"
    cores.at(100)
    preempted_by(cores, "on-demand")
    assert cores.row() == Row("", "reservation on-demand", 0, 1, "4/4")
    assert cores.reserved() == "reservation"
    cores.report(BETTER, "slow", "Ready")
    assert cores.on() == "reservation"


@scenario("D31")
def test_a_users_stop_outlasts_a_preemption() -> None:
    cores = cores_with_families(TWO, foreign={"r1": "reservation"}, preemption=LOWER)
    cores.job()
    cores.publish(facts.Deactivated, BETTER)
    cores.go()
    assert cores.why()["reservation"] == "User"
    cores.done("r1")
    cores.at(100)
    preempted_by(cores, "on-demand")
    cores.at(200)
    assert cores.row() == Row("", "on-demand", 0, 1, "0/4")
    cores.publish(facts.Activated, BETTER)
    cores.go()
    assert cores.row() == Row("reservation", "reservation", 0, 2, "4/4")


@scenario("D31")
def test_siblings_compete_at_once_when_a_check_delays_a_variant() -> None:
    cores = cores_with_families(TWO, checks=SLOW, foreign={"x": "on-demand"})
    cores.job()
    cores.report(BETTER, "slow", "Ready")
    assert cores.on() == "reservation"
    cores.done("x")
    cores.at(100)
    cores.report(BETTER, "slow", "Retry", after=600)
    assert cores.row() == Row("on-demand", "reservation on-demand", 0, 2, "0/4")
    assert cores.lived() == [("started", 0), ("stopped", 100), ("started", 100)]


@scenario("D31")
def test_siblings_of_a_variant_rejected_after_admission_compete() -> None:
    cores = cores_with_families(TWO, checks=SLOW)
    cores.job()
    cores.report(BETTER, "slow", "Ready")
    cores.at(100)
    cores.report(BETTER, "slow", "Rejected")
    assert cores.row() == Row("on-demand", "on-demand", 1, 3, "0/4")
    assert cores.why()["reservation"] == "Rejected"
    cores.at(86_400)
    assert cores.active() == "on-demand"


@scenario("D31")
def test_a_parent_is_rejected_only_when_all_variants_are() -> None:
    checks = {"reservation": ["slow"], "on-demand": ["quick"]}
    cores = cores_with_families(TWO, checks=checks)
    cores.job()
    cores.report(BETTER, "slow", "Rejected")
    assert (cores.phase("j"), cores.active()) == ("Pending", "on-demand")
    cores.report(WORSE, "quick", "Rejected")
    assert cores.phase("j") == "Rejected"
    assert cores.used() == "0/0"
    cores.at(86_400)
    assert cores.phase("j") == "Rejected"
    cores.publish(facts.Activated, "j")
    cores.go()
    assert cores.reserved() == "reservation on-demand"


# Traps. -------------------------------------------------------------------------------------


def patient(limit: int | None = None, **more: Any) -> FamilyCores:
    waits = WaitForPodsReady(
        timeout="30s",
        recovery_timeout="30s",
        requeuing_strategy=RequeuingStrategy(backoff_limit_count=limit, backoff_base_seconds=60),
    )
    configuration = Configuration(wait_for_pods_ready=waits)
    return cores_with_families(
        TWO,
        foreign={"r1": "reservation"},
        config=config_of(configuration),
        limits=limits_of(configuration),
        **more,
    )


def ready(cores: FamilyCores, *names: str) -> None:
    for name in names:
        cores.ready(name)
    cores.go()


@scenario("D23")
def test_moving_up_neither_counts_nor_forgives_pods_that_were_not_ready() -> None:
    cores = patient()
    ready(cores, "r1")
    cores.job()
    cores.at(30)
    cores.at(90)
    assert (cores.on(), cores.count("j")) == ("on-demand", 1)
    cores.done("r1")
    assert (cores.on(), cores.count("j")) == ("reservation", 1)


@scenario("D23")
def test_a_migration_does_not_reset_the_execution_time() -> None:
    cores = cores_with_families(TWO, foreign={"r1": "reservation"})
    cores.job(maximumExecutionTimeSeconds=100)
    cores.at(60)
    cores.done("r1")
    assert cores.on() == "reservation"
    admissions = [fact for fact in cores.published if isinstance(fact, facts.Admitted)]
    of_job = [(fact.restarts, fact.ends_at) for fact in admissions if fact.name == "j"]
    assert of_job == [(count, NOON + timedelta(seconds=100)) for count in (0, 1)]
    cores.at(99)
    assert cores.phase("j") == "Admitted"
    cores.at(100)
    assert cores.phase("j") == "Deactivated"
    assert cores.reason("j", "Evicted").endswith("DeactivatedDueToMaximumExecutionTimeExceeded")
    assert cores.used() == "0/0"
    assert not any(head(variant).active for variant in cores.variants().values())


@scenario("D17")
def test_a_preempted_family_starts_over_with_all_variants() -> None:
    explicit = [
        variant("reservation"), variant("on-demand"), variant("spot", createDelaySeconds=300),
    ]  # fmt: skip
    checks = {"reservation": ["slow"], "on-demand": ["quick"]}
    cores = cores_with_families(THREE, explicit=explicit, checks=checks, preemption=LOWER)
    cores.job()
    cores.at(10)
    cores.report(WORSE, "quick", "Ready")
    assert cores.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4/0")
    cycle = cores.stored(BETTER).status.admission_cycle
    cores.at(1000)
    preempted_by(cores, "on-demand")
    assert cores.row() == Row("", "reservation on-demand", 0, 1, "4/4/0")
    assert cores.why()["spot"] == "createDelay"
    assert cores.stored(BETTER).status.admission_cycle == cycle + 1
    assert cores.states(BETTER) == {"slow": "Pending"}
    assert len(cores.requests("slow", BETTER)) == 2
    assert cores.reason(WORSE, "Evicted") == "True: Preempted"
    assert cores.reason("j", "Evicted") == "True: VariantEvicted"
    cores.at(1299)
    assert cores.row() == Row("", "reservation on-demand", 0, 1, "4/4/0")
    cores.at(1300)
    assert cores.row() == Row("spot", "reservation on-demand spot", 0, 2, "4/4/4")
