"""Which workloads are preempted, how often, and which queue position they keep."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.scheduling.state.config import CohortFairSharing, Config
from support.cores.stepped_scheduler import SteppedScheduler, groups, quota

LOWER = {"withinClusterQueue": "LowerPriority"}
RECLAIM = {"reclaimWithinCohort": "Any"}


def a_scheduler(nominal: str = "10", **more: Any) -> SteppedScheduler:
    scheduler = SteppedScheduler(Config(preemption=True, **more))
    scheduler.queue("cq", resourceGroups=groups(default=nominal), preemption=LOWER)
    return scheduler


def preemptions(scheduler: SteppedScheduler) -> list[tuple[str, str]]:
    return [(preemption.name, preemption.reason) for preemption in scheduler.all_preempted]


def a_full_queue(scheduler: SteppedScheduler) -> None:
    """Two workloads hold all of the quota, and one of higher priority waits."""
    scheduler.submit("low", "cq", "5", priority=-1, age=2)
    scheduler.submit("mid", "cq", "5", priority=0, age=1)
    scheduler.settle()
    scheduler.submit("high", "cq", "5", priority=1)


def test_off_every_policy_means_never() -> None:
    scheduler = SteppedScheduler(Config(preemption=False))
    scheduler.queue("cq", resourceGroups=groups(default="10"), preemption=LOWER)
    a_full_queue(scheduler)
    assert scheduler.settle() == []
    assert preemptions(scheduler) == []
    assert scheduler.parked() == ["high"]


def test_the_lowest_priority_is_preempted_for_the_preemptor() -> None:
    scheduler = a_scheduler()
    a_full_queue(scheduler)
    assert scheduler.settle() == ["high"]
    assert preemptions(scheduler) == [("low", "InClusterQueue")]
    assert scheduler.parked() == ["low"]


def test_a_preemption_records_its_inputs() -> None:
    scheduler = a_scheduler()
    a_full_queue(scheduler)
    seen = scheduler.revision
    scheduler.cycle(confirm=False)
    (preemption,) = scheduler.preempted
    assert (preemption.by, preemption.by_uid, preemption.domain) == (
        "ns/high",
        "uid-high",
        "queue-cq",
    )
    assert preemption.revision < preemption.seen == seen
    assert "priority 1 against -1" in preemption.message


def test_a_victim_is_preempted_once_while_it_stops() -> None:
    scheduler = a_scheduler()
    a_full_queue(scheduler)
    scheduler.cycle(confirm=False)
    for _ in range(3):
        assert scheduler.cycle(confirm=False) == []
    scheduler.change("low", conditions={"Evicted": (True, "Preempted")})
    scheduler.submit("other", "cq", "1", priority=-5)
    for _ in range(3):
        assert scheduler.cycle(confirm=False) == []
    assert preemptions(scheduler) == [("low", "InClusterQueue")]
    scheduler.evict("low", "Preempted")
    assert scheduler.cycle() == ["high"]


def test_a_victim_is_preempted_again_when_the_log_refused_it() -> None:
    scheduler = a_scheduler()
    a_full_queue(scheduler)
    scheduler.cycle(confirm=False)
    (preemption,) = scheduler.preempted
    scheduler.core.forget(preemption.namespace, preemption.name, preemption.revision)
    assert scheduler.core.has_work()
    scheduler.cycle(confirm=False)
    assert preemptions(scheduler) == [("low", "InClusterQueue")] * 2


def test_a_victim_that_changed_is_preempted_again() -> None:
    scheduler = a_scheduler()
    a_full_queue(scheduler)
    scheduler.cycle(confirm=False)
    scheduler.change("low", conditions={"PodsReady": (True, "Started")})
    scheduler.submit("other", "cq", "1", priority=-5)
    scheduler.cycle(confirm=False)
    assert preemptions(scheduler) == [("low", "InClusterQueue")] * 2
    assert scheduler.preempted[0].revision > 0


def test_a_preemptor_stays_the_head_while_it_waits_for_its_victims() -> None:
    scheduler = a_scheduler()
    a_full_queue(scheduler)
    scheduler.cycle(confirm=False)
    scheduler.submit("higher", "cq", "5", priority=2)
    assert scheduler.why("high").position == 1
    assert scheduler.why("higher").position == 2
    scheduler.evict("low", "Preempted")
    assert scheduler.cycle() == ["high"]


def test_in_a_strict_queue_the_preemptor_keeps_no_place() -> None:
    scheduler = SteppedScheduler(Config(preemption=True))
    scheduler.queue(
        "cq",
        resourceGroups=groups(default="10"),
        preemption=LOWER,
        queueingStrategy="StrictFIFO",
    )
    a_full_queue(scheduler)
    scheduler.cycle(confirm=False)
    scheduler.submit("higher", "cq", "5", priority=2)
    assert scheduler.why("higher").position == 1


def test_a_workload_that_leaves_the_queue_loses_its_place() -> None:
    scheduler = a_scheduler()
    a_full_queue(scheduler)
    scheduler.cycle(confirm=False)
    scheduler.respec("high", active=False)
    scheduler.submit("higher", "cq", "5", priority=2)
    scheduler.respec("high", active=True)
    assert scheduler.why("higher").position == 1


def test_lent_quota_is_reclaimed_from_borrowing_workloads() -> None:
    scheduler = SteppedScheduler(Config(preemption=True))
    for name in ("a", "b"):
        scheduler.queue(name, "co", resourceGroups=groups(default="5"), preemption=RECLAIM)
    scheduler.submit("mine", "b", "5", age=9)
    scheduler.settle()
    scheduler.submit("borrowed", "b", "5", priority=7)
    scheduler.settle()
    scheduler.submit("owner", "a", "5")
    assert scheduler.settle() == ["owner"]
    assert preemptions(scheduler) == [("mine", "InCohortReclamation")]


def test_workloads_of_a_stopped_queue_are_not_preempted() -> None:
    scheduler = SteppedScheduler(Config(preemption=True))
    for name in ("a", "b"):
        scheduler.queue(name, "co", resourceGroups=groups(default="5"), preemption=RECLAIM)
    scheduler.submit("borrowed", "b", "10")
    scheduler.settle()
    scheduler.queue("b", "co", resourceGroups=groups(default="5"), stopPolicy="Hold")
    scheduler.submit("owner", "a", "5")
    assert scheduler.settle() == []
    assert preemptions(scheduler) == []


def test_two_preemptors_never_share_a_victim() -> None:
    scheduler = SteppedScheduler(Config(preemption=True))
    for name in ("a", "b"):
        scheduler.queue(name, "co", resourceGroups=groups(default="2"), preemption=RECLAIM)
    scheduler.queue("lender", "co", resourceGroups=groups(default=quota("0")))
    scheduler.submit("one", "lender", "2", age=2)
    scheduler.submit("two", "lender", "2", age=1)
    scheduler.cycle()
    scheduler.cycle()
    scheduler.submit("first", "a", "2", age=1)
    scheduler.submit("second", "b", "2")
    scheduler.settle()
    assert sorted(preemption.name for preemption in scheduler.all_preempted) == ["one", "two"]
    assert scheduler.admission("first") is not None
    assert scheduler.admission("second") is not None


def test_a_queue_edit_voids_earlier_preemption_decisions() -> None:
    scheduler = a_scheduler()
    a_full_queue(scheduler)
    scheduler.cycle(confirm=False)
    scheduler.queue("cq", resourceGroups=groups(default="15"), preemption=LOWER)
    assert scheduler.cycle() == ["high"]
    assert preemptions(scheduler) == [("low", "InClusterQueue")]


@pytest.mark.parametrize(
    ("weights", "first"),
    [
        pytest.param({}, "a", id="the queue that borrows less goes first"),
        pytest.param({"b": 4}, "b", id="a weight makes a share smaller"),
        pytest.param({"a": 0, "b": 4}, "b", id="without a weight a borrower goes last"),
    ],
)
def test_under_fair_sharing_the_lower_share_goes_first(weights: dict[str, int], first: str) -> None:
    scheduler = SteppedScheduler(Config(preemption=True, fair_sharing=CohortFairSharing()))
    for name in ("a", "b"):
        weight: dict[str, Any] = (
            {"fairSharing": {"weight": weights[name]}} if name in weights else {}
        )
        scheduler.queue(name, "co", resourceGroups=groups(default="2"), **weight)
    scheduler.put("Cohort", "co", {"resourceGroups": groups(default="10")})
    scheduler.submit("a-runs", "a", "3")
    scheduler.submit("b-runs", "b", "4")
    scheduler.settle()
    scheduler.submit("a", "a", "4")
    scheduler.submit("b", "b", "4", age=5)
    assert scheduler.cycle() == [first]


def _two_resources(memory: str) -> list[dict[str, Any]]:
    resources = [
        {"name": "cpu", "nominalQuota": "6"},
        {"name": "memory", "nominalQuota": memory},
    ]
    flavors = [{"name": "default", "resources": resources}]
    return [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]


def test_a_zero_request_of_an_overused_resource_needs_no_victim() -> None:
    scheduler = SteppedScheduler(Config(preemption=True))
    scheduler.queue("cq", resourceGroups=_two_resources("3"), preemption=LOWER)
    for name, cpu, priority in (("low", "1", -2), ("mid", "2", -1), ("high", "3", 3)):
        scheduler.submit(
            name, "cq", priority=priority, pods=[{"requests": {"cpu": cpu, "memory": "1"}}]
        )
    scheduler.settle()
    scheduler.queue("cq", resourceGroups=_two_resources("1"), preemption=LOWER)
    scheduler.submit("new", "cq", priority=1, pods=[{"requests": {"cpu": "2", "memory": "0"}}])
    scheduler.cycle()
    assert preemptions(scheduler) == [("mid", "InClusterQueue")]


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
    scheduler = a_scheduler()
    scheduler.submit("runs", "cq", "10", priority=5)
    scheduler.settle()
    scheduler.submit("waits", "cq", "10", priority=3)
    assert scheduler.settle() == []
    scheduler.respec("runs", priority=lowered)
    scheduler.settle()
    assert [name for name, _ in preemptions(scheduler)] == goes


def test_a_preemptor_is_refused_once_with_its_victims() -> None:
    scheduler = a_scheduler()
    a_full_queue(scheduler)
    for _ in range(4):
        scheduler.cycle(confirm=False)
    (refusal,) = scheduler.waiting
    assert refusal.refusal.reason == "WaitingForPreemptedWorkloads"
    assert refusal.refusal.message == (
        "Waits for 1 workload (ns/low at priority -1) to go: cpu in flavor default, 5 asked, 0 free"
    )
    assert [(each.requested, each.available) for each in refusal.refusal.shortfalls] == [(5_000, 0)]
