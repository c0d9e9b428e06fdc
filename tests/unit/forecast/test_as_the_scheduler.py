"""A play starts workloads when the scheduler does, if run times are true."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.events.shapes import PendingPreemption, PlannedVictim, PreemptedBy
from admittance.forecast.tracked import FAMILY, PLAN, VARIANT
from admittance.scheduling.state.config import CohortFairSharing, Config
from support.cores.followed_scheduler import Followed, FollowedFamilies, FollowedScheduler
from support.cores.stepped_scheduler import groups

FAIR = Config(fair_sharing=CohortFairSharing())
LOWER = {"withinClusterQueue": "LowerPriority"}
RECLAIM = {"reclaimWithinCohort": "Any"}


def compared(s: Followed, domain: str, runs: dict[str, float], left: dict[str, float]) -> Any:
    """The starts of a play, which must be those of the scheduler."""
    played = s.forecast_starts(domain, runs, left)
    true = s.true_starts(runs, left)
    assert played == {name: at for name, at in true.items() if name not in left}
    return played


def preempting(**spec: Any) -> FollowedScheduler:
    s = FollowedScheduler()
    s.queue("a", resourceGroups=groups(default="2"), preemption=LOWER, **spec)
    s.submit("low", "a", "2", age=9)
    assert s.settle() == ["low"]
    return s


def test_a_preemptor_starts_at_once_and_its_victim_after_it() -> None:
    s = preempting()
    s.submit("high", "a", "1", priority=5)
    s.submit("later", "a", "1", priority=1)
    runs = {"high": 30.0, "later": 40.0, "low": 50.0}
    assert compared(s, "queue-a", runs, {"low": 500}) == {"high": 0, "later": 0}


def test_a_victim_that_is_being_evicted_frees_its_quota_now_and_waits_again() -> None:
    s = preempting()
    s.submit("high", "a", "2", priority=5)
    s.cycle(confirm=False)
    by = PreemptedBy(by="ns/high", by_uid="uid-high")
    s.change("low", conditions={"Evicted": (True, "Preempted")}, preempted_by=by)
    assert s.forecast_starts("queue-a", {"high": 30, "low": 50}, {}) == {"high": 0}
    s.submit("last", "a", "2", age=-1)
    runs = {"high": 30.0, "low": 50.0, "last": 10.0}
    assert s.forecast_starts("queue-a", runs, {"low": 500}) == {"high": 0, "last": 80}


def test_a_workload_of_the_same_priority_preempts_none() -> None:
    s = preempting()
    s.submit("same", "a", "1")
    assert compared(s, "queue-a", {"same": 10}, {"low": 70}) == {"same": 70}


def test_a_queue_reclaims_its_quota_from_the_newest_that_borrows() -> None:
    s = FollowedScheduler()
    s.queue("a", "team", resourceGroups=groups(default="2"), preemption=RECLAIM)
    s.queue("b", "team", resourceGroups=groups(default="2"))
    for age, name in enumerate(["one", "two", "three"]):
        s.submit(name, "b", "1", age=9 - age)
        s.settle()
        s.now += timedelta(seconds=1)
    s.submit("mine", "a", "2")
    s.submit("more", "a", "1", age=-1)
    runs = {"mine": 20.0, "more": 10.0, "three": 50.0}
    left = {"one": 70.0, "two": 90.0, "three": 100.0}
    assert compared(s, "cohort-team", runs, left) == {"mine": 0, "more": 20}


def test_a_preemptor_tries_the_flavors_in_order() -> None:
    s = FollowedScheduler()
    s.flavor("spot")
    s.queue("a", resourceGroups=groups(default="2", spot="2"), preemption=LOWER)
    s.submit("low", "a", "2", priority=1, age=9)
    s.submit("lowest", "a", "2", age=8)
    s.settle()
    s.submit("high", "a", "2", priority=5)
    s.submit("next", "a", "2", priority=4)
    runs = {"high": 30.0, "next": 40.0, "low": 50.0, "lowest": 60.0}
    assert compared(s, "queue-a", runs, {"low": 900, "lowest": 900}) == {"high": 0, "next": 0}


def test_a_young_workload_is_preempted_when_it_has_run_long_enough() -> None:
    s = FollowedScheduler()
    rules = {**LOWER, "minRunSeconds": 60, "minRunPolicy": "Required"}
    s.queue("a", resourceGroups=groups(default="2"), preemption=rules)
    s.submit("low", "a", "2", age=9)
    s.settle()
    s.submit("high", "a", "1", priority=5)
    assert s.forecast_starts("queue-a", {"high": 30, "low": 10}, {"low": 500}) == {"high": 60}


def test_a_short_workload_starts_beside_a_promise_and_a_longer_one_does_not() -> None:
    s = FollowedScheduler()
    s.queue("a", resourceGroups=groups(default="4"), backfill="Easy")
    s.submit("holds", "a", "3", age=9, spec={"maximumExecutionTimeSeconds": 100})
    assert s.settle() == ["holds"]
    s.submit("large", "a", "4", age=8)
    s.submit("long", "a", "1", age=7, spec={"maximumExecutionTimeSeconds": 500})
    s.submit("short", "a", "1", age=6, spec={"maximumExecutionTimeSeconds": 90})
    s.submit("unlimited", "a", "1", age=5)
    runs = {"large": 40.0, "long": 30.0, "short": 20.0, "unlimited": 5.0}
    found = compared(s, "queue-a", runs, {"holds": 80})
    assert found == {"short": 0, "large": 80, "long": 120, "unlimited": 120}


def test_without_backfill_smaller_workloads_pass_a_large_one() -> None:
    s = FollowedScheduler()
    s.queue("a", resourceGroups=groups(default="4"))
    s.submit("holds", "a", "3", age=9)
    s.settle()
    s.submit("large", "a", "4", age=8)
    s.submit("long", "a", "1", age=7)
    found = compared(s, "queue-a", {"large": 40.0, "long": 300.0}, {"holds": 80})
    assert found == {"long": 0, "large": 300}


def test_a_promise_in_a_cohort_binds_queues_that_borrow() -> None:
    s = FollowedScheduler()
    s.queue("a", "team", resourceGroups=groups(default="4"), backfill="Easy")
    s.queue("b", "team", resourceGroups=groups(default="1"))
    s.submit("holds", "a", "3", age=9, spec={"maximumExecutionTimeSeconds": 100})
    s.settle()
    s.submit("large", "a", "4", age=8)
    s.submit("own", "b", "1", age=7)
    s.submit("borrows", "b", "1", age=6)
    runs = {"large": 40.0, "own": 200.0, "borrows": 20.0}
    found = compared(s, "cohort-team", runs, {"holds": 100})
    assert found == {"own": 0, "borrows": 140, "large": 100}


@pytest.mark.parametrize(("weight", "first"), [(1, "b1"), (8, "a1")])
def test_the_weights_of_fair_sharing_order_the_starts(weight: int, first: str) -> None:
    """Queues a and b borrow all that they use; a holds quota and has the older workload."""
    s = FollowedScheduler(FAIR)
    s.queue("a", "team", resourceGroups=groups(default="0"), fairSharing={"weight": str(weight)})
    s.queue("b", "team", resourceGroups=groups(default="0"))
    s.queue("c", "team", resourceGroups=groups(default="4"))
    s.submit("lender", "c", "2", age=9)
    s.submit("holds", "a", "2", age=9)
    s.settle()
    s.submit("a1", "a", "2", age=2)
    s.submit("b1", "b", "2", age=1)
    left = {"lender": 30.0, "holds": 500.0}
    found = compared(s, "cohort-team", {"a1": 50.0, "b1": 50.0}, left)
    assert min(found, key=found.__getitem__) == first


def test_a_preemptor_under_fair_sharing_starts_at_once() -> None:
    s = FollowedScheduler(FAIR)
    s.queue("a", "team", resourceGroups=groups(default="2"), preemption=RECLAIM)
    s.queue("b", "team", resourceGroups=groups(default="2"))
    for name in ("one", "two"):
        s.submit(name, "b", "2", age=9)
        s.settle()
        s.now += timedelta(seconds=1)
    s.submit("mine", "a", "2")
    runs = {"mine": 20.0, "one": 50.0, "two": 50.0}
    assert compared(s, "cohort-team", runs, {"one": 70, "two": 90}) == {"mine": 0}


def family(flavors: dict[str, str], busy: dict[str, float]) -> FollowedFamilies:
    """A family that waits, with a variant for each of the flavors, of which these are used."""
    s = FollowedFamilies()
    s.family_queue(flavors=flavors)
    for flavor in busy:
        s.submit(f"r-{flavor}", "cq", flavors[flavor], age=50)
        s.settle()
    s.family("train", cpu="2")
    return s


@pytest.mark.parametrize(
    ("busy", "at"),
    [
        pytest.param({"best": 90}, 0, id="another flavor is free"),
        pytest.param({"best": 90, "mid": 40, "worst": 70}, 40, id="the first that gets free"),
        pytest.param({"best": 20, "mid": 40, "worst": 70}, 20, id="the best gets free first"),
    ],
)
def test_a_family_starts_with_the_first_of_its_variants(busy: dict[str, float], at: float) -> None:
    s = family({"best": "4", "mid": "4", "worst": "4"}, busy)
    left = {f"r-{flavor}": seconds for flavor, seconds in busy.items()}
    assert s.tracked.why_unknown(("ns", "train")) == ""
    assert s.tracked.why_unknown(("ns", "train-mid")) == VARIANT
    assert s.forecast_starts("queue-cq", {"train": 500}, left) == {"train": at}
    runs = {f"train-{tag}": 500.0 for tag in ("best", "mid", "worst")}
    true = s.true_starts(runs, left)
    assert min(true[name] for name in runs if name in true) == at


def test_what_the_forecast_does_not_play_of_families_is_unknown() -> None:
    s = family({"best": "4", "mid": "4"}, {"best": 90})
    s.settle()
    assert s.admitted("train") == "mid"
    assert s.tracked.why_unknown(("ns", "train-best")) == VARIANT
    s = family({"best": "4", "mid": "4"}, {"best": 90, "mid": 40})
    s.gone("train-mid")
    assert s.tracked.why_unknown(("ns", "train")) == FAMILY
    assert s.forecast_starts("queue-cq", {}, {}) == {}


def test_a_reservation_that_plans_its_victims_makes_starts_unknown() -> None:
    s = preempting()
    s.admits = False
    s.submit("plans", "a", "2", priority=5)
    s.submit("waits", "a", "1")
    assert s.tracked.why_unknown(("ns", "waits")) == ""
    victim = PlannedVictim(namespace="ns", name="low", uid="uid-low")
    s.change(
        "plans",
        conditions={"QuotaReserved": (True, "QuotaReserved")},
        admission=s.admission("low"),
        pending_preemption=PendingPreemption(victims=(victim,)),
    )
    assert s.tracked.why_unknown(("ns", "waits")) == PLAN
    assert s.tracked.rows("queue-a") is None


def test_two_workloads_do_not_preempt_each_other_for_ever() -> None:
    """Each queue reclaims from the other, which borrows: the play ends."""
    s = FollowedScheduler()
    policy = {**RECLAIM, "borrowWithinCohort": {"policy": "LowerPriority"}}
    for name in ("a", "b"):
        s.queue(name, "team", resourceGroups=groups(default="1"), preemption=policy)
    s.submit("x", "a", "2", age=9)
    s.settle()
    s.submit("y", "b", "2", priority=1)
    s.submit("z", "a", "1", priority=2)
    runs = {"x": 10.0, "y": 20.0, "z": 30.0}
    played = s.forecast_starts("cohort-team", runs, {"x": 70})
    assert set(played) == {"y", "z"}


@pytest.mark.parametrize("second", ["1", "2"])
def test_the_pod_sets_of_a_workload_share_the_quota_of_a_flavor(second: str) -> None:
    s = FollowedScheduler()
    s.queue("a", resourceGroups=groups(default="3"))
    s.submit("holds", "a", "1", age=9)
    s.settle()
    s.submit("w", "a", pods=[{"requests": {"cpu": each}} for each in ("1", second)])
    found = compared(s, "queue-a", {"w": 10.0}, {"holds": 50})
    assert found == {"w": 0 if second == "1" else 50}
