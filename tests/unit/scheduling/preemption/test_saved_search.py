"""A waiting preemptor costs almost nothing, and is tried again after every change that may help
it."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.scheduling.state.config import Config
from support.cores.stepped_scheduler import SteppedScheduler, groups

LOWER = {"withinClusterQueue": "LowerPriority"}


def a_scheduler(
    monkeypatch: pytest.MonkeyPatch, **flavors: str
) -> tuple[SteppedScheduler, list[str]]:
    """One workload is preempted for another; returns the workloads that are searched for later."""
    scheduler = SteppedScheduler()
    for flavor in flavors:
        scheduler.flavor(flavor)
    scheduler.queue("cq", resourceGroups=groups(**(flavors or {"default": "5"})), preemption=LOWER)
    for number in range(len(flavors) or 1):
        scheduler.submit(f"low-{number}", "cq", "4", age=2)
        scheduler.submit(f"side-{number}", "cq", "1", age=1)
    scheduler.settle()
    scheduler.submit("high", "cq", "4", priority=1)
    scheduler.cycle(confirm=False)
    assert len(scheduler.preempted) == 1
    scheduler.change(scheduler.preempted[0].name, conditions={"Evicted": (True, "Preempted")})
    return scheduler, searches(scheduler, monkeypatch)


def searches(scheduler: SteppedScheduler, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The workloads that are searched for from now on."""
    searched: list[str] = []
    nominator = scheduler.core._cycle._nominator
    nominate = nominator.nominate

    def counted(queue: Any, member: Any, *rest: Any, **more: Any) -> Any:
        searched.append(member.key[1])
        return nominate(queue, member, *rest, **more)

    monkeypatch.setattr(nominator, "nominate", counted)
    return searched


def events(scheduler: SteppedScheduler) -> None:
    """Changes after which the head is nominated again."""
    for number in range(5):
        scheduler.submit(f"other-{number}", "cq", "1", priority=-number)
        scheduler.gone(f"other-{number}")
        scheduler.cycle(confirm=False)


def test_a_saved_search_is_not_repeated_on_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, searched = a_scheduler(monkeypatch)
    events(scheduler)
    assert searched == []
    scheduler.evict("low-0", "Preempted")
    assert scheduler.cycle() == ["high"]


@pytest.mark.parametrize("flavors", [{"default": "9"}, {"default": "5", "spare": "4"}], ids=str)
def test_quota_of_an_edited_queue_is_used_at_once(
    monkeypatch: pytest.MonkeyPatch, flavors: dict[str, str]
) -> None:
    scheduler, _ = a_scheduler(monkeypatch)
    scheduler.flavor("spare")
    scheduler.queue("cq", resourceGroups=groups(**flavors), preemption=LOWER)
    assert scheduler.cycle() == ["high"]
    assert scheduler.stored["low-0"].status.admission is not None


@pytest.mark.parametrize("nominal", ["8", "0"], ids=["own", "borrowed"])
def test_freed_quota_is_used_before_the_victim_has_stopped(
    monkeypatch: pytest.MonkeyPatch, nominal: str
) -> None:
    scheduler = SteppedScheduler()
    preemption = LOWER | {
        "reclaimWithinCohort": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    }
    scheduler.queue("cq", "co", resourceGroups=groups(default=nominal), preemption=preemption)
    scheduler.queue("lender", "co", resourceGroups=groups(default=str(8 - int(nominal))))
    for name in ("low", "other"):
        scheduler.submit(name, "cq", "4")
    scheduler.settle()
    scheduler.submit("high", "cq", "4", priority=1)
    scheduler.cycle(confirm=False)
    (victim,) = (preemption.name for preemption in scheduler.preempted)
    scheduler.change(victim, conditions={"Evicted": (True, "Preempted")})
    searched = searches(scheduler, monkeypatch)
    events(scheduler)
    assert searched == []
    scheduler.finish(({"low", "other"} - {victim}).pop())
    assert scheduler.cycle() == ["high"]


def test_a_victim_that_was_protected_before_its_eviction_stays() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="4"), preemption=LOWER)
    scheduler.submit("low", "cq", "4")
    scheduler.settle()
    scheduler.submit("high", "cq", "4", priority=1)
    events(scheduler)
    scheduler.respec("low", priority=2)
    events(scheduler)
    assert [preemption.name for preemption in scheduler.all_preempted] == ["low"]


def test_a_head_with_a_choice_of_flavors_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, searched = a_scheduler(monkeypatch, one="5", two="5")
    stays = ({"low-0", "low-1"} - {scheduler.all_preempted[0].name}).pop()
    events(scheduler)
    assert searched
    scheduler.finish(stays)
    assert scheduler.cycle() == ["high"]


def test_victims_that_are_not_enough_any_more_are_found_others_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, _ = a_scheduler(monkeypatch)
    scheduler.queue("cq", resourceGroups=groups(default="4"), preemption=LOWER)
    scheduler.cycle(confirm=False)
    assert sorted(preemption.name for preemption in scheduler.all_preempted) == ["low-0", "side-0"]


def test_as_kueue_every_cycle_searches_again() -> None:
    scheduler = SteppedScheduler(Config(as_kueue=True))
    scheduler.queue("cq", resourceGroups=groups(default="5"), preemption=LOWER)
    scheduler.submit("low", "cq", "5")
    scheduler.settle()
    scheduler.submit("high", "cq", "5", priority=1)
    scheduler.cycle(confirm=False)
    assert scheduler.core._state.workloads["ns", "high"].saved_search is None
