"""Preemptors and victims that take quota from each other again and again: the loop guard ends
this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.workload import PreemptionCount, RequeueState
from admittance.events import facts
from admittance.scheduling.state.config import CohortFairSharing, Config, PreemptionLoops
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups

ANY: dict[str, Any] = {"reclaimWithinCohort": "Any"}
LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}
NEWER: dict[str, Any] = {"withinClusterQueue": "LowerOrNewerEqualPriority"}
BORROWS: dict[str, Any] = {**ANY, "borrowWithinCohort": {"policy": "LowerPriority"}}
Plot = Callable[[SteppedCores], None]


LOOPS = PreemptionLoops()


def cores_of(*, fair: bool = False, rule: PreemptionLoops | None = LOOPS) -> SteppedCores:
    return SteppedCores(
        Config(fair_sharing=CohortFairSharing() if fair else None, preemption_loops=rule)
    )


def in_a_ring(cores: SteppedCores) -> None:
    """Each workload preempts the next one: by priority in its queue, to reclaim lent quota, and by
    priority while borrowing."""
    cores.queue("a", "co", resourceGroups=groups(default="2"), preemption={**LOWER, **BORROWS})
    cores.queue("b", "co", resourceGroups=groups(default="1"))
    cores.queue("c", "co", resourceGroups=groups(default="3"), preemption={**NEWER, **BORROWS})
    cores.submit("middle", "c", "4", age=100)
    cores.submit("low", "c", "3", age=99, priority=-1)
    cores.submit("high", "a", "5", age=98, priority=1)


def back_before_its_preemptor(cores: SteppedCores) -> None:
    """The victim comes first in the fair sharing order and takes the freed quota."""
    cores.queue("a", "co", resourceGroups=groups(default="1"), preemption={**NEWER, **ANY})
    cores.queue("b", "co", resourceGroups=groups(default="4"), preemption={**NEWER, **BORROWS})
    cores.submit("high", "a", "5", age=100, priority=2)
    cores.submit("low", "b", "5", age=99, priority=-1)
    cores.submit("middle", "a", "1", age=98, priority=1)


def among_equals(cores: SteppedCores) -> None:
    """Shares are compared before victims are spared."""
    shares = {"fairSharing": {"weight": 3}}
    cores.queue("a", "co", resourceGroups=groups(default="3"), preemption={**NEWER, **BORROWS})
    cores.queue(
        "b", "co", resourceGroups=groups(default="3"), preemption={**NEWER, **ANY}, **shares
    )
    cores.submit("first", "b", "1", age=100)
    cores.submit("second", "b", "3", age=99)
    cores.submit("third", "b", "2", age=98, priority=2)
    cores.settle()
    cores.finish("third")
    cores.submit("large", "a", "5", age=97)
    cores.submit("small", "a", "3", age=96)


PLOTS = [
    pytest.param(in_a_ring, False, id="borrowing within the cohort, in a ring of three"),
    pytest.param(back_before_its_preemptor, True, id="fair sharing, back before its preemptor"),
    pytest.param(among_equals, True, id="fair sharing, among equals"),
]


@pytest.mark.parametrize(("plot", "fair"), PLOTS)
def test_without_the_loop_guard_preemptions_never_end(plot: Plot, fair: bool) -> None:
    cores = cores_of(fair=fair, rule=None)
    plot(cores)
    with pytest.raises(AssertionError, match="does not come to rest"):
        cores.settle(150)
    assert max(Counter(cores.preempted()).values()) > 20


@pytest.mark.parametrize(("plot", "fair"), PLOTS)
def test_a_loop_ends_after_three_times_with_one_job_running(plot: Plot, fair: bool) -> None:
    cores = cores_of(fair=fair)
    plot(cores)
    cores.settle(60)
    assert max(Counter(cores.preempted()).values()) <= 3
    names = ("high", "middle", "low", "first", "second", "large", "small")
    assert "Admitted" in cores.phases(*filter(cores.has, names))


@pytest.mark.parametrize(("plot", "fair"), PLOTS)
def test_a_preemption_loop_ends_even_if_the_scheduler_keeps_restarting(
    plot: Plot, fair: bool
) -> None:
    cores = cores_of(fair=fair)
    plot(cores)
    for _ in range(30):
        for _ in range(5):
            cores.cycle()
        cores.restart_scheduler()
    assert max(Counter(cores.preempted()).values()) <= 3
    done = len(cores.preempted())
    cores.settle()
    assert len(cores.preempted()) == done


@pytest.mark.parametrize(("plot", "fair"), PLOTS)
def test_a_blocked_preemption_is_retried_after_growing_pauses(plot: Plot, fair: bool) -> None:
    cores = cores_of(fair=fair)
    plot(cores)
    cores.settle(60)
    begun = cores.now
    done = len(cores.preempted())
    for _ in range(14 * 24 * 60):
        wake = cores.scheduler.next_wake()
        if wake is None:
            break
        cores.now = max(wake, cores.now)
        if cores.now - begun > timedelta(days=14):
            break
        cores.settle(60)
    tried = len(cores.preempted()) - done
    assert tried <= 14 * 3 * 4
    assert max(Counter(cores.preempted()).values()) <= 3 + 8 + 14


# What is said of it. ------------------------------------------------------------------------


def a_pair(victim_priority: int = 0) -> SteppedCores:
    """Workload owner preempts borrower to reclaim its quota, three times."""
    cores = cores_of()
    cores.queue("a", "co", resourceGroups=groups(default="5"), preemption=ANY)
    cores.queue("b", "co", resourceGroups=groups(default="0"))
    cores.submit("borrower", "b", "5", priority=victim_priority)
    cores.settle()
    cores.submit("owner", "a", "5")
    for n in range(3):
        cores.settle()
        assert cores.preempted() == [("borrower", "owner")] * (n + 1)
        # Whatever it is that takes the room away from the one that it was made for.
        cores.publish(facts.Deactivated, "owner")
        cores.settle()
        assert cores.phase("borrower") == "Admitted"
        cores.publish(facts.Activated, "owner")
    return cores


def test_a_separated_preemptor_is_refused_and_waits() -> None:
    cores = a_pair()
    cores.settle()
    assert len(cores.preempted()) == 3
    assert cores.phases("borrower", "owner") == ["Admitted", "Pending"]
    assert cores.reason("owner", "QuotaReserved") == "False: PreemptionLoop"
    why = cores.scheduler.explain("ns", "owner", now=cores.now)
    assert "ns/borrower 3 times" in why.message


def test_a_preemptor_of_two_victims_waits_for_the_shorter_pause() -> None:
    cores = cores_of()
    cores.queue("a", "co", resourceGroups=groups(default="5"), preemption=ANY)
    cores.queue("b", "co", resourceGroups=groups(default="0"))
    cores.submit("owner", "a", "5")
    cores.publish(facts.Deactivated, "owner")
    for name, times in (("often", 5), ("seldom", 4)):
        cores.submit(name, "b", "2")
        cores.settle()
        lost_to(cores, name, "owner", times)
    cores.publish(facts.Activated, "owner")
    cores.settle()
    why = cores.scheduler.explain("ns", "owner", now=cores.now)
    assert "ns/often, ns/seldom 5 times" in why.message
    assert "until 2026-01-01T12:20:02Z" in why.message


def test_a_workload_behind_a_blocked_preemptor_has_its_turn() -> None:
    cores = a_pair()
    cores.settle()
    cores.restart()
    cores.submit("behind", "a", "0")
    cores.settle()
    assert cores.phases("owner", "behind") == ["Pending", "Admitted"]


def test_the_third_preemption_has_a_warning() -> None:
    cores = a_pair()
    said = [decision for decision in cores.decided if isinstance(decision, facts.Preempted)]
    assert [message.times for message in said] == [1, 2, 3]
    assert "This is preemption 3 of this pair" in said[-1].message
    assert [list(cores.scheduler.repeated(message)) for message in said] == [
        [], [], [("ns/borrower", "ns/owner", 3)],
    ]  # fmt: skip


def test_a_blocked_workload_is_admitted_once_the_other_has_finished() -> None:
    cores = a_pair()
    cores.settle()
    cores.finish("borrower")
    cores.settle()
    assert cores.phase("owner") == "Admitted"


def test_a_change_of_a_queue_of_theirs_ends_the_pause() -> None:
    cores = a_pair()
    cores.settle()
    cores.queue("b", "co", resourceGroups=groups(default="0"), stopPolicy="None")
    cores.settle()
    assert len(cores.preempted()) == 4
    assert cores.phase("owner") == "Admitted"


def test_after_the_pause_a_workload_may_preempt_once_more() -> None:
    cores = a_pair()
    cores.settle()
    wake = cores.scheduler.next_wake()
    assert wake is not None and wake > cores.now + timedelta(minutes=9)
    cores.now = wake
    cores.settle()
    assert cores.phases("borrower", "owner") == ["Pending", "Admitted"]


def test_a_raised_priority_allows_preemption_again() -> None:
    cores = a_pair()
    cores.settle()
    cores.publish(facts.Reprioritized, "owner", priority=5)
    cores.settle()
    assert cores.phase("owner") == "Admitted"


def test_another_workload_may_preempt_while_the_preemptor_is_paused() -> None:
    cores = a_pair()
    cores.settle()
    cores.submit("equal", "a", "5")
    cores.settle()
    assert cores.preempted()[3:] == [("borrower", "equal")]
    assert cores.phases("equal", "owner") == ["Admitted", "Pending"]


def test_a_victim_with_lower_priority_stays_preemptible() -> None:
    cores = a_pair(victim_priority=-1)
    for n in range(3, 6):
        cores.settle()
        assert cores.preempted() == [("borrower", "owner")] * (n + 1)
        assert cores.phase("owner") == "Admitted"
        cores.publish(facts.Deactivated, "owner")
        cores.settle()
        assert cores.phase("borrower") == "Admitted"
        cores.publish(facts.Activated, "owner")


def test_a_victim_with_lower_priority_waits_for_its_preemptor() -> None:
    cores = cores_of(fair=True)
    back_before_its_preemptor(cores)
    cores.settle()
    assert cores.phase("high") == "Admitted"
    cores.finish("high")
    cores.settle()
    assert cores.phase("middle") == "Admitted"
    cores.finish("middle")
    cores.settle()
    assert cores.phase("low") == "Admitted"


def written(cores: SteppedCores, name: str, **status: Any) -> None:
    """Writes this status."""
    key = f"workload.ns.{name}"
    known = cores.controller.workloads.get(key)
    assert known.workload is not None
    replaced = msgspec.structs.replace(known.workload.status, **status)
    changed = msgspec.structs.replace(known.workload, status=replaced)
    cores.revision += 1
    cores.controller.workloads.keep(key, known._replace(workload=changed, revision=cores.revision))
    cores.scheduler.apply_workload("ns", name, changed, cores.revision, now=cores.now)


def lost_to(cores: SteppedCores, victim: str, preemptor: str, times: int) -> None:
    """The preemptor has taken the victim's quota so often, just now."""
    uid = cores.stored(preemptor).metadata.uid
    count = PreemptionCount(
        by=f"ns/{preemptor}", by_uid=uid, count=times, last=cores.now, seen=cores.revision
    )
    written(cores, victim, preemptions=(count,))


def two_queues(**preemptor: Any) -> SteppedCores:
    """small has lost its quota to large again and again; both wait, and there is room for both."""
    cores = cores_of()
    for name in ("a", "b"):
        cores.queue(name, "co", resourceGroups=groups(default="5"))
    cores.submit("large", "a", "5", priority=1, **preemptor)
    cores.submit("small", "b", "5")
    lost_to(cores, "small", "large", times=5)
    return cores


def assigned(cores: SteppedCores) -> list[str]:
    """The workloads that got quota in a cycle that is not written yet."""
    return sorted(
        decision.name
        for decision in cores.cycle(apply=False)
        if isinstance(decision, facts.Assigned)
    )


def test_a_blocked_workload_continues_once_the_other_is_admitted() -> None:
    cores = two_queues()
    assert assigned(cores) == ["large"]
    assert assigned(cores) == ["small"]


def test_a_victim_does_not_wait_for_a_preemptor_that_cannot_start() -> None:
    cores = two_queues(preemptionGates=[{"name": "gate"}])
    assert assigned(cores) == ["large", "small"]
    cores = two_queues()
    later = RequeueState(count=1, requeue_at=cores.now + timedelta(hours=1))
    written(cores, "large", requeue_state=later)
    assert assigned(cores) == ["small"]


def test_a_workload_being_evicted_still_counts_as_a_victim() -> None:
    cores = cores_of()
    cores.queue("a", "co", resourceGroups=groups(default="5"), preemption=ANY)
    cores.queue("b", "co", resourceGroups=groups(default="0"))
    cores.queue("lender", "co", resourceGroups=groups(default="5"))
    for name in ("other", "borrower"):
        cores.submit(name, "b", "5")
        cores.settle()
    cores.submit("owner", "a", "5")
    lost_to(cores, "borrower", "owner", times=2)
    cores.slow_jobs.add("borrower")
    cores.settle()
    assert cores.preempted() == [("borrower", "owner")]
    assert cores.stored("borrower").status.preemptions[0].count == 3
    cores.restart_scheduler()
    cores.settle()
    cores.stop("borrower")
    cores.settle()
    assert cores.preempted() == [("borrower", "owner")]
    assert cores.phases("owner", "other") == ["Admitted", "Admitted"]


def test_quota_is_kept_free_only_briefly_for_a_parked_preemptor() -> None:
    cores = cores_of()
    cores.queue("cq", resourceGroups=groups(default="10"), preemption=LOWER)
    cores.submit("holder", "cq", "5", priority=9)
    cores.settle()
    cores.submit("large", "cq", "10", priority=1)
    cores.settle()
    cores.submit("small", "cq", "5")
    lost_to(cores, "small", "large", times=8)
    cores.settle()
    assert cores.reason("small", "QuotaReserved") == "False: PreemptionLoop"
    cores.now += timedelta(minutes=10)
    cores.settle()
    assert cores.phase("small") == "Admitted"


def test_with_kueues_rules_no_pair_is_separated() -> None:
    cores = SteppedCores(Config(as_kueue=True))
    in_a_ring(cores)
    with pytest.raises(AssertionError, match="does not come to rest"):
        cores.settle(150)
