"""Which variants are tried: those that the policy allows, with decisions in flight taken into
account."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.events.facts import Preempted, Refused
from admittance.scheduling.families import variant_place, wake_on_policy_change
from admittance.scheduling.state.workload_view import LAST_PLACE
from support.cores.families.family_scheduler import FamilyScheduler, full

EXPLICIT: list[dict[str, Any]] = [
    {"name": "fast", "allowedResourceFlavors": ["best"], "createDelaySeconds": 100},
    {"name": "slow", "allowedResourceFlavors": ["mid"]},
]


@pytest.mark.parametrize("mode", ["NoMigration", "UpgradeOnly"])
def test_no_worse_variant_is_tried_while_an_admission_is_in_flight(mode: str) -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(mode=mode)
    scheduler.family("a")
    assert scheduler.cycle(confirm=False) == ["a-best"]
    decided = scheduler.decided
    assert scheduler.cycle() == []
    scheduler.later(60)
    assert list(scheduler.core.refusals(now=scheduler.now)) == [], "nothing is wrong with it"
    for decision in decided:
        scheduler.apply(decision)
    assert scheduler.settle() == []


def test_a_worse_variant_is_tried_when_the_chosen_one_is_deleted_meanwhile() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(flavors={"best": "4", "worst": "4"})
    scheduler.family("a")
    assert scheduler.cycle(confirm=False) == ["a-best"]
    assert scheduler.cycle(confirm=False) == []
    scheduler.gone("a-best")
    assert scheduler.cycle(confirm=False) == ["a-worst"]


def test_a_variant_that_may_not_be_tried_blocks_no_other() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(mode="NoMigration", flavors={"best": "8", "mid": "8"})
    for name in ("a", "b"):
        scheduler.family(name)
    scheduler.submit("r", "cq", "1")
    assert scheduler.cycle() == ["a-best"]
    assert scheduler.cycle() == ["b-best"], "its sibling a-mid stood before it"
    assert scheduler.cycle() == ["r"]
    scheduler.later(60)
    assert [
        refusal
        for refusal in scheduler.core.refusals(now=scheduler.now)
        if isinstance(refusal, Refused)
    ] == []


def test_a_variant_is_tried_only_after_its_delay() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(explicit=EXPLICIT, flavors={"best": "4", "mid": "4"})
    full(scheduler, mid="4")
    scheduler.family("a")
    scheduler.activate("a-fast")
    assert scheduler.settle() == []
    wake = scheduler.core.next_wake()
    assert wake is not None
    assert wake <= scheduler.now + timedelta(seconds=100)
    scheduler.later(99)
    assert scheduler.settle() == []
    scheduler.later(1)
    assert scheduler.settle() == ["a-fast"]


def test_of_those_that_passed_their_checks_only_the_best_is_confirmed() -> None:
    scheduler = FamilyScheduler()
    scheduler.check("slow")
    scheduler.family_queue(checks={"best": ["slow"], "mid": ["slow"], "worst": ["slow"]})
    scheduler.family("a")
    scheduler.settle()
    scheduler.passes("a-mid")
    scheduler.cycle(confirm=False)
    (confirmed,) = scheduler.decisions
    scheduler.passes("a-worst")
    scheduler.cycle(confirm=False)
    assert (confirmed.name, scheduler.decisions) == ("a-mid", [])
    scheduler.apply(confirmed)
    assert scheduler.settle() == []
    assert scheduler.admitted("a") == "mid"
    assert [decision.name for decision in scheduler.decisions] == []
    scheduler.passes("a-best")
    scheduler.cycle(confirm=False)
    assert [decision.name for decision in scheduler.decisions] == ["a-best"]
    assert scheduler.cycle(confirm=False) == []
    assert scheduler.decisions == [], "it is on its way"


def test_a_family_in_backoff_is_requeued_as_a_whole() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    full(scheduler)
    scheduler.family("a", age=30)
    scheduler.submit("r", "cq", age=20)
    scheduler.later(60)
    scheduler.change("a", conditions={"Evicted": (True, "PodsReadyTimeout")})
    assert scheduler.tried() == ["r", "a-best", "a-mid", "a-worst"]


def test_free_quota_does_not_wake_a_variant_that_waits_for_its_family() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(mode="NoMigration")
    full(scheduler, best="4")
    scheduler.family("a")
    scheduler.settle()
    for name in ("a-best", "a-worst"):
        scheduler.activate(name)
    scheduler.settle()
    scheduler.core.flush("cq")
    scheduler.core.wake_due(now=scheduler.now)
    aside = {
        name: scheduler.core._state.workloads["ns", name].inadmissible
        for name in ("a-best", "a-worst")
    }
    assert all(parked is not None and parked.ignores_flush for parked in aside.values())


def test_quota_too_small_for_one_family_may_fit_another() -> None:
    explicit = [
        {"name": "first", "allowedResourceFlavors": ["reserved", "cpus"]},
        {"name": "second", "allowedResourceFlavors": ["on-demand", "cpus"]},
    ]
    scheduler = FamilyScheduler()
    for name in ("reserved", "on-demand", "cpus"):
        scheduler.flavor(name)
    scheduler.family_queue(
        explicit=explicit,
        resourceGroups=[
            {
                "coveredResources": ["gpu"],
                "flavors": [
                    {"name": name, "resources": [{"name": "gpu", "nominalQuota": "4"}]}
                    for name in ("reserved", "on-demand")
                ],
            },
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "cpus", "resources": [{"name": "cpu", "nominalQuota": "6"}]}],
            },
        ],
    )
    scheduler.submit("r", "cq", pods=[{"requests": {"gpu": "4"}}], age=99)
    scheduler.settle()
    assert scheduler.flavors("r") == [{"gpu": "reserved"}]
    scheduler.family("a", cpu="4", gpu="4")
    scheduler.settle()
    assert scheduler.admitted("a") == "second"
    scheduler.family("b", cpu="4", gpu="4", age=50)
    scheduler.settle()
    scheduler.finish("r")
    assert scheduler.settle() == ["a-first"], "it has the cpus, for which b waits"


def test_without_the_feature_gate_no_variant_is_tried() -> None:
    from admittance.scheduling.state.config import Config

    scheduler = FamilyScheduler(Config(concurrent_admission=False))
    scheduler.family_queue()
    scheduler.family("a")
    scheduler.submit("r", "cq", "1")
    assert scheduler.settle() == ["r"]


def test_while_the_victims_of_a_reservation_stop_no_worse_one_is_tried() -> None:
    scheduler = FamilyScheduler()
    scheduler.check("slow")
    lower = {"withinClusterQueue": "LowerPriority"}
    flavors = {"best": "4", "mid": "4"}
    scheduler.family_queue(flavors=flavors, preemption=lower)
    scheduler.submit("r", "cq", "4", priority=-1)
    scheduler.settle()
    scheduler.family_queue(flavors=flavors, preemption=lower, checks={"best": ["slow"]})
    scheduler.family("a")
    scheduler.settle()
    scheduler.opens("a-best")
    for _ in range(6):
        scheduler.cycle(confirm=False)
        for decision in scheduler.decisions:
            if not isinstance(decision, Preempted):
                scheduler.apply(decision)
            else:
                scheduler.change(decision.name, conditions={"Evicted": (True, "Preempted")})
    assert scheduler.admission("a-best") is not None
    assert [preemption.name for preemption in scheduler.all_preempted] == ["r"]
    assert scheduler.admitted("a") == ""
    scheduler.stops("r")
    scheduler.settle()
    assert scheduler.admitted("a") == "mid", "from now on they race"


@pytest.mark.parametrize("gates", [{"migrating_to": "a-worst"}, {}])
def test_the_state_of_the_parent_counts_before_its_variant_follows(
    gates: dict[str, str],
) -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    full(scheduler, best="4")
    scheduler.family("a")
    scheduler.settle()
    evicted = {} if gates else {"Evicted": (True, "PodsReadyTimeout")}
    scheduler.change("a", conditions=evicted, **gates)
    scheduler.finish("r-best")
    assert scheduler.settle() == []


def test_a_regular_workload_has_the_first_place_and_no_policy() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue(
        explicit=[
            {"name": "fast", "allowedResourceFlavors": ["best"], "createDelaySeconds": 100},
            {"name": "slow", "allowedResourceFlavors": ["mid"]},
        ]
    )
    scheduler.family("a")
    scheduler.submit("r", "cq", "1")
    state = scheduler.core._state
    names = ("r", "a", "a-fast", "a-slow")
    workloads = [state.workloads["ns", name] for name in names]
    assert [variant_place(workload) for workload in workloads] == [0, 0, LAST_PLACE, 1]
    state.timers.clear()
    queue = state.queues["cq"]
    regular, _, _, variant = workloads
    wake_on_policy_change(state, queue, regular)
    assert state.timers == []
    wake_on_policy_change(state, queue, variant)
    assert [key for _, key in state.timers] == [variant.key]
    scheduler.gone("a")
    state.timers.clear()
    wake_on_policy_change(state, queue, variant)
    assert state.timers == [], "its parent is not known"
