"""The status of a victim names its preemptor, so a new leader keeps the preemptor at the head."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest

from admittance.events.shapes import PreemptedBy
from admittance.scheduling.state.config import Config
from support.cores.stepped_scheduler import SteppedScheduler, groups

LOWER = {"withinClusterQueue": "LowerPriority"}


def a_scheduler(**config: Any) -> SteppedScheduler:
    """One workload is preempted for another; a third one with a higher priority comes too late."""
    scheduler = SteppedScheduler(Config(**config))
    scheduler.queue("cq", resourceGroups=groups(default="5"), preemption=LOWER)
    scheduler.submit("low", "cq", "5")
    scheduler.settle()
    scheduler.submit("high", "cq", "5", priority=1)
    scheduler.cycle(confirm=False)
    preempt(scheduler, "low", "high")
    scheduler.submit("higher", "cq", "5", priority=2)
    return scheduler


def preempt(scheduler: SteppedScheduler, victim: str, by: str) -> None:
    """Stores the victim's eviction, with its preemptor."""
    scheduler.change(
        victim,
        conditions={"Evicted": (True, "Preempted")},
        preempted_by=PreemptedBy(by=f"ns/{by}", by_uid=f"uid-{by}", at=scheduler.now),
    )


def heir_of(
    scheduler: SteppedScheduler, order: tuple[str, ...], *, strict: bool = False
) -> SteppedScheduler:
    heir = SteppedScheduler()
    strategy: dict[str, Any] = {"queueingStrategy": "StrictFIFO"} if strict else {}
    heir.queue("cq", resourceGroups=groups(default="5"), preemption=LOWER, **strategy)
    heir.core.disown("queue-cq")  # It reads the whole bucket before it leads.
    for name in order:
        heir.write("ns", name, scheduler.stored[name])
    return heir


@pytest.mark.parametrize("order", list(permutations(("low", "high", "higher"))))
def test_its_place_is_kept_in_whatever_order_the_new_leader_reads(order: tuple[str, ...]) -> None:
    heir = heir_of(a_scheduler(), order)
    assert heir.why("high").position == 1
    heir.core.own("queue-cq")
    for _ in range(3):
        heir.cycle(confirm=False)
    assert heir.all_preempted == []
    heir.evict("low", "Preempted")
    assert heir.cycle() == ["high"]


def test_a_preemptor_keeps_its_place_after_all_victims_stopped() -> None:
    scheduler = a_scheduler()
    scheduler.evict("low", "Preempted")
    heir = heir_of(scheduler, ("low", "high", "higher"))
    heir.core.own("queue-cq")
    assert heir.cycle() == ["high"]


def test_a_strict_queue_keeps_no_place() -> None:
    heir = heir_of(a_scheduler(), ("low", "high", "higher"), strict=True)
    assert heir.why("higher").position == 1


def test_a_preemptor_that_returns_later_has_lost_its_place() -> None:
    scheduler = a_scheduler()
    scheduler.evict("low", "Preempted")
    scheduler.change("high", conditions={"QuotaReserved": (False, "PendingEvaluation")})
    heir = heir_of(scheduler, ("low", "high", "higher"))
    assert heir.why("higher").position == 1


def test_of_two_preemptors_the_latest_keeps_its_place() -> None:
    scheduler = a_scheduler()
    scheduler.now += timedelta(seconds=1)
    scheduler.submit("last", "cq", "5", priority=1)
    scheduler.submit("other", "cq", "5", priority=-1)
    scheduler.change("other", conditions={"QuotaReserved": (True, "QuotaReserved")})
    preempt(scheduler, "other", "last")
    scheduler.change("last", conditions={"QuotaReserved": (False, "WaitingForPreemptedWorkloads")})
    for order in permutations(("low", "high", "other", "last")):
        assert heir_of(scheduler, order).why("last").position == 1


def test_a_pending_preemptor_with_quota_stops_being_pending() -> None:
    heir = heir_of(a_scheduler(), ("low", "high", "higher"))
    heir.evict("low", "Preempted")
    heir.core.own("queue-cq")
    heir.cycle()
    heir.core.disown("queue-cq")
    heir.evict("high", "Preempted")
    assert heir.why("higher").position == 1


def test_a_leader_keeps_its_own_preemptor() -> None:
    scheduler = a_scheduler()
    scheduler.submit("highest", "cq", "5", priority=9)
    assert scheduler.why("high").position == 1
    scheduler.respec("high", active=False)
    scheduler.respec("high", active=True)
    preempt(scheduler, "low", "high")
    assert scheduler.why("highest").position == 1
