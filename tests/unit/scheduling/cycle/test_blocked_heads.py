"""Heads that block a StrictFIFO queue get a refusal with the reason."""

from __future__ import annotations

from datetime import timedelta

from admittance.events.requests.queues import PendingQuery
from support.cores.stepped_scheduler import SteppedScheduler, groups


def a_strict_scheduler() -> SteppedScheduler:
    scheduler = SteppedScheduler()
    scheduler.flavor("default")
    scheduler.queue("cq", resourceGroups=groups(default="10"), queueingStrategy="StrictFIFO")
    return scheduler


def test_a_blocking_head_is_refused_once_after_a_delay() -> None:
    scheduler = a_strict_scheduler()
    scheduler.submit("w", "cq", "10500m", age=9)
    scheduler.submit("behind", "cq", "1")
    assert scheduler.settle() == []
    assert scheduler.core.refusals(now=scheduler.now) == []
    assert scheduler.core.next_wake() == scheduler.now + timedelta(seconds=1)
    scheduler.now += timedelta(seconds=1)
    (refused,) = scheduler.core.refusals(now=scheduler.now)
    assert (refused.name, refused.refusal.reason) == ("w", "ExceedsMaxQuota")
    (short,) = refused.refusal.shortfalls
    assert (short.requested, short.flavor) == (10_500, "default")
    assert scheduler.core.refusals(now=scheduler.now) == []
    scheduler.change("w", conditions={"QuotaReserved": (False, "ExceedsMaxQuota")})
    scheduler.settle()
    scheduler.now += timedelta(seconds=9)
    assert scheduler.core.refusals(now=scheduler.now) == []


def test_a_strict_head_that_fits_before_its_refusal_is_not_refused() -> None:
    scheduler = a_strict_scheduler()
    scheduler.submit("runs", "cq", "8", age=9)
    scheduler.submit("w", "cq", "8", age=8)
    assert scheduler.settle() == ["runs"]
    scheduler.finish("runs")
    assert scheduler.settle() == ["w"]
    scheduler.now += timedelta(seconds=1)
    assert scheduler.core.refusals(now=scheduler.now) == []


def test_a_strict_head_is_refused_again_after_a_status_change() -> None:
    scheduler = a_strict_scheduler()
    scheduler.submit("w", "cq", "10500m")
    scheduler.settle()
    scheduler.now += timedelta(seconds=1)
    assert len(scheduler.core.refusals(now=scheduler.now)) == 1
    scheduler.change("w", conditions={"QuotaReserved": (False, "ExceedsMaxQuota")})
    scheduler.settle()
    scheduler.change("w", conditions={"QuotaReserved": (False, "PendingEvaluation")})
    scheduler.settle()
    scheduler.now += timedelta(seconds=1)
    assert [refusal.name for refusal in scheduler.core.refusals(now=scheduler.now)] == ["w"]


def test_a_head_that_blocks_is_listed_with_the_reason() -> None:
    scheduler = a_strict_scheduler()
    scheduler.submit("w", "cq", "10500m", age=9)
    scheduler.submit("behind", "cq", "1")
    scheduler.settle()
    first, second = scheduler.core.pending(PendingQuery(cluster_queue="cq")).rows
    assert (first.reason, first.parked) == ("ExceedsMaxQuota", False)
    assert second.reason == "PendingEvaluation"
