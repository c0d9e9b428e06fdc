"""A preemptor that waits costs next to nothing, and misses nothing meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.scheduling.state.config import Config
from support.cores.scheduling_story import Story, groups

LOWER = {"withinClusterQueue": "LowerPriority"}


def a_story(monkeypatch: pytest.MonkeyPatch, **flavors: str) -> tuple[Story, list[str]]:
    """One workload is preempted for another; returns the workloads that are searched for later."""
    story = Story()
    for flavor in flavors:
        story.flavor(flavor)
    story.queue("cq", resourceGroups=groups(**(flavors or {"default": "5"})), preemption=LOWER)
    for number in range(len(flavors) or 1):
        story.submit(f"low-{number}", "cq", "4", age=2)
        story.submit(f"side-{number}", "cq", "1", age=1)
    story.settle()
    story.submit("high", "cq", "4", priority=1)
    story.cycle(confirm=False)
    assert len(story.preempted) == 1
    story.change(story.preempted[0].name, conditions={"Evicted": (True, "Preempted")})
    searched: list[str] = []
    nominator = story.core._cycle._nominator
    nominate = nominator.nominate

    def counted(queue: Any, member: Any, *rest: Any, **more: Any) -> Any:
        searched.append(member.key[1])
        return nominate(queue, member, *rest, **more)

    monkeypatch.setattr(nominator, "nominate", counted)
    return story, searched


def events(story: Story) -> None:
    """Things that make the head be looked at again."""
    for number in range(5):
        story.submit(f"other-{number}", "cq", "1", priority=-number)
        story.gone(f"other-{number}")
        story.cycle(confirm=False)


def test_a_saved_search_is_not_repeated_on_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    story, searched = a_story(monkeypatch)
    events(story)
    assert searched == []
    story.evict("low-0", "Preempted")
    assert story.cycle() == ["high"]


def test_quota_freed_in_another_flavor_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    story, _ = a_story(monkeypatch)
    story.queue("cq", resourceGroups=groups(default="9"), preemption=LOWER)
    assert story.cycle() == ["high"]
    assert story.stored["low-0"].status.admission is not None


def test_a_head_with_a_choice_of_flavors_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    story, searched = a_story(monkeypatch, one="5", two="5")
    stays = ({"low-0", "low-1"} - {story.told[0].name}).pop()
    events(story)
    assert searched
    story.finish(stays)
    assert story.cycle() == ["high"]


def test_victims_that_are_not_enough_any_more_are_found_others_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story, _ = a_story(monkeypatch)
    story.queue("cq", resourceGroups=groups(default="4"), preemption=LOWER)
    story.cycle(confirm=False)
    assert sorted(one.name for one in story.told) == ["low-0", "side-0"]


def test_as_kueue_every_cycle_searches_again() -> None:
    story = Story(Config(as_kueue=True))
    story.queue("cq", resourceGroups=groups(default="5"), preemption=LOWER)
    story.submit("low", "cq", "5")
    story.settle()
    story.submit("high", "cq", "5", priority=1)
    story.cycle(confirm=False)
    assert story.core._state.workloads["ns", "high"].saved_search is None
