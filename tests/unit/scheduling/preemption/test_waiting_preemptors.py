"""The status of a victim names its preemptor, so a new leader keeps the preemptor at the head."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations

import pytest

from admittance.events.shapes import PreemptedBy
from admittance.scheduling.state.config import Config
from support.cores.scheduling_story import Story, groups

LOWER = {"withinClusterQueue": "LowerPriority"}


class Heir(Story):
    """A standby: receives every event, and decides only after it owns the domain."""

    def _own(self) -> None:
        pass


def a_story(**config: int) -> Story:
    """One workload is preempted for another; a third one with a higher priority comes too late."""
    story = Story(Config(**config))
    story.queue("cq", resourceGroups=groups(default="5"), preemption=LOWER)
    story.submit("low", "cq", "5")
    story.settle()
    story.submit("high", "cq", "5", priority=1)
    story.cycle(confirm=False)
    told(story, "low", "high")
    story.submit("higher", "cq", "5", priority=2)
    return story


def told(story: Story, victim: str, by: str) -> None:
    """The victim's eviction is stored, with its preemptor."""
    story.change(
        victim,
        conditions={"Evicted": (True, "Preempted")},
        preempted_by=PreemptedBy(by=f"ns/{by}", by_uid=f"uid-{by}", at=story.now),
    )


def heir_of(story: Story, order: tuple[str, ...], *, strict: bool = False) -> Heir:
    heir = Heir()
    strategy = {"queueingStrategy": "StrictFIFO"} if strict else {}
    heir.queue("cq", resourceGroups=groups(default="5"), preemption=LOWER, **strategy)
    for name in order:
        heir._write("ns", name, story.stored[name])
    return heir


@pytest.mark.parametrize("order", list(permutations(("low", "high", "higher"))))
def test_its_place_is_kept_in_whatever_order_the_new_leader_reads(order: tuple[str, ...]) -> None:
    heir = heir_of(a_story(), order)
    assert heir.why("high").position == 1
    heir.core.own("queue-cq")
    for _ in range(3):
        heir.cycle(confirm=False)
    assert heir.told == []
    heir.evict("low", "Preempted")
    assert heir.cycle() == ["high"]


def test_a_preemptor_keeps_its_place_after_all_victims_stopped() -> None:
    story = a_story()
    story.evict("low", "Preempted")
    heir = heir_of(story, ("low", "high", "higher"))
    heir.core.own("queue-cq")
    assert heir.cycle() == ["high"]


def test_a_strict_queue_keeps_no_place() -> None:
    heir = heir_of(a_story(), ("low", "high", "higher"), strict=True)
    assert heir.why("higher").position == 1


def test_a_preemptor_that_returns_later_has_lost_its_place() -> None:
    story = a_story()
    story.evict("low", "Preempted")
    story.change("high", conditions={"QuotaReserved": (False, "PendingEvaluation")})
    heir = heir_of(story, ("low", "high", "higher"))
    assert heir.why("higher").position == 1


def test_of_two_preemptors_the_latest_keeps_its_place() -> None:
    story = a_story()
    story.now += timedelta(seconds=1)
    story.submit("last", "cq", "5", priority=1)
    story.submit("other", "cq", "5", priority=-1)
    story.change("other", conditions={"QuotaReserved": (True, "QuotaReserved")})
    told(story, "other", "last")
    story.change("last", conditions={"QuotaReserved": (False, "WaitingForPreemptedWorkloads")})
    for order in permutations(("low", "high", "other", "last")):
        assert heir_of(story, order).why("last").position == 1


def test_a_pending_preemptor_with_quota_is_no_longer_pending() -> None:
    heir = heir_of(a_story(), ("low", "high", "higher"))
    heir.evict("low", "Preempted")
    heir.core.own("queue-cq")
    heir.cycle()
    heir.core.disown("queue-cq")
    heir.evict("high", "Preempted")
    assert heir.why("higher").position == 1


def test_a_leader_keeps_its_own_preemptor() -> None:
    story = a_story()
    story.submit("highest", "cq", "5", priority=9)
    assert story.why("high").position == 1
    story.respec("high", active=False)
    story.respec("high", active=True)
    told(story, "low", "high")
    assert story.why("highest").position == 1
