"""Preemptors and victims that take quota from each other for ever: how that ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.workload import PreemptionCount, RequeueState
from admittance.events import facts
from admittance.scheduling.state.config import Config, FairSharing, PreemptionLoops
from support.cores.scheduling_story import groups

from living import Life

ANY: dict[str, Any] = {"reclaimWithinCohort": "Any"}
LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}
NEWER: dict[str, Any] = {"withinClusterQueue": "LowerOrNewerEqualPriority"}
BORROWS: dict[str, Any] = {**ANY, "borrowWithinCohort": {"policy": "LowerPriority"}}
Plot = Callable[[Life], None]


def life_of(*, fair: bool = False, rule: PreemptionLoops | None = PreemptionLoops()) -> Life:  # noqa: B008
    return Life(Config(fair_sharing=FairSharing() if fair else None, preemption_loops=rule))


def in_a_ring(life: Life) -> None:
    """One takes from the next: by priority in its queue, as its due from a borrower, and by
    priority while borrowing."""
    life.queue("a", "co", resourceGroups=groups(default="2"), preemption={**LOWER, **BORROWS})
    life.queue("b", "co", resourceGroups=groups(default="1"))
    life.queue("c", "co", resourceGroups=groups(default="3"), preemption={**NEWER, **BORROWS})
    life.submit("middle", "c", "4", age=100)
    life.submit("low", "c", "3", age=99, priority=-1)
    life.submit("high", "a", "5", age=98, priority=1)


def back_before_its_preemptor(life: Life) -> None:
    """The victim comes first in the fair sharing order and takes the freed quota."""
    life.queue("a", "co", resourceGroups=groups(default="1"), preemption={**NEWER, **ANY})
    life.queue("b", "co", resourceGroups=groups(default="4"), preemption={**NEWER, **BORROWS})
    life.submit("high", "a", "5", age=100, priority=2)
    life.submit("low", "b", "5", age=99, priority=-1)
    life.submit("middle", "a", "1", age=98, priority=1)


def among_equals(life: Life) -> None:
    """Shares are compared before victims are spared."""
    shares = {"fairSharing": {"weight": 3}}
    life.queue("a", "co", resourceGroups=groups(default="3"), preemption={**NEWER, **BORROWS})
    life.queue("b", "co", resourceGroups=groups(default="3"), preemption={**NEWER, **ANY}, **shares)
    life.submit("first", "b", "1", age=100)
    life.submit("second", "b", "3", age=99)
    life.submit("third", "b", "2", age=98, priority=2)
    life.settle()
    life.finish("third")
    life.submit("large", "a", "5", age=97)
    life.submit("small", "a", "3", age=96)


LOOPS = [
    pytest.param(in_a_ring, False, id="borrowing within the cohort, in a ring of three"),
    pytest.param(back_before_its_preemptor, True, id="fair sharing, back before its preemptor"),
    pytest.param(among_equals, True, id="fair sharing, among equals"),
]


@pytest.mark.parametrize(("plot", "fair"), LOOPS)
def test_without_the_loop_guard_preemptions_never_end(plot: Plot, fair: bool) -> None:
    life = life_of(fair=fair, rule=None)
    plot(life)
    with pytest.raises(AssertionError, match="does not come to rest"):
        life.settle(150)
    assert max(Counter(life.preempted()).values()) > 20


@pytest.mark.parametrize(("plot", "fair"), LOOPS)
def test_a_loop_ends_after_three_times_with_one_job_running(plot: Plot, fair: bool) -> None:
    life = life_of(fair=fair)
    plot(life)
    life.settle(60)
    assert max(Counter(life.preempted()).values()) <= 3
    names = ("high", "middle", "low", "first", "second", "large", "small")
    assert "Admitted" in life.phases(*filter(life.has, names))


@pytest.mark.parametrize(("plot", "fair"), LOOPS)
def test_a_preemption_loop_ends_even_if_the_scheduler_keeps_restarting(
    plot: Plot, fair: bool
) -> None:
    life = life_of(fair=fair)
    plot(life)
    for _ in range(30):
        for _ in range(5):
            life.cycle()
        life.restart()
    assert max(Counter(life.preempted()).values()) <= 3
    done = len(life.preempted())
    life.settle()
    assert len(life.preempted()) == done


@pytest.mark.parametrize(("plot", "fair"), LOOPS)
def test_a_blocked_preemption_is_retried_after_growing_pauses(plot: Plot, fair: bool) -> None:
    life = life_of(fair=fair)
    plot(life)
    life.settle(60)
    begun = life.now
    done = len(life.preempted())
    for _ in range(14 * 24 * 60):
        wake = life.core.next_wake()
        if wake is None:
            break
        life.now = max(wake, life.now)
        if life.now - begun > timedelta(days=14):
            break
        life.settle(60)
    tried = len(life.preempted()) - done
    assert tried <= 14 * 3 * 4
    assert max(Counter(life.preempted()).values()) <= 3 + 8 + 14


# What is said of it. ------------------------------------------------------------------------


def a_pair(victim_priority: int = 0) -> Life:
    """Workload owner preempts borrower to reclaim its quota, three times."""
    life = life_of()
    life.queue("a", "co", resourceGroups=groups(default="5"), preemption=ANY)
    life.queue("b", "co", resourceGroups=groups(default="0"))
    life.submit("borrower", "b", "5", priority=victim_priority)
    life.settle()
    life.submit("owner", "a", "5")
    for n in range(3):
        life.settle()
        assert life.preempted() == [("borrower", "owner")] * (n + 1)
        # Whatever it is that takes the room away from the one that it was made for.
        life.say(facts.Deactivated, "owner")
        life.settle()
        assert life.phase("borrower") == "Admitted"
        life.say(facts.Activated, "owner")
    return life


def test_a_separated_preemptor_is_refused_and_waits() -> None:
    life = a_pair()
    life.settle()
    assert len(life.preempted()) == 3
    assert life.phases("borrower", "owner") == ["Admitted", "Pending"]
    assert life.reason("owner", "QuotaReserved") == "False: PreemptionLoop"
    why = life.core.explain("ns", "owner", now=life.now)
    assert "ns/borrower 3 times" in why.message


def test_the_third_preemption_has_a_warning() -> None:
    life = a_pair()
    said = [one for one in life.decided if isinstance(one, facts.Preempted)]
    assert [one.times for one in said] == [1, 2, 3]
    assert "This is preemption 3 of this pair" in said[-1].message
    assert [list(life.core.repeated(one)) for one in said] == [
        [], [], [("ns/borrower", "ns/owner", 3)],
    ]  # fmt: skip


def test_a_blocked_workload_is_admitted_once_the_other_has_finished() -> None:
    life = a_pair()
    life.settle()
    life.finish("borrower")
    life.settle()
    assert life.phase("owner") == "Admitted"


def test_a_change_of_a_queue_of_theirs_ends_the_pause() -> None:
    life = a_pair()
    life.settle()
    life.queue("b", "co", resourceGroups=groups(default="0"), stopPolicy="None")
    life.settle()
    assert len(life.preempted()) == 4
    assert life.phase("owner") == "Admitted"


def test_after_the_pause_a_workload_may_preempt_once_more() -> None:
    life = a_pair()
    life.settle()
    wake = life.core.next_wake()
    assert wake is not None and wake > life.now + timedelta(minutes=9)
    life.now = wake
    life.settle()
    assert life.phases("borrower", "owner") == ["Pending", "Admitted"]


def test_a_raised_priority_allows_preemption_again() -> None:
    life = a_pair()
    life.settle()
    life.say(facts.Reprioritized, "owner", priority=5)
    life.settle()
    assert life.phase("owner") == "Admitted"


def test_an_equal_workload_may_preempt_where_it_is_blocked() -> None:
    life = a_pair()
    life.settle()
    life.submit("equal", "a", "5")
    life.settle()
    assert life.preempted()[3:] == [("borrower", "equal")]
    assert life.phases("equal", "owner") == ["Admitted", "Pending"]


def test_a_victim_with_lower_priority_stays_preemptible() -> None:
    life = a_pair(victim_priority=-1)
    for n in range(3, 6):
        life.settle()
        assert life.preempted() == [("borrower", "owner")] * (n + 1)
        assert life.phase("owner") == "Admitted"
        life.say(facts.Deactivated, "owner")
        life.settle()
        assert life.phase("borrower") == "Admitted"
        life.say(facts.Activated, "owner")


def test_a_victim_with_lower_priority_waits_for_its_preemptor() -> None:
    life = life_of(fair=True)
    back_before_its_preemptor(life)
    life.settle()
    assert life.phase("high") == "Admitted"
    life.finish("high")
    life.settle()
    assert life.phase("middle") == "Admitted"
    life.finish("middle")
    life.settle()
    assert life.phase("low") == "Admitted"


def written(life: Life, name: str, **status: Any) -> None:
    """The status is now so."""
    key = f"workload.ns.{name}"
    known = life.controller.workloads.get(key)
    assert known.workload is not None
    replaced = msgspec.structs.replace(known.workload.status, **status)
    changed = msgspec.structs.replace(known.workload, status=replaced)
    life.revision += 1
    life.controller.workloads.keep(key, known._replace(workload=changed, revision=life.revision))
    life.core.apply_workload("ns", name, changed, life.revision, now=life.now)


def lost_to(life: Life, victim: str, preemptor: str, times: int) -> None:
    """The preemptor has taken the victim's quota so often, just now."""
    uid = life.stored(preemptor).metadata.uid
    count = PreemptionCount(
        by=f"ns/{preemptor}", by_uid=uid, count=times, last=life.now, seen=life.revision
    )
    written(life, victim, preemptions=(count,))


def two_queues(**preemptor: Any) -> Life:
    """small has lost its quota to large again and again; both wait, and there is room for both."""
    life = life_of()
    for name in ("a", "b"):
        life.queue(name, "co", resourceGroups=groups(default="5"))
    life.submit("large", "a", "5", priority=1, **preemptor)
    life.submit("small", "b", "5")
    lost_to(life, "small", "large", times=5)
    return life


def assigned(life: Life) -> list[str]:
    """The workloads that got quota in a cycle that is not written yet."""
    return sorted(one.name for one in life.cycle(apply=False) if isinstance(one, facts.Assigned))


def test_a_blocked_workload_continues_once_the_other_is_admitted() -> None:
    life = two_queues()
    assert assigned(life) == ["large"]
    assert assigned(life) == ["small"]


def test_a_victim_does_not_wait_for_a_preemptor_that_cannot_start() -> None:
    life = two_queues(preemptionGates=[{"name": "gate"}])
    assert assigned(life) == ["large", "small"]
    life = two_queues()
    later = RequeueState(count=1, requeue_at=life.now + timedelta(hours=1))
    written(life, "large", requeue_state=later)
    assert assigned(life) == ["small"]


def test_a_workload_being_evicted_still_counts_as_a_victim() -> None:
    life = life_of()
    life.queue("a", "co", resourceGroups=groups(default="5"), preemption=ANY)
    life.queue("b", "co", resourceGroups=groups(default="0"))
    life.queue("lender", "co", resourceGroups=groups(default="5"))
    for name in ("other", "borrower"):
        life.submit(name, "b", "5")
        life.settle()
    life.submit("owner", "a", "5")
    lost_to(life, "borrower", "owner", times=2)
    life.stubborn.add("borrower")
    life.settle()
    assert life.preempted() == [("borrower", "owner")]
    assert life.stored("borrower").status.preemptions[0].count == 3
    life.restart()
    life.settle()
    life.stop("borrower")
    life.settle()
    assert life.preempted() == [("borrower", "owner")]
    assert life.phases("owner", "other") == ["Admitted", "Admitted"]


def test_quota_is_kept_free_only_briefly_for_a_parked_preemptor() -> None:
    life = life_of()
    life.queue("cq", resourceGroups=groups(default="10"), preemption=LOWER)
    life.submit("holder", "cq", "5", priority=9)
    life.settle()
    life.submit("large", "cq", "10", priority=1)
    life.settle()
    life.submit("small", "cq", "5")
    lost_to(life, "small", "large", times=8)
    life.settle()
    assert life.reason("small", "QuotaReserved") == "False: PreemptionLoop"
    life.now += timedelta(minutes=10)
    life.settle()
    assert life.phase("small") == "Admitted"


def test_with_kueues_rules_no_pair_is_separated() -> None:
    life = Life(Config(as_kueue=True))
    in_a_ring(life)
    with pytest.raises(AssertionError, match="does not come to rest"):
        life.settle(150)
