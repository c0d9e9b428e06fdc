"""Victims: which workloads are preempted, how often, and which place is kept meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.scheduling.state.config import Config, FairSharing
from support.cores.scheduling_story import Story, groups, quota

LOWER = {"withinClusterQueue": "LowerPriority"}
RECLAIM = {"reclaimWithinCohort": "Any"}


def a_story(nominal: str = "10", **more: Any) -> Story:
    story = Story(Config(preemption=True, **more))
    story.queue("cq", resourceGroups=groups(default=nominal), preemption=LOWER)
    return story


def told(story: Story) -> list[tuple[str, str]]:
    return [(one.name, one.reason) for one in story.told]


def a_full_queue(story: Story) -> None:
    """Two workloads hold all of it, and one that matters more waits."""
    story.submit("low", "cq", "5", priority=-1, age=2)
    story.submit("mid", "cq", "5", priority=0, age=1)
    story.settle()
    story.submit("high", "cq", "5", priority=1)


def test_off_every_policy_means_never() -> None:
    story = Story(Config(preemption=False))
    story.queue("cq", resourceGroups=groups(default="10"), preemption=LOWER)
    a_full_queue(story)
    assert story.settle() == []
    assert told(story) == []
    assert story.parked() == ["high"]


def test_the_lowest_priority_is_preempted_for_the_preemptor() -> None:
    story = a_story()
    a_full_queue(story)
    assert story.settle() == ["high"]
    assert told(story) == [("low", "InClusterQueue")]
    assert story.parked() == ["low"]


def test_a_preemption_records_its_inputs() -> None:
    story = a_story()
    a_full_queue(story)
    seen = story.revision
    story.cycle(confirm=False)
    (one,) = story.preempted
    assert (one.by, one.by_uid, one.domain) == ("ns/high", "uid-high", "queue-cq")
    assert one.revision < one.seen == seen
    assert "priority 1 against -1" in one.message


def test_a_victim_is_preempted_once_while_it_stops() -> None:
    story = a_story()
    a_full_queue(story)
    story.cycle(confirm=False)
    for _ in range(3):
        assert story.cycle(confirm=False) == []
    story.change("low", conditions={"Evicted": (True, "Preempted")})
    story.submit("other", "cq", "1", priority=-5)
    for _ in range(3):
        assert story.cycle(confirm=False) == []
    assert told(story) == [("low", "InClusterQueue")]
    story.evict("low", "Preempted")
    assert story.cycle() == ["high"]


def test_a_victim_is_preempted_again_when_the_log_refused_it() -> None:
    story = a_story()
    a_full_queue(story)
    story.cycle(confirm=False)
    (one,) = story.preempted
    story.core.forget(one.namespace, one.name, one.revision)
    assert story.core.has_work()
    story.cycle(confirm=False)
    assert told(story) == [("low", "InClusterQueue")] * 2


def test_a_victim_that_changed_is_preempted_again() -> None:
    story = a_story()
    a_full_queue(story)
    story.cycle(confirm=False)
    story.change("low", conditions={"PodsReady": (True, "Started")})
    story.submit("other", "cq", "1", priority=-5)
    story.cycle(confirm=False)
    assert told(story) == [("low", "InClusterQueue")] * 2
    assert story.preempted[0].revision > 0


def test_a_preemptor_stays_the_head_while_it_waits_for_its_victims() -> None:
    story = a_story()
    a_full_queue(story)
    story.cycle(confirm=False)
    story.submit("higher", "cq", "5", priority=2)
    assert story.why("high").position == 1
    assert story.why("higher").position == 2
    story.evict("low", "Preempted")
    assert story.cycle() == ["high"]


def test_in_a_strict_queue_the_preemptor_keeps_no_place() -> None:
    story = Story(Config(preemption=True))
    story.queue(
        "cq",
        resourceGroups=groups(default="10"),
        preemption=LOWER,
        queueingStrategy="StrictFIFO",
    )
    a_full_queue(story)
    story.cycle(confirm=False)
    story.submit("higher", "cq", "5", priority=2)
    assert story.why("higher").position == 1


def test_a_workload_that_leaves_the_queue_loses_its_place() -> None:
    story = a_story()
    a_full_queue(story)
    story.cycle(confirm=False)
    story.respec("high", active=False)
    story.submit("higher", "cq", "5", priority=2)
    story.respec("high", active=True)
    assert story.why("higher").position == 1


def test_lent_quota_is_reclaimed_from_borrowing_workloads() -> None:
    story = Story(Config(preemption=True))
    for name in ("a", "b"):
        story.queue(name, "co", resourceGroups=groups(default="5"), preemption=RECLAIM)
    story.submit("mine", "b", "5", age=9)
    story.settle()
    story.submit("borrowed", "b", "5", priority=7)
    story.settle()
    story.submit("owner", "a", "5")
    assert story.settle() == ["owner"]
    assert told(story) == [("mine", "InCohortReclamation")]


def test_workloads_of_a_stopped_queue_are_not_preempted() -> None:
    story = Story(Config(preemption=True))
    for name in ("a", "b"):
        story.queue(name, "co", resourceGroups=groups(default="5"), preemption=RECLAIM)
    story.submit("borrowed", "b", "10")
    story.settle()
    story.queue("b", "co", resourceGroups=groups(default="5"), stopPolicy="Hold")
    story.submit("owner", "a", "5")
    assert story.settle() == []
    assert told(story) == []


def test_two_preemptors_never_share_a_victim() -> None:
    story = Story(Config(preemption=True))
    for name in ("a", "b"):
        story.queue(name, "co", resourceGroups=groups(default="2"), preemption=RECLAIM)
    story.queue("lender", "co", resourceGroups=groups(default=quota("0")))
    story.submit("one", "lender", "2", age=2)
    story.submit("two", "lender", "2", age=1)
    story.cycle()
    story.cycle()
    story.submit("first", "a", "2", age=1)
    story.submit("second", "b", "2")
    story.settle()
    assert sorted(one.name for one in story.told) == ["one", "two"]
    assert story.admission("first") is not None
    assert story.admission("second") is not None


def test_a_queue_edit_voids_earlier_preemption_decisions() -> None:
    story = a_story()
    a_full_queue(story)
    story.cycle(confirm=False)
    story.queue("cq", resourceGroups=groups(default="15"), preemption=LOWER)
    assert story.cycle() == ["high"]
    assert told(story) == [("low", "InClusterQueue")]


@pytest.mark.parametrize(
    ("weights", "first"),
    [
        pytest.param({}, "a", id="the queue that borrows less goes first"),
        pytest.param({"b": 4}, "b", id="a weight makes a share smaller"),
        pytest.param({"a": 0, "b": 4}, "b", id="without a weight a borrower goes last"),
    ],
)
def test_under_fair_sharing_the_lower_share_goes_first(weights: dict[str, int], first: str) -> None:
    story = Story(Config(preemption=True, fair_sharing=FairSharing()))
    for name in ("a", "b"):
        weight = {"fairSharing": {"weight": weights[name]}} if name in weights else {}
        story.queue(name, "co", resourceGroups=groups(default="2"), **weight)
    story.put("Cohort", "co", {"resourceGroups": groups(default="10")})
    story.submit("a-runs", "a", "3")
    story.submit("b-runs", "b", "4")
    story.settle()
    story.submit("a", "a", "4")
    story.submit("b", "b", "4", age=5)
    assert story.cycle() == [first]


def _two_resources(memory: str) -> list[dict[str, Any]]:
    resources = [
        {"name": "cpu", "nominalQuota": "6"},
        {"name": "memory", "nominalQuota": memory},
    ]
    flavors = [{"name": "default", "resources": resources}]
    return [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]


def test_a_zero_request_of_an_overused_resource_needs_no_victim() -> None:
    story = Story(Config(preemption=True))
    story.queue("cq", resourceGroups=_two_resources("3"), preemption=LOWER)
    for name, cpu, priority in (("low", "1", -2), ("mid", "2", -1), ("high", "3", 3)):
        story.submit(
            name, "cq", priority=priority, pods=[{"requests": {"cpu": cpu, "memory": "1"}}]
        )
    story.settle()
    story.queue("cq", resourceGroups=_two_resources("1"), preemption=LOWER)
    story.submit("new", "cq", priority=1, pods=[{"requests": {"cpu": "2", "memory": "0"}}])
    story.cycle()
    assert told(story) == [("mid", "InClusterQueue")]


@pytest.mark.parametrize(
    ("lowered", "goes"),
    [
        pytest.param(1, ["runs"], id="below the preemptor it is preempted"),
        pytest.param(4, [], id="still above it stays undisturbed"),
    ],
)
def test_a_running_workload_with_lowered_priority_is_preempted(
    lowered: int, goes: list[str]
) -> None:
    story = a_story()
    story.submit("runs", "cq", "10", priority=5)
    story.settle()
    story.submit("waits", "cq", "10", priority=3)
    assert story.settle() == []
    story.respec("runs", priority=lowered)
    story.settle()
    assert [name for name, _ in told(story)] == goes


def test_a_preemptor_is_refused_once_with_its_victims() -> None:
    story = a_story()
    a_full_queue(story)
    for _ in range(4):
        story.cycle(confirm=False)
    (one,) = story.waiting
    assert one.refusal.reason == "WaitingForPreemptedWorkloads"
    assert one.refusal.message == (
        "Waits for 1 workload (ns/low at priority -1) to go: cpu in flavor default, 5 asked, 0 free"
    )
    assert [(each.requested, each.available) for each in one.refusal.shortfalls] == [(5_000, 0)]
