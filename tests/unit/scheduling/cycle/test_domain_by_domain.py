"""A cycle may be taken domain by domain, with news between two of them."""

from __future__ import annotations

from support.cores.scheduling_story import Story, groups


def a_story() -> Story:
    story = Story()
    for name in ("one", "two"):
        story.queue(name, resourceGroups=groups(default="5"))
        story.submit(f"in-{name}", name, cpu="3")
    return story


def test_each_part_has_the_decisions_of_one_domain() -> None:
    story = a_story()
    parts = list(story.core.by_domain(now=story.now))
    assert sorted(one.name for part in parts for one in part) == ["in-one", "in-two"]
    assert [len({one.domain for one in part}) for part in parts] == [1, 1]


def test_a_domain_that_is_lost_meanwhile_is_not_decided_about() -> None:
    story = a_story()
    parts = story.core.by_domain(now=story.now)
    (first,) = next(parts)
    (other,) = {"queue-one", "queue-two"} - {first.domain}
    story.core.disown(other)
    assert list(parts) == []
