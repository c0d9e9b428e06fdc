"""Heads that block a StrictFIFO queue get a refusal with the reason."""

from __future__ import annotations

from datetime import timedelta

from admittance.events.requests import PendingQuery
from support.cores.scheduling_story import Story, groups


def a_strict_story() -> Story:
    story = Story()
    story.flavor("default")
    story.queue("cq", resourceGroups=groups(default="10"), queueingStrategy="StrictFIFO")
    return story


def test_a_blocking_head_is_refused_once_after_a_delay() -> None:
    story = a_strict_story()
    story.submit("w", "cq", "10500m", age=9)
    story.submit("behind", "cq", "1")
    assert story.settle() == []
    assert story.core.refusals(now=story.now) == []
    assert story.core.next_wake() == story.now + timedelta(seconds=1)
    story.now += timedelta(seconds=1)
    (refused,) = story.core.refusals(now=story.now)
    assert (refused.name, refused.refusal.reason) == ("w", "ExceedsMaxQuota")
    (short,) = refused.refusal.shortfalls
    assert (short.requested, short.flavor) == (10_500, "default")
    assert story.core.refusals(now=story.now) == []
    story.change("w", conditions={"QuotaReserved": (False, "ExceedsMaxQuota")})
    story.settle()
    story.now += timedelta(seconds=9)
    assert story.core.refusals(now=story.now) == []


def test_a_strict_head_that_fits_meanwhile_is_not_refused() -> None:
    story = a_strict_story()
    story.submit("runs", "cq", "8", age=9)
    story.submit("w", "cq", "8", age=8)
    assert story.settle() == ["runs"]
    story.finish("runs")
    assert story.settle() == ["w"]
    story.now += timedelta(seconds=1)
    assert story.core.refusals(now=story.now) == []


def test_a_strict_head_is_refused_again_after_a_status_change() -> None:
    story = a_strict_story()
    story.submit("w", "cq", "10500m")
    story.settle()
    story.now += timedelta(seconds=1)
    assert len(story.core.refusals(now=story.now)) == 1
    story.change("w", conditions={"QuotaReserved": (False, "ExceedsMaxQuota")})
    story.settle()
    story.change("w", conditions={"QuotaReserved": (False, "PendingEvaluation")})
    story.settle()
    story.now += timedelta(seconds=1)
    assert [one.name for one in story.core.refusals(now=story.now)] == ["w"]


def test_a_head_that_blocks_is_listed_with_the_reason() -> None:
    story = a_strict_story()
    story.submit("w", "cq", "10500m", age=9)
    story.submit("behind", "cq", "1")
    story.settle()
    first, second = story.core.pending(PendingQuery(cluster_queue="cq")).rows
    assert (first.reason, first.parked) == ("ExceedsMaxQuota", False)
    assert second.reason == "PendingEvaluation"
