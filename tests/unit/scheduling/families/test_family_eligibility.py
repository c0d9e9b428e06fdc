"""Which variants are tried: those that the policy allows, with decisions in flight taken into
account."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.events.facts import Preempted, Refused
from support.cores.family_story import FamilyStory, full

EXPLICIT: list[dict[str, Any]] = [
    {"name": "fast", "allowedResourceFlavors": ["best"], "createDelaySeconds": 100},
    {"name": "slow", "allowedResourceFlavors": ["mid"]},
]


def test_the_best_that_fits_is_admitted() -> None:
    story = FamilyStory()
    story.families()
    full(story, best="4")
    story.family("a")
    story.settle()
    assert story.admitted("a") == "mid"


@pytest.mark.parametrize("mode", ["NoMigration", "UpgradeOnly"])
def test_no_worse_variant_is_tried_while_an_admission_is_in_flight(mode: str) -> None:
    story = FamilyStory()
    story.follows = False  # All of them stay turned on.
    story.families(mode=mode)
    story.family("a")
    assert story.cycle(confirm=False) == ["a-best"]
    assert story.cycle() == []
    for one in story.decided:
        story.write(one)
    assert story.settle() == []


def test_without_migration_no_active_variant_migrates() -> None:
    story = FamilyStory()
    story.follows = False
    story.families(mode="NoMigration")
    full(story, best="4")
    story.family("a")
    story.settle()
    story.finish("r-best")
    assert story.settle() == []
    assert story.admitted("a") == "mid"


def test_a_variant_that_may_not_be_tried_blocks_no_other() -> None:
    story = FamilyStory()
    story.follows = False
    story.families(mode="NoMigration", flavors={"best": "8", "mid": "8"})
    for name in ("a", "b"):
        story.family(name)
    story.submit("r", "cq", "1")
    assert story.cycle() == ["a-best"]
    assert story.cycle() == ["b-best"], "its sibling a-mid stood before it"
    assert story.cycle() == ["r"]
    story.later(60)
    assert [one for one in story.core.refusals(now=story.now) if isinstance(one, Refused)] == []


def test_a_variant_is_tried_only_after_its_delay() -> None:
    story = FamilyStory()
    story.follows = False
    story.families(explicit=EXPLICIT, flavors={"best": "4", "mid": "4"})
    full(story, mid="4")
    story.family("a")
    assert story.settle() == []
    wake = story.core.next_wake()
    assert wake is not None
    assert wake <= story.now + timedelta(seconds=100)
    story.later(99)
    assert story.settle() == []
    story.later(1)
    assert story.settle() == ["a-fast"]


def test_no_variant_is_tried_while_the_job_stops() -> None:
    story = FamilyStory()
    story.families()
    full(story, best="4")
    story.family("a")
    story.settle()
    story.lose("a-mid", "Preempted")
    story.finish("r-best")
    assert story.settle() == []
    story.stops("a")
    assert story.settle() == ["a-best"]


def test_no_variant_is_tried_during_the_backoff() -> None:
    story = FamilyStory()
    story.families()
    story.family("a", tags=())
    story.change("a", conditions={"Requeued": (False, "PodsReadyTimeout")})
    story._put_variant("a", "cq", "4", 0, 0, "best", ["best"])
    assert story.settle() == []
    story.change("a", conditions={"Requeued": (True, "BackoffFinished")})
    assert story.settle() == ["a-best"]


def test_a_variant_that_the_queue_does_not_have_is_not_tried() -> None:
    story = FamilyStory()
    story.follows = False
    story.families()
    full(story, best="4", mid="4")
    story.family("a")
    story.families(explicit=EXPLICIT)
    assert story.settle() == []
    story.families()
    assert story.settle() == ["a-worst"]


def test_several_variants_may_hold_reservations() -> None:
    story = FamilyStory()
    story.check("slow")
    story.families(checks={"best": ["slow"], "mid": ["slow"], "worst": ["slow"]})
    story.family("a")
    assert story.settle() == ["a-best", "a-mid", "a-worst"]


def test_of_those_that_passed_their_checks_only_the_best_is_confirmed() -> None:
    story = FamilyStory()
    story.check("slow")
    story.families(checks={"best": ["slow"], "mid": ["slow"], "worst": ["slow"]})
    story.family("a")
    story.settle()
    story.follows = False
    story.passes("a-worst", "a-mid")
    assert story.settle() == []
    assert story.admitted("a") == "mid"
    assert [one.name for one in story.decisions] == []
    story.passes("a-best")
    story.cycle(confirm=False)
    assert [one.name for one in story.decisions] == ["a-best"]
    assert story.cycle(confirm=False) == []
    assert story.decisions == [], "it is on its way"


def test_a_ready_variant_is_confirmed_after_the_job_stopped() -> None:
    story = FamilyStory()
    story.check("slow")
    story.families(checks={"best": ["slow"]})
    full(story, best="4")
    story.family("a")
    story.settle()
    story.finish("r-best")
    story.settle()
    assert story.admission("a-best") is not None
    story.lose("a-mid", "Preempted")
    story.passes("a-best")
    story.cycle()
    assert story.decisions == []
    story.stops("a")
    story.settle()
    assert story.admitted("a") == "best"


def test_a_ready_variant_is_not_confirmed_against_policy() -> None:
    story = FamilyStory()
    story.follows = False
    story.check("slow")
    story.families(mode="NoMigration", checks={"best": ["slow"]})
    story.family("a")
    assert story.settle() == ["a-best", "a-mid"]
    story.passes("a-best")
    story.cycle()
    assert story.decisions == []


@pytest.mark.parametrize("told", [{"migrating_to": "a-worst"}, {}])
def test_the_state_of_the_parent_counts_before_its_variant_follows(
    told: dict[str, str],
) -> None:
    story = FamilyStory()
    story.families()
    full(story, best="4")
    story.family("a")
    story.settle()
    evicted = {} if told else {"Evicted": (True, "PodsReadyTimeout")}
    story.change("a", conditions=evicted, **told)
    story.finish("r-best")
    assert story.settle() == []


def test_while_the_victims_of_a_reservation_stop_no_worse_one_is_tried() -> None:
    story = FamilyStory()
    story.check("slow")
    lower = {"withinClusterQueue": "LowerPriority"}
    flavors = {"best": "4", "mid": "4"}
    story.families(flavors=flavors, preemption=lower)
    story.submit("r", "cq", "4", priority=-1)
    story.settle()
    story.families(flavors=flavors, preemption=lower, checks={"best": ["slow"]})
    story.family("a")
    story.settle()
    story.opens("a-best")
    for _ in range(6):
        story.cycle(confirm=False)
        for one in story.decisions:
            if not isinstance(one, Preempted):
                story.write(one)
            else:
                story.change(one.name, conditions={"Evicted": (True, "Preempted")})
    assert story.admission("a-best") is not None
    assert [one.name for one in story.told] == ["r"]
    assert story.admitted("a") == ""
    story.evict("r", "Preempted")
    story.settle()
    assert story.admitted("a") == "mid", "from now on they race"


def test_a_family_in_backoff_is_requeued_as_a_whole() -> None:
    story = FamilyStory()
    story.families()
    full(story)
    story.family("a", age=30)
    story.submit("r", "cq", age=20)
    story.later(60)
    story.change("a", conditions={"Evicted": (True, "PodsReadyTimeout")})
    assert story.tried() == ["r", "a-best", "a-mid", "a-worst"]


def test_free_quota_does_not_wake_a_variant_that_waits_for_its_family() -> None:
    story = FamilyStory()
    story.follows = False
    story.families(mode="NoMigration")
    full(story, best="4")
    story.family("a")
    story.settle()
    story.core.flush("cq")
    story.core.rouse(now=story.now)
    aside = {
        name: story.core._state.workloads["ns", name].inadmissible for name in ("a-best", "a-worst")
    }
    assert all(one is not None and one.ignores_flush for one in aside.values())


def test_quota_too_small_for_one_family_may_fit_another() -> None:
    explicit = [
        {"name": "first", "allowedResourceFlavors": ["reserved", "cpus"]},
        {"name": "second", "allowedResourceFlavors": ["on-demand", "cpus"]},
    ]
    story = FamilyStory()
    for name in ("reserved", "on-demand", "cpus"):
        story.flavor(name)
    story.families(
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
    story.submit("r", "cq", pods=[{"requests": {"gpu": "4"}}], age=99)
    story.settle()
    assert story.flavors("r") == [{"gpu": "reserved"}]
    story.family("a", cpu="4", gpu="4")
    story.settle()
    assert story.admitted("a") == "second"
    story.family("b", cpu="4", gpu="4", age=50)
    story.settle()
    story.finish("r")
    assert story.settle() == ["a-first"], "it has the cpus, for which b waits"


def test_without_the_feature_gate_no_variant_is_tried() -> None:
    from admittance.scheduling.state.config import Config

    story = FamilyStory(Config(concurrent_admission=False))
    story.follows = False
    story.families()
    story.family("a")
    story.submit("r", "cq", "1")
    assert story.settle() == ["r"]
