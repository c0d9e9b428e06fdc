"""A preemptor that waits costs next to nothing, and misses nothing meanwhile."""

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
    searched: list[str] = []
    nominator = scheduler.core._cycle._nominator
    nominate = nominator.nominate

    def counted(queue: Any, member: Any, *rest: Any, **more: Any) -> Any:
        searched.append(member.key[1])
        return nominate(queue, member, *rest, **more)

    monkeypatch.setattr(nominator, "nominate", counted)
    return scheduler, searched


def events(scheduler: SteppedScheduler) -> None:
    """Things that make the head be looked at again."""
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


def test_quota_freed_in_another_flavor_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, _ = a_scheduler(monkeypatch)
    scheduler.queue("cq", resourceGroups=groups(default="9"), preemption=LOWER)
    assert scheduler.cycle() == ["high"]
    assert scheduler.stored["low-0"].status.admission is not None


def test_a_head_with_a_choice_of_flavors_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, searched = a_scheduler(monkeypatch, one="5", two="5")
    stays = ({"low-0", "low-1"} - {scheduler.told[0].name}).pop()
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
    assert sorted(one.name for one in scheduler.told) == ["low-0", "side-0"]


def test_as_kueue_every_cycle_searches_again() -> None:
    scheduler = SteppedScheduler(Config(as_kueue=True))
    scheduler.queue("cq", resourceGroups=groups(default="5"), preemption=LOWER)
    scheduler.submit("low", "cq", "5")
    scheduler.settle()
    scheduler.submit("high", "cq", "5", priority=1)
    scheduler.cycle(confirm=False)
    assert scheduler.core._state.workloads["ns", "high"].saved_search is None
