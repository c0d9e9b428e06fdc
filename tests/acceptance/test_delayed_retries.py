"""Delayed retries: a workload waits as long as the check asks, and is not tried before.
docs/spec/lifecycle.md#3, #7.3."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from admittance.api.workload import CheckState
from admittance.events import facts
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.moves.backoff import check_deadline
from admittance.workload.stored import encode, head
from support.builders import NOON
from support.cores.stepped_scheduler import groups
from support.cores.timed_cores import TimedCores, cores_with_queue

scenario = pytest.mark.scenario
LOWER = {"withinClusterQueue": "LowerPriority"}


def a_reserved(*checks: str, **more: Any) -> TimedCores:
    """One workload that holds quota and waits for its checks."""
    cores = cores_with_queue(*checks, **more)
    cores.submit("w", "cq", "8")
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    return cores


# How long. ----------------------------------------------------------------------------------


def row(name: str, at: float | None, after: int | None, state: str = "Retry") -> CheckState:
    since = NOON + timedelta(seconds=at) if at is not None else None
    return CheckState(
        name=name, state=state, last_transition_time=since, requeue_after_seconds=after
    )


WAITS = [
    pytest.param([], None, id="no rows"),
    pytest.param([row("a", 0, 60)], 60, id="one check"),
    pytest.param([row("a", 0, None)], None, id="one check without a delay"),
    pytest.param([row("a", 0, 0)], None, id="a delay of nothing"),
    pytest.param([row("a", 0, 60), row("b", 0, 120)], 120, id="the longer of two"),
    pytest.param([row("a", 0, 60), row("b", 0, None)], 60, id="with and without a delay"),
    pytest.param([row("a", 0, 60), row("b", 30, 40)], 70, id="the later end, not the larger delay"),
    pytest.param([row("a", None, 60)], None, id="at no time"),
    pytest.param([row("a", None, 60), row("b", 5, 10)], 15, id="at no time, and another"),
    pytest.param(
        [row("a", 0, 60), row("b", 0, 90, "Ready"), row("c", 0, 80, "Pending")],
        60,
        id="only rows in Retry count",
    ),
    pytest.param([row("a", -30, 60), row("b", 10, 5), row("c", 0, 20)], 30, id="three of them"),
]


@scenario("L1")
@pytest.mark.parametrize(("rows", "seconds"), WAITS)
def test_a_workload_with_several_checks_waits_for_the_longest_delay(
    rows: list[CheckState], seconds: float | None
) -> None:
    deadline = check_deadline(tuple(rows))
    assert deadline == (NOON + timedelta(seconds=seconds) if seconds is not None else None)


@scenario("L2")
def test_a_check_without_delays_works_as_before() -> None:
    cores = a_reserved("c1", "c2")
    cores.report("w", "c2", "Ready")
    cores.answer("w", "c1", "Retry", message="again")
    assert cores.evicted_for("w") == ["AdmissionCheck"]
    assert cores.phase("w") == "Pending"
    assert cores.wait("w") is None
    assert cores.reason("w", "Requeued") == "True: BackoffFinished"
    assert cores.states("w") == {"c1": "Pending", "c2": "Pending"}
    assert "Previously: Retry" in cores.rows("w")["c1"].message
    assert "Previously: Ready" in cores.rows("w")["c2"].message
    cores.go()
    assert (cores.phase("w"), cores.seconds()) == ("QuotaReserved", 0)
    assert cores.counts("w") == {"c1": 1, "c2": 0}


@scenario("L3")
def test_a_delay_of_five_seconds_lasts_five_seconds() -> None:
    cores = a_reserved("c1")
    cores.answer("w", "c1", "Retry", after=5, message="full")
    assert cores.phase("w") == "Backoff"
    assert cores.usage("cq") == 0
    assert cores.reason("w", "Requeued") == "False: AdmissionCheck"
    assert cores.wait("w") == 5
    assert (cores.rows("w")["c1"].state, cores.rows("w")["c1"].retry_count) == ("Retry", 0)
    cores.advance(4.9)
    assert cores.phase("w") == "Backoff"
    cycle = cores.stored("w").status.admission_cycle
    cores.now += timedelta(seconds=0.1)
    cores.set_timers()
    due = cores.next_timer()
    assert due is not None
    cores.fire(due)
    assert cores.phase("w") == "Pending"
    assert cores.reason("w", "Requeued") == "True: BackoffFinished"
    assert cores.stored("w").status.admission_cycle == cycle + 1
    (row,) = cores.rows("w").values()
    assert (row.state, row.retry_count, row.requeue_after_seconds) == ("Pending", 1, None)
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    assert cores.requests("c1", "w")[-1].retry_count == 1


@scenario("L4")
@pytest.mark.parametrize("stopped", ["before the second", "after the second"])
@pytest.mark.parametrize("first", [60, 120])
def test_two_checks_wait_for_the_later_end(first: int, stopped: str) -> None:
    cores = a_reserved("c1", "c2")
    for check in ("c1", "c2"):
        cores.report("w", check, "Ready")
    cores.slow_jobs.add("w")
    cores.report("w", "c1", "Retry", after=first)
    cores.advance(10)
    if stopped == "before the second":
        cores.stop("w")
        cores.go()
    assert cores.answer("w", "c2", "Retry", after=180 - first) is None
    cores.advance(10)
    if stopped == "after the second":
        cores.stop("w")
        cores.go()
    end = max(first, 10 + 180 - first)
    cores.at(end - 0.1)
    assert cores.phase("w") == "Backoff"
    cores.at(end)
    assert cores.phase("w") == "QuotaReserved"
    assert cores.counts("w") == {"c1": 1, "c2": 1}
    assert cores.evictions("w") == {"AdmissionCheck": 1}


@scenario("L5")
def test_three_cycles_give_the_counts_one_two_and_none() -> None:
    cores = a_reserved("c1")
    cores.report("w", "c1", "Retry")
    assert cores.counts("w") == {"c1": 1}
    cores.report("w", "c1", "Retry", after=5)
    assert cores.counts("w") == {"c1": 1}
    cores.advance(5)
    assert cores.counts("w") == {"c1": 2}
    cores.report("w", "c1", "Ready")
    assert (cores.phase("w"), cores.counts("w")) == ("Admitted", {"c1": 0})
    assert cores.stored("w").status.requeue_state is None
    assert cores.stored("w").status.check_retry_counts == {}
    assert [request.retry_count for request in cores.requests("c1")] == [0, 1, 2]


@scenario("L5")
def test_a_ready_starts_the_count_of_its_check_over_and_no_other() -> None:
    cores = a_reserved("c1", "c2")
    for check in ("c1", "c2"):
        cores.report("w", check, "Retry")
    assert cores.counts("w") == {"c1": 1, "c2": 1}
    cores.report("w", "c1", "Ready")
    assert cores.counts("w") == {"c1": 0, "c2": 1}
    cores.report("w", "c2", "Retry")
    assert cores.counts("w") == {"c1": 0, "c2": 2}


@scenario("L6")
@pytest.mark.parametrize("stops", [False, True], ids=["while it stops", "while it waits"])
@pytest.mark.parametrize("state", ["Ready", "Pending", "Retry", "Rejected"])
def test_another_check_answers_after_the_eviction(state: str, stops: bool) -> None:
    cores = a_reserved("c1", "c2")
    for check in ("c1", "c2"):
        cores.report("w", check, "Ready")
    cores.slow_jobs.add("w")
    cores.report("w", "c1", "Retry", after=60)
    if stops:
        cores.stop("w")
    updates: dict[str, Any] = (
        {"pod_set_updates": ({"name": "main", "labels": {"a": "b"}},)} if state == "Ready" else {}
    )
    if state == "Ready":
        cores.answer("w", "c2", "Pending")
    cores.answer(
        "w", "c2", state, message="late", **({"after": 90} if state == "Retry" else updates)
    )
    if state == "Rejected":
        assert cores.phase("w") == "Rejected"
        cores.stop("w")
        cores.advance(3600)
        assert cores.phase("w") == "Rejected"
        return
    assert cores.states("w") == {"c1": "Retry", "c2": state}
    assert cores.rows("w")["c2"].message == "late"
    assert cores.rows("w")["c2"].pod_set_updates == ()
    assert cores.wait("w") == (90 if state == "Retry" else 60)
    if not stops:
        cores.stop("w")
    cores.at(59.9)
    assert cores.phase("w") == "Backoff"
    cores.at(60)
    assert cores.phase("w") == ("Backoff" if state == "Retry" else "QuotaReserved")
    cores.at(90)
    assert cores.phase("w") == "QuotaReserved"
    assert cores.states("w") == {"c1": "Pending", "c2": "Pending"}
    assert cores.evictions("w") == {"AdmissionCheck": 1}


@scenario("L6")
def test_a_check_may_withdraw_its_retry() -> None:
    cores = a_reserved("c1")
    cores.report("w", "c1", "Retry", after=600)
    cores.advance(10)
    cores.report("w", "c1", "Ready", message="it was a mistake")
    assert cores.phase("w") == "QuotaReserved"
    assert cores.states("w") == {"c1": "Pending"}, "what it judged is gone: it is asked anew"
    assert cores.starts("w") == 0


@scenario("L8")
def test_the_example_of_the_proposal_gives_its_result() -> None:
    cores = cores_with_queue("budget", "gpu", "license")
    day = datetime.fromisoformat("2026-02-06T10:00:00+00:00")
    cores.now = day
    cores.submit("w", "cq", "8")
    cores.go()
    for check in ("budget", "gpu", "license"):
        cores.report("w", check, "Ready")
    cores.now = day + timedelta(minutes=10)
    cores.report("w", "budget", "Retry", after=50_400, message="daily budget exhausted")
    cores.now = day + timedelta(minutes=11)
    cores.report("w", "gpu", "Retry", after=480, message="no A100")
    cores.now = day + timedelta(minutes=20)
    cores.report("w", "license", "Retry")
    state = cores.stored("w").status.requeue_state
    assert state is not None
    assert state.requeue_at == datetime.fromisoformat("2026-02-07T00:10:00+00:00")
    asked = len(cores.check_facts)
    cores.advance(50_400 - 600 - 1)
    assert cores.phase("w") == "Backoff"
    assert len(cores.check_facts) == asked, "nothing is evaluated before"
    cores.advance(1)
    assert cores.phase("w") == "QuotaReserved"
    assert cores.counts("w") == {"budget": 1, "gpu": 1, "license": 1}


@scenario("L9")
def test_a_reactivated_workload_has_no_delays_and_counts() -> None:
    cores = a_reserved("c1", "c2")
    cores.report("w", "c1", "Retry")
    cores.report("w", "c1", "Retry", after=600)
    cores.report("w", "c2", "Ready")
    assert cores.counts("w") == {"c1": 1, "c2": 0}
    cores.publish(facts.Deactivated, "w")
    assert cores.phase("w") == "Deactivated"
    assert cores.stored("w").status.requeue_state is None
    assert cores.states("w") == {"c1": "Pending", "c2": "Pending"}
    assert cores.counts("w") == {"c1": 0, "c2": 0}
    assert all(row.requeue_after_seconds is None for row in cores.rows("w").values())
    cores.advance(10)
    cores.publish(facts.Activated, "w")
    cores.go()
    assert (cores.phase("w"), cores.seconds()) == ("QuotaReserved", 10)
    assert cores.counts("w") == {"c1": 0, "c2": 0}
    assert cores.requests("c1", "w")[-1].retry_count == 0


PODS = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(seconds=30), backoff_base=60))


@scenario("L10")
@pytest.mark.parametrize(("after", "end"), [(30, 60), (300, 300)])
def test_pods_and_checks_share_one_wait_and_neither_shortens_the_other(
    after: int, end: int
) -> None:
    cores = a_reserved("c1", limits=PODS)
    cores.report("w", "c1", "Ready")
    cycle = cores.stored("w").status.admission_cycle
    cores.at(30)
    assert (cores.phase("w"), cores.wait("w"), cores.count("w")) == ("Backoff", 60, 1)
    assert cores.reason("w", "Requeued") == "False: PodsReadyTimeout"
    assert cores.answer("w", "c1", "Retry", cycle=cycle, after=after) is None
    assert (cores.wait("w"), cores.count("w")) == (end, 1)
    assert cores.evictions("w") == {"PodsReadyTimeout": 1}
    cores.at(30 + end - 0.1)
    assert cores.phase("w") == "Backoff"
    cores.at(30 + end)
    assert (cores.phase("w"), cores.count("w")) == ("QuotaReserved", 1)


@scenario("L10")
def test_a_check_that_shortens_its_wait_leaves_that_of_the_pods() -> None:
    cores = a_reserved("c1", limits=PODS)
    cores.report("w", "c1", "Ready")
    cycle = cores.stored("w").status.admission_cycle
    cores.at(30)
    cores.answer("w", "c1", "Retry", cycle=cycle, after=300)
    assert cores.wait("w") == 300
    cores.answer("w", "c1", "Retry", cycle=cycle, after=10)
    assert (cores.wait("w"), cores.count("w")) == (60, 1)
    cores.answer("w", "c1", "Ready", cycle=cycle)
    assert (cores.wait("w"), cores.count("w")) == (60, 1)
    cores.at(89.9)
    assert cores.phase("w") == "Backoff"
    cores.at(90)
    assert cores.phase("w") == "QuotaReserved"


@scenario("L11")
def test_the_latest_end_wins_not_the_largest_delay() -> None:
    cores = a_reserved("a", "b")
    cores.report("w", "b", "Retry", after=10)
    cores.at(9)
    assert cores.wait("w") == 1
    cores.at(9.5)
    cores.report("w", "a", "Retry", after=5)
    assert cores.wait("w") == 5.5  # of whole seconds the next
    cores.at(14.9)
    assert cores.phase("w") == "Backoff"
    cores.at(15)
    assert cores.phase("w") == "QuotaReserved"


# Late and slow ones. ------------------------------------------------------------------------


@scenario("L12")
@pytest.mark.parametrize("reserved", [False, True], ids=["while pending", "while reserved again"])
@pytest.mark.parametrize("rounds", [1, 2, 30])
def test_a_verdict_of_a_slow_check_counts_after_retries_of_a_fast_one(
    rounds: int, reserved: bool
) -> None:
    cores = a_reserved("fast", "slow")
    first = cores.stored("w").status.admission_cycle
    for number in range(rounds):
        cores.advance(1)
        cores.answer("w", "fast", "Retry")
        if reserved or number < rounds - 1:
            cores.go()
    assert cores.phase("w") == ("QuotaReserved" if reserved else "Pending")
    evictions = cores.evictions("w")["AdmissionCheck"]
    assert cores.answer("w", "slow", "Retry", cycle=first, after=120) is None
    cores.go()
    assert (cores.phase("w"), cores.wait("w")) == ("Backoff", 120)
    assert cores.evictions("w")["AdmissionCheck"] == evictions + reserved
    asked = len(cores.check_facts)
    cores.advance(119.9)
    assert cores.phase("w") == "Backoff"
    assert (
        len([fact for fact in cores.check_facts[asked:] if isinstance(fact, facts.CheckRequested)])
        == 0
    )
    cores.advance(0.1)
    assert cores.phase("w") == "QuotaReserved"
    assert cores.counts("w") == {"fast": rounds, "slow": 1}


@scenario("L12")
def test_an_older_verdict_does_not_replace_one_of_the_new_cycle() -> None:
    cores = a_reserved("fast", "slow")
    first = cores.stored("w").status.admission_cycle
    cores.report("w", "fast", "Retry")
    cores.report("w", "slow", "Ready")
    stale = cores.answer("w", "slow", "Retry", cycle=first, after=120)
    assert stale is not None
    assert cores.phase("w") == "QuotaReserved"
    cores.report("w", "fast", "Ready")
    assert cores.phase("w") == "Admitted"


@scenario("L12")
def test_a_verdict_before_an_eviction_is_stale_after_a_new_reservation() -> None:
    cores = a_reserved("fast", "slow", preemption=LOWER)
    first = cores.stored("w").status.admission_cycle
    cores.report("w", "fast", "Retry")
    cores.submit("high", "cq", "8", priority=10)
    cores.go()
    cores.finish("high")
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    stale = cores.answer("w", "slow", "Retry", cycle=first, after=120)
    assert stale is not None
    assert cores.phase("w") == "QuotaReserved"


@scenario("L17")
@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_a_delayed_workload_lets_others_pass_in_their_order(strategy: str) -> None:
    cores = cores_with_queue("c1", nominal="8", queueingStrategy=strategy)
    for age, name in enumerate("dcba", 1):
        cores.submit(name, "cq", "8", age=age)
    cores.go()
    assert cores.phases(*"abcd") == ["QuotaReserved", "Pending", "Pending", "Pending"]
    cores.report("a", "c1", "Retry", after=60)
    assert cores.phases(*"abcd") == ["Backoff", "QuotaReserved", "Pending", "Pending"]
    cores.report("b", "c1", "Ready")
    cores.advance(30)
    cores.finish("b")
    cores.go()
    assert cores.phases(*"acd") == ["Backoff", "QuotaReserved", "Pending"]
    cores.report("c", "c1", "Ready")
    cores.advance(60)
    cores.finish("c")
    cores.go()
    # Its place is by the time of its eviction: behind its peers.
    assert cores.phases(*"ad") == ["Pending", "QuotaReserved"]
    cores.finish("d")
    cores.go()
    assert cores.phase("a") == "QuotaReserved"


@scenario("L18")
def test_flavor_checks_stay_listed_during_a_delay_of_one_of_them() -> None:
    cores = TimedCores()
    cores.put("ResourceFlavor", "f")
    cores.put("ResourceFlavor", "g")
    for name in ("c1", "c2"):
        cores.check(name)
    (group,) = groups(f="10", g="1")
    group["flavors"][0]["admissionChecks"] = ["c1", "c2"]
    cores.queue("cq", resourceGroups=[group])
    cores.submit("w", "cq", "8")
    assert cores.states("w") == {}
    cores.go()
    cores.report("w", "c1", "Retry", after=60)
    assert cores.stored("w").status.admission is None
    assert cores.states("w") == {"c1": "Retry", "c2": "Pending"}
    cores.advance(10)
    assert cores.answer("w", "c2", "Retry", after=120) is None
    assert cores.states("w") == {"c1": "Retry", "c2": "Retry"}
    assert cores.wait("w") == 120
    cores.at(129.9)
    assert cores.phase("w") == "Backoff"
    cores.at(130)
    assert (cores.phase("w"), cores.flavor("w")) == ("QuotaReserved", "f")
    assert cores.counts("w") == {"c1": 1, "c2": 1}


@scenario("L19")
def test_a_check_without_a_verdict_is_not_cancelled_by_another_s_eviction() -> None:
    cores = a_reserved("c1", "c2")
    cycle = cores.stored("w").status.admission_cycle
    cores.report("w", "c1", "Retry", after=60)
    # The one reason that means: free what you booked, and finish judging.
    assert cores.withdrawn("c2", "w") == [("AdmissionCheck", cycle)]
    cores.advance(20)
    assert cores.answer("w", "c2", "Retry", after=120) is None
    assert cores.wait("w") == 120
    cores.at(139.9)
    assert cores.phase("w") == "Backoff"
    cores.at(140)
    assert cores.phase("w") == "QuotaReserved"
    cores.report("w", "c1", "Ready")
    cores.report("w", "c2", "Ready")
    assert cores.phase("w") == "Admitted"


@scenario("L21")
def test_three_checks_with_delays_give_the_result_of_story_3() -> None:
    cores = a_reserved("a", "b", "c")
    cores.answer("w", "a", "Retry", after=300)
    cores.answer("w", "b", "Retry", after=60)
    cores.go()
    assert cores.wait("w") == 300
    cores.at(299.9)
    assert cores.phase("w") == "Backoff"
    cores.at(300)
    assert (cores.phase("w"), cores.counts("w")) == ("QuotaReserved", {"a": 1, "b": 1, "c": 0})
    cores.report("w", "a", "Ready")
    cores.report("w", "b", "Ready")
    cores.report("w", "c", "Retry", after=600)
    assert cores.wait("w") == 600
    cores.advance(599.9)
    assert cores.phase("w") == "Backoff"
    cores.advance(0.1)
    assert (cores.phase("w"), cores.counts("w")) == ("QuotaReserved", {"a": 0, "b": 0, "c": 1})


@scenario("L22")
@pytest.mark.parametrize(("after", "end"), [(60, 60), (90, 120)])
def test_a_repeated_retry_keeps_the_wait_and_a_new_delay_restarts_it(after: int, end: int) -> None:
    cores = a_reserved("c1")
    cores.report("w", "c1", "Retry", after=60, message="full")
    since = cores.rows("w")["c1"].last_transition_time
    cores.at(30)
    cores.report("w", "c1", "Retry", after=after, message="full")
    assert (cores.rows("w")["c1"].last_transition_time == since) == (after == 60)
    assert cores.wait("w") == end - 30
    cores.at(end - 0.1)
    assert cores.phase("w") == "Backoff"
    cores.at(end)
    assert (cores.phase("w"), cores.counts("w")) == ("QuotaReserved", {"c1": 1})


@scenario("L23")
@pytest.mark.parametrize("late", [10, 59, 200], ids=["stops soon", "stops in time", "stops late"])
@pytest.mark.parametrize("why", ["Preempted", "ClusterQueueStopped", "LocalQueueStopped"])
def test_a_retry_during_another_eviction_holds_it_when_that_is_over(why: str, late: int) -> None:
    cores = a_reserved("c1", preemption=LOWER)
    cores.report("w", "c1", "Ready")
    cores.slow_jobs.add("w")
    cycle = cores.stored("w").status.admission_cycle
    queue, local = cores.spec("ClusterQueue", "cq"), cores.spec("LocalQueue", "cq", "ns")
    if why == "Preempted":
        cores.submit("high", "cq", "8", priority=10)
    elif why == "ClusterQueueStopped":
        cores.put("ClusterQueue", "cq", {**queue, "stopPolicy": "HoldAndDrain"})
    else:
        cores.put("LocalQueue", "cq", {**local, "stopPolicy": "HoldAndDrain"}, "ns")
    cores.go()
    assert (cores.phase("w"), cores.evicted_for("w")) == ("Evicting", [why])
    assert cores.answer("w", "c1", "Retry", cycle=cycle, after=60) is None
    assert cores.phase("w") == "Evicting"
    cores.advance(late)
    cores.stop("w")
    cores.put("ClusterQueue", "cq", queue)
    cores.put("LocalQueue", "cq", local, "ns")
    if why == "Preempted":
        cores.publish(facts.Deleted, "high")
    cores.go()
    if late < 60:
        assert cores.phase("w") == "Backoff"
        assert cores.states("w") == {"c1": "Retry"}
        cores.at(59.9)
        assert cores.phase("w") == "Backoff"
        cores.at(60)
    assert (cores.phase("w"), cores.counts("w")) == ("QuotaReserved", {"c1": 1})
    assert cores.evictions("w") == {why: 1}


@scenario("L23")
@pytest.mark.parametrize("opens", [30, 90])
def test_a_queue_that_stays_stopped_longer_or_shorter_than_the_wait(opens: int) -> None:
    cores = a_reserved("c1")
    cores.report("w", "c1", "Ready")
    cycle = cores.stored("w").status.admission_cycle
    queue = cores.spec("ClusterQueue", "cq")
    cores.put("ClusterQueue", "cq", {**queue, "stopPolicy": "HoldAndDrain"})
    cores.go()
    assert cores.phase("w") == "Backoff"
    assert cores.answer("w", "c1", "Retry", cycle=cycle, after=60) is None
    cores.at(opens)
    assert cores.phase("w") != "QuotaReserved"
    cores.put("ClusterQueue", "cq", queue)
    cores.go()
    cores.at(max(opens, 59.9))
    assert cores.phase("w") == ("Backoff" if opens < 60 else "QuotaReserved")
    cores.at(max(opens, 60))
    assert cores.phase("w") == "QuotaReserved"


@scenario("L26")
def test_a_delay_beyond_the_limit_is_cut_with_a_warning() -> None:
    cores = a_reserved("c1", limits=Limits(check_delay=timedelta(seconds=100)))
    cores.report("w", "c1", "Retry", after=1000)
    assert cores.wait("w") == 100
    assert cores.rows("w")["c1"].requeue_after_seconds == 100
    assert "RetryDelayClamped" in cores.noted("w")
    cores.at(100)
    assert cores.phase("w") == "QuotaReserved"


@scenario("L26")
def test_the_longest_delay_is_a_week_by_default() -> None:
    cores = a_reserved("c1")
    cores.report("w", "c1", "Retry", after=10**9)
    assert cores.wait("w") == 7 * 86_400
    cores.report("w", "c1", "Retry", after=7 * 86_400)
    assert cores.noted("w") == ["RetryDelayClamped"]


@scenario("L26")
def test_a_workload_deleted_during_its_wait_leaves_no_state() -> None:
    cores = a_reserved("c1")
    cores.report("w", "c1", "Retry", after=1000)
    assert cores.scheduled("w") == {"requeue"}
    cores.publish(facts.Deleted, "w")
    cores.go()
    assert not cores.has("w")
    assert cores.scheduled("w") == set()
    cores.submit("w", "cq", "8")
    cores.go()
    assert (cores.phase("w"), cores.counts("w")) == ("QuotaReserved", {"c1": 0})
    cores.advance(2000)
    assert cores.phase("w") == "QuotaReserved"


@scenario("L16")
def test_a_restart_during_a_delay_does_not_change_the_delay() -> None:
    cores = a_reserved("c1")
    cores.report("w", "c1", "Retry", after=60)
    cores.at(30)
    before = encode(cores.stored("w"))
    cores.restart()
    cores.go()
    assert encode(cores.stored("w")) == before
    cores.at(59.9)
    assert cores.phase("w") == "Backoff"
    cores.at(60)
    assert (cores.phase("w"), cores.counts("w")) == ("QuotaReserved", {"c1": 1})


@scenario("L16")
def test_a_wait_that_ended_during_downtime_ends_at_once_and_counts_once() -> None:
    cores = a_reserved("c1")
    cores.report("w", "c1", "Retry", after=60)
    cores.now += timedelta(seconds=600)
    cores.restart()
    cores.go()
    assert (cores.phase("w"), cores.counts("w")) == ("QuotaReserved", {"c1": 1})
    # The bus says it once more.
    cores.publish(facts.TimerDue, "w", kind="requeue", at=NOON + timedelta(seconds=60))
    cores.go()
    assert (cores.phase("w"), cores.counts("w")) == ("QuotaReserved", {"c1": 1})
    assert head(cores.stored("w")).active
