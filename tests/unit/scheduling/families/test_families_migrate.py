"""A better variant takes over: with quota that is promised to it until the job has stopped."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events.requests import Queues
from admittance.scheduling.state.workload_info import InFlight, WorkloadInfo
from support.cores.family_story import FamilyStory, full

LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def runs_on_mid(**spec: Any) -> FamilyStory:
    """Family ``a`` runs on the second best flavor, and the best one is taken."""
    story = FamilyStory()
    for names in spec.get("checks", {}).values():
        for name in names:
            story.check(name)
    story.families(**spec)
    full(story, best="4")
    story.passes("r-best")
    story.settle()
    story.family("a")
    story.settle()
    assert story.admitted("a") == "mid"
    return story


def member(story: FamilyStory, name: str) -> WorkloadInfo:
    return story.core._state.workloads["ns", name]


def used(story: FamilyStory) -> dict[str, int]:
    (status,) = story.core.queues(Queues(cluster_queue="cq")).cluster_queues
    return {row.flavor: row.reserved // 1_000 for row in status.usage}


def test_a_migration_without_checks_holds_quota_until_the_job_stopped() -> None:
    story = runs_on_mid()
    story.finish("r-best")
    assert story.cycle() == ["a-best"]
    (told,) = story.decided
    assert told.migrates_from is not None
    assert (told.migrates_from.name, told.migrates_from.reason) == ("a-mid", "FlavorMigration")
    assert member(story, "a-best").state == "Promised"
    assert used(story) == {"best": 0, "mid": 4, "worst": 0}, "a promise is not shown as usage"
    story.submit("thief", "cq", "4", priority=9)
    story.settle()
    assert story.flavors("thief") == [{"cpu": "worst"}], "no other workload gets promised quota"
    story.stops("a")
    story.settle()
    assert story.admitted("a") == "best"
    assert used(story) == {"best": 4, "mid": 0, "worst": 4}


def test_quota_held_for_a_migration_is_never_preempted() -> None:
    story = runs_on_mid(flavors={"best": "4", "mid": "4"}, **LOWER)
    story.finish("r-best")
    story.cycle()
    story.submit(
        "strong",
        "cq",
        "4",
        priority=9,
        annotations={"kueue.x-k8s.io/workload-allowed-resource-flavors": "best"},
    )
    story.settle()
    assert [one.name for one in story.told] == []


def test_a_stored_migration_is_known_after_a_restart() -> None:
    story = runs_on_mid()
    story.finish("r-best")
    story.cycle()
    again = FamilyStory()
    again.families()
    for name, stored in story.stored.items():
        again._write("ns", name, stored)
    again.parents = story.parents
    again.submit("thief", "cq", "4")
    again.settle()
    assert again.flavors("thief") == [{"cpu": "worst"}]
    again.stops("a")
    assert again.admitted("a") == "best"


def test_both_variants_of_a_migration_are_in_flight_together() -> None:
    story = runs_on_mid()
    story.finish("r-best")
    assert story.cycle(confirm=False) == ["a-best"]
    (told,) = story.decided
    assert member(story, "a-mid").in_flight is InFlight.MIGRATED
    assert member(story, "a-mid").is_leaving
    assert story.cycle() == []
    story.core.forget("ns", "a-best", told.revision)
    assert member(story, "a-mid").in_flight is InFlight.NOTHING
    assert member(story, "a-best").charge is None
    assert story.cycle() == ["a-best"], "decided anew"


@pytest.mark.parametrize("name", ["a-best", "a-mid"])
def test_an_edit_of_the_queue_ends_both(name: str) -> None:
    story = runs_on_mid()
    story.finish("r-best")
    story.cycle(confirm=False)
    story.families(flavors={"best": "4", "mid": "4", "worst": "5"})
    assert member(story, name).in_flight is InFlight.NOTHING
    assert story.cycle() == ["a-best"]


def test_an_unaccepted_decision_ends_with_the_next_event_of_its_workload() -> None:
    story = runs_on_mid()
    story.finish("r-best")
    story.cycle(confirm=False)
    story.change("a-best", conditions={"QuotaReserved": (False, "PendingEvaluation")})
    assert member(story, "a-mid").in_flight is InFlight.NOTHING
    assert story.cycle() == ["a-best"]


def test_promised_quota_is_free_once_the_revocation_is_stored() -> None:
    story = runs_on_mid()
    story.finish("r-best")
    story.cycle()
    story.change("a-best", promised=None)
    story.submit("thief", "cq", "4")
    assert story.settle() == ["thief"]
    assert story.flavors("thief") == [{"cpu": "best"}]


def test_with_checks_it_is_reserved_first_and_the_job_runs_on() -> None:
    story = runs_on_mid(checks={"best": ["slow"]})
    story.finish("r-best")
    assert story.settle() == ["a-best"]
    assert story.admission("a-best") is not None
    assert story.admitted("a") == "mid"
    assert story.stored["a"].status.migrating_to == ""
    story.passes("a-best")
    story.settle()
    assert story.stored["a"].status.migrating_to == "a-best"
    assert story.cycle() == [], "and it is not confirmed again"
    story.stops("a")
    assert story.admitted("a") == "best"


def test_a_variant_with_victims_migrates_once_they_stopped() -> None:
    story = FamilyStory()
    story.families(flavors={"best": "4", "mid": "4"}, **LOWER)
    story.submit("strong", "cq", "4", priority=5, age=9)
    story.settle()
    story.family("a")
    story.settle()
    assert story.admitted("a") == "mid"
    story.finish("strong")
    story.submit("weak", "cq", "4", priority=-1)
    story.cycle()
    story.opens("a-best")
    story.settle()
    if story.admitted("a") != "best":
        story.stops("a")
    assert story.admitted("a") == "best"


def test_a_reserved_victim_is_preempted_before_the_job_is_stopped() -> None:
    story = FamilyStory()
    story.check("slow")
    reclaims: dict[str, Any] = {"preemption": {"reclaimWithinCohort": "Any"}}
    story.families(cohort="c", flavors={"best": "4", "mid": "4"}, **reclaims)
    story.families("other", cohort="c", flavors={"best": "0"}, checks={"best": ["slow"]})
    full(story, best="4")
    story.family("a")
    story.settle()
    assert story.admitted("a") == "mid"
    story.opens("a-best")
    story.change("a", conditions={"Requeued": (False, "PodsReadyTimeout")})
    story.finish("r-best")
    story.admits = False
    story.submit("weak", "other", "4")
    assert story.settle() == ["weak"], "lent, and waits for its check"
    story.change("a", conditions={"Requeued": (True, "BackoffFinished")})
    story.cycle()
    assert [one.name for one in story.preempted] == ["weak"]
    assert story.decided == [], "its quota is not handed to a variant with a running sibling"
    assert story.settle() == ["a-best"]
    assert story.stored["a"].status.migrating_to == "a-best"


def test_a_variant_waits_if_its_admitted_sibling_is_preempted() -> None:
    story = FamilyStory()
    reclaims: dict[str, Any] = {"preemption": {"reclaimWithinCohort": "Any"}}
    story.families(cohort="c", flavors={"best": "4", "mid": "0"}, **LOWER)
    story.queue(
        "owner",
        "c",
        resourceGroups=[
            {
                "coveredResources": ["cpu"],
                "flavors": [
                    {"name": "mid", "resources": [{"name": "cpu", "nominalQuota": "4"}]},
                ],
            }
        ],
        **reclaims,
    )
    full(story, best="4")
    story.family("a")
    story.settle()
    assert story.admitted("a") == "mid", "borrowed"
    story.submit("mine", "owner", "4", priority=9)
    story.finish("r-best")
    story.cycle(confirm=False)
    decided = {type(one).__name__: one.name for one in story.decisions}
    both = {"Assigned", "Preempted"}
    assert not both <= decided.keys(), "a job is stopped for one reason"


def test_a_quota_cut_revokes_promised_quota() -> None:
    story = runs_on_mid()
    story.finish("r-best")
    story.cycle()
    story.families(flavors={"best": "3", "mid": "4", "worst": "4"})
    story.cycle(confirm=False)
    assert [(type(one).__name__, one.name) for one in story.decisions] == [("Revoked", "a-best")]


def test_variants_below_the_minimum_do_not_migrate() -> None:
    story = FamilyStory()
    story.follows = False
    story.families(floor="best")
    full(story, best="4", mid="4")
    story.family("a")
    story.settle()
    assert story.admitted("a") == "worst"
    story.finish("r-mid")
    assert story.settle() == []
    story.finish("r-best")
    assert story.cycle() == ["a-best"]


def test_a_variant_of_two_flavors_needs_only_what_its_family_lacks() -> None:
    explicit = [
        {"name": "first", "allowedResourceFlavors": ["best", "shared"]},
        {"name": "second", "allowedResourceFlavors": ["shared"]},
    ]
    story = FamilyStory()
    story.families(explicit=explicit, flavors={"best": "2", "shared": "5"})
    full(story, best="2")
    story.family("a", cpu="4")
    story.family("b", cpu="4", age=-1)
    story.settle()
    assert story.admitted("a") in ("first", "second")
    assert story.admitted("b") == "", "what is parked for one is not for the other, and it is full"
