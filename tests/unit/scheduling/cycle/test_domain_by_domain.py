"""A cycle may be taken domain by domain, with news between two of them."""

from __future__ import annotations

from support.cores.stepped_scheduler import SteppedScheduler, groups


def a_scheduler() -> SteppedScheduler:
    scheduler = SteppedScheduler()
    for name in ("one", "two"):
        scheduler.queue(name, resourceGroups=groups(default="5"))
        scheduler.submit(f"in-{name}", name, cpu="3")
    return scheduler


def test_each_part_has_the_decisions_of_one_domain() -> None:
    scheduler = a_scheduler()
    parts = list(scheduler.core.by_domain(now=scheduler.now))
    assert sorted(decision.name for part in parts for decision in part) == ["in-one", "in-two"]
    assert [len({decision.domain for decision in part}) for part in parts] == [1, 1]


def test_no_decision_is_made_for_a_domain_that_was_just_lost() -> None:
    scheduler = a_scheduler()
    parts = scheduler.core.by_domain(now=scheduler.now)
    (first,) = next(parts)
    (other,) = {"queue-one", "queue-two"} - {first.domain}
    scheduler.core.disown(other)
    assert list(parts) == []


def test_a_domain_that_its_last_queue_leaves_is_removed() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("cq", resourceGroups=groups(default="6"))
    scheduler.queue("cq", "co", resourceGroups=groups(default="6"))
    assert list(scheduler.core._state.domains) == ["cohort-co"]
