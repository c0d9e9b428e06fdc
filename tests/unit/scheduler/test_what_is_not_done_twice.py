"""What is remembered instead of done again, and that nothing is decided differently by it."""

from __future__ import annotations

import pytest

from admittance.scheduler.config import Config
from admittance.scheduler.nominate import Nominator

from scheduling import Story, groups, quota


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the heads that were looked at, one after the other."""
    seen: list[str] = []
    nominate = Nominator.nominate

    def counted(self: Nominator, queue, member, *more, **named):  # type: ignore[no-untyped-def]
        seen.append(member.key[1])
        return nominate(self, queue, member, *more, **named)

    monkeypatch.setattr(Nominator, "nominate", counted)
    return seen


def strict(story: Story, name: str, *flavors: str) -> None:
    offered = {flavor: quota("1") for flavor in flavors}
    story.queue(name, queueingStrategy="StrictFIFO", resourceGroups=groups(**offered))


def test_a_head_that_stays_where_it_is_is_looked_at_once_for_an_event(looks: list[str]) -> None:
    story = Story()
    strict(story, "alone", "default")
    story.submit("runs", "alone")
    story.settle()
    story.submit("waits", "alone")
    looks.clear()
    story.settle()
    assert looks == ["waits"]


def test_a_head_that_stays_is_looked_at_again_when_room_comes_free(looks: list[str]) -> None:
    story = Story()
    strict(story, "alone", "default")
    story.submit("runs", "alone")
    story.settle()
    story.submit("waits", "alone")
    story.settle()
    story.finish("runs")
    assert story.settle() == ["waits"]


def test_a_head_that_goes_round_its_flavors_is_looked_at_in_every_idle_cycle(
    looks: list[str],
) -> None:
    # The pod set that fits begins with the next flavor each time, so where it stands when room
    # comes free is a matter of how often it was looked at.
    story = Story(Config(idle_cycles=9))
    story.flavor("other")
    strict(story, "two", "default", "other")
    story.submit("large", "two", pods=[{"requests": {"cpu": "1"}}, {"requests": {"cpu": "5"}}])
    story.settle()
    assert looks == ["large"] * 9


def test_idle_cycles_that_are_not_run_count_for_the_cursors_of_others() -> None:
    story = Story(Config(idle_cycles=9))
    strict(story, "alone", "default")
    story.submit("large", "alone", "5")
    before = story.core._cycle.number
    story.settle()
    assert story.core._cycle.number == before + 9
