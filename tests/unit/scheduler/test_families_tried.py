"""Which variants are tried: those that policy wants at the moment, with what is on its way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.events.facts import Refused
from family_scheduling import FamilyStory, full

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
def test_nobody_worse_is_tried_in_the_moment_before_policy_is_written(mode: str) -> None:
    story = FamilyStory()
    story.follows = False  # All of them stay turned on.
    story.families(mode=mode)
    story.family("a")
    assert story.cycle(confirm=False) == ["a-best"]
    assert story.cycle() == []
    for one in story.decided:
        story.write(one)
    assert story.settle() == []


def test_without_migration_nobody_moves_up_even_if_still_turned_on() -> None:
    story = FamilyStory()
    story.follows = False
    story.families(mode="NoMigration")
    full(story, best="4")
    story.family("a")
    story.settle()
    story.finish("r-best")
    assert story.settle() == []
    assert story.admitted("a") == "mid"


def test_who_may_not_be_tried_keeps_nobody_back_and_is_told_nothing() -> None:
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


def test_a_variant_is_not_tried_before_its_delay_and_comes_back_by_the_clock() -> None:
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


def test_nobody_is_tried_while_the_familys_job_stops() -> None:
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


def test_nobody_is_tried_while_the_family_waits_out_its_backoff() -> None:
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


def test_several_may_hold_reservations_before_anybody_is_admitted() -> None:
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


def test_who_is_ready_is_not_confirmed_while_the_job_stops_and_is_afterwards() -> None:
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
    story.settle()
    assert story.admitted("a") == "mid"
    story.stops("a")
    story.settle()
    assert story.admitted("a") == "best"


def test_without_the_gate_of_the_feature_nobody_of_a_family_is_tried() -> None:
    from admittance.scheduler.config import Config

    story = FamilyStory(Config(concurrent_admission=False))
    story.follows = False
    story.families()
    story.family("a")
    story.submit("r", "cq", "1")
    assert story.settle() == ["r"]
