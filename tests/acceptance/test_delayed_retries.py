"""Delayed retries: the wait that a check asks for, and nothing before its end. LIFECYCLE 3, 7.3."""

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
from support.cores.scheduling_story import groups

from long_living import LongLife, a_long_life

scenario = pytest.mark.scenario
LOWER = {"withinClusterQueue": "LowerPriority"}


def a_reserved(*checks: str, **more: Any) -> LongLife:
    """One workload that holds quota and waits for its checks."""
    life = a_long_life(*checks, **more)
    life.submit("w", "cq", "8")
    life.go()
    assert life.phase("w") == "QuotaReserved"
    return life


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
    found = check_deadline(tuple(rows))
    assert found == (NOON + timedelta(seconds=seconds) if seconds is not None else None)


@scenario("L2")
def test_a_check_without_delays_works_as_before() -> None:
    life = a_reserved("c1", "c2")
    life.judge("w", "c2", "Ready")
    life.answer("w", "c1", "Retry", message="again")
    assert life.evicted_for("w") == ["AdmissionCheck"]
    assert life.phase("w") == "Pending"
    assert life.wait("w") is None
    assert life.reason("w", "Requeued") == "True: BackoffFinished"
    assert life.states("w") == {"c1": "Pending", "c2": "Pending"}
    assert "Previously: Retry" in life.rows("w")["c1"].message
    assert "Previously: Ready" in life.rows("w")["c2"].message
    life.go()
    assert (life.phase("w"), life.seconds()) == ("QuotaReserved", 0)
    assert life.counts("w") == {"c1": 1, "c2": 0}


@scenario("L3")
def test_a_delay_of_five_seconds_lasts_five_seconds() -> None:
    life = a_reserved("c1")
    life.answer("w", "c1", "Retry", after=5, message="full")
    assert life.phase("w") == "Backoff"
    assert life.usage("cq") == 0
    assert life.reason("w", "Requeued") == "False: AdmissionCheck"
    assert life.wait("w") == 5
    assert (life.rows("w")["c1"].state, life.rows("w")["c1"].retry_count) == ("Retry", 0)
    life.advance(4.9)
    assert life.phase("w") == "Backoff"
    cycle = life.stored("w").status.admission_cycle
    life.now += timedelta(seconds=0.1)
    life._set_timers()
    due = life._next_due()
    assert due is not None
    life._ring(due)
    assert life.phase("w") == "Pending"
    assert life.reason("w", "Requeued") == "True: BackoffFinished"
    assert life.stored("w").status.admission_cycle == cycle + 1
    (found,) = life.rows("w").values()
    assert (found.state, found.retry_count, found.requeue_after_seconds) == ("Pending", 1, None)
    life.go()
    assert life.phase("w") == "QuotaReserved"
    assert life.requests("c1", "w")[-1].retry_count == 1


@scenario("L4")
@pytest.mark.parametrize("stopped", ["before the second", "after the second"])
@pytest.mark.parametrize("first", [60, 120])
def test_two_checks_wait_for_the_later_end(first: int, stopped: str) -> None:
    life = a_reserved("c1", "c2")
    for check in ("c1", "c2"):
        life.judge("w", check, "Ready")
    life.stubborn.add("w")
    life.judge("w", "c1", "Retry", after=first)
    life.advance(10)
    if stopped == "before the second":
        life.stop("w")
        life.go()
    assert life.answer("w", "c2", "Retry", after=180 - first) is None
    life.advance(10)
    if stopped == "after the second":
        life.stop("w")
        life.go()
    end = max(first, 10 + 180 - first)
    life.at(end - 0.1)
    assert life.phase("w") == "Backoff"
    life.at(end)
    assert life.phase("w") == "QuotaReserved"
    assert life.counts("w") == {"c1": 1, "c2": 1}
    assert life.evictions("w") == {"AdmissionCheck": 1}


@scenario("L5")
def test_three_cycles_give_the_counts_one_two_and_none() -> None:
    life = a_reserved("c1")
    life.judge("w", "c1", "Retry")
    assert life.counts("w") == {"c1": 1}
    life.judge("w", "c1", "Retry", after=5)
    assert life.counts("w") == {"c1": 1}
    life.advance(5)
    assert life.counts("w") == {"c1": 2}
    life.judge("w", "c1", "Ready")
    assert (life.phase("w"), life.counts("w")) == ("Admitted", {"c1": 0})
    assert life.stored("w").status.requeue_state is None
    assert life.stored("w").status.check_retry_counts == {}
    assert [one.retry_count for one in life.requests("c1")] == [0, 1, 2]


@scenario("L5")
def test_a_ready_starts_the_count_of_its_check_over_and_no_other() -> None:
    life = a_reserved("c1", "c2")
    for check in ("c1", "c2"):
        life.judge("w", check, "Retry")
    assert life.counts("w") == {"c1": 1, "c2": 1}
    life.judge("w", "c1", "Ready")
    assert life.counts("w") == {"c1": 0, "c2": 1}
    life.judge("w", "c2", "Retry")
    assert life.counts("w") == {"c1": 0, "c2": 2}


@scenario("L6")
@pytest.mark.parametrize("stops", [False, True], ids=["while it stops", "while it waits"])
@pytest.mark.parametrize("state", ["Ready", "Pending", "Retry", "Rejected"])
def test_another_check_answers_after_the_eviction(state: str, stops: bool) -> None:
    life = a_reserved("c1", "c2")
    for check in ("c1", "c2"):
        life.judge("w", check, "Ready")
    life.stubborn.add("w")
    life.judge("w", "c1", "Retry", after=60)
    if stops:
        life.stop("w")
    updates: dict[str, Any] = (
        {"pod_set_updates": ({"name": "main", "labels": {"a": "b"}},)} if state == "Ready" else {}
    )
    if state == "Ready":
        life.answer("w", "c2", "Pending")
    life.answer(
        "w", "c2", state, message="late", **({"after": 90} if state == "Retry" else updates)
    )
    if state == "Rejected":
        assert life.phase("w") == "Rejected"
        life.stop("w")
        life.advance(3600)
        assert life.phase("w") == "Rejected"
        return
    assert life.states("w") == {"c1": "Retry", "c2": state}
    assert life.rows("w")["c2"].message == "late"
    assert life.rows("w")["c2"].pod_set_updates == ()
    assert life.wait("w") == (90 if state == "Retry" else 60)
    if not stops:
        life.stop("w")
    life.at(59.9)
    assert life.phase("w") == "Backoff"
    life.at(60)
    assert life.phase("w") == ("Backoff" if state == "Retry" else "QuotaReserved")
    life.at(90)
    assert life.phase("w") == "QuotaReserved"
    assert life.states("w") == {"c1": "Pending", "c2": "Pending"}
    assert life.evictions("w") == {"AdmissionCheck": 1}


@scenario("L6")
def test_a_check_may_withdraw_its_retry() -> None:
    life = a_reserved("c1")
    life.judge("w", "c1", "Retry", after=600)
    life.advance(10)
    life.judge("w", "c1", "Ready", message="it was a mistake")
    assert life.phase("w") == "QuotaReserved"
    assert life.states("w") == {"c1": "Pending"}, "what it judged is gone: it is asked anew"
    assert life.starts("w") == 0


@scenario("L8")
def test_the_example_of_the_proposal_gives_its_result() -> None:
    life = a_long_life("budget", "gpu", "license")
    day = datetime.fromisoformat("2026-02-06T10:00:00+00:00")
    life.now = day
    life.submit("w", "cq", "8")
    life.go()
    for check in ("budget", "gpu", "license"):
        life.judge("w", check, "Ready")
    life.now = day + timedelta(minutes=10)
    life.judge("w", "budget", "Retry", after=50_400, message="daily budget exhausted")
    life.now = day + timedelta(minutes=11)
    life.judge("w", "gpu", "Retry", after=480, message="no A100")
    life.now = day + timedelta(minutes=20)
    life.judge("w", "license", "Retry")
    state = life.stored("w").status.requeue_state
    assert state is not None
    assert state.requeue_at == datetime.fromisoformat("2026-02-07T00:10:00+00:00")
    asked = len(life.asked)
    life.advance(50_400 - 600 - 1)
    assert life.phase("w") == "Backoff"
    assert len(life.asked) == asked, "nothing is evaluated before"
    life.advance(1)
    assert life.phase("w") == "QuotaReserved"
    assert life.counts("w") == {"budget": 1, "gpu": 1, "license": 1}


@scenario("L9")
def test_a_reactivated_workload_has_no_delays_and_counts() -> None:
    life = a_reserved("c1", "c2")
    life.judge("w", "c1", "Retry")
    life.judge("w", "c1", "Retry", after=600)
    life.judge("w", "c2", "Ready")
    assert life.counts("w") == {"c1": 1, "c2": 0}
    life.say(facts.Deactivated, "w")
    assert life.phase("w") == "Deactivated"
    assert life.stored("w").status.requeue_state is None
    assert life.states("w") == {"c1": "Pending", "c2": "Pending"}
    assert life.counts("w") == {"c1": 0, "c2": 0}
    assert all(one.requeue_after_seconds is None for one in life.rows("w").values())
    life.advance(10)
    life.say(facts.Activated, "w")
    life.go()
    assert (life.phase("w"), life.seconds()) == ("QuotaReserved", 10)
    assert life.counts("w") == {"c1": 0, "c2": 0}
    assert life.requests("c1", "w")[-1].retry_count == 0


PODS = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(seconds=30), backoff_base=60))


@scenario("L10")
@pytest.mark.parametrize(("after", "end"), [(30, 60), (300, 300)])
def test_pods_and_checks_share_one_wait_and_neither_shortens_the_other(
    after: int, end: int
) -> None:
    life = a_reserved("c1", limits=PODS)
    life.judge("w", "c1", "Ready")
    cycle = life.stored("w").status.admission_cycle
    life.at(30)
    assert (life.phase("w"), life.wait("w"), life.count("w")) == ("Backoff", 60, 1)
    assert life.reason("w", "Requeued") == "False: PodsReadyTimeout"
    assert life.answer("w", "c1", "Retry", cycle=cycle, after=after) is None
    assert (life.wait("w"), life.count("w")) == (end, 1)
    assert life.evictions("w") == {"PodsReadyTimeout": 1}
    life.at(30 + end - 0.1)
    assert life.phase("w") == "Backoff"
    life.at(30 + end)
    assert (life.phase("w"), life.count("w")) == ("QuotaReserved", 1)


@scenario("L10")
def test_a_check_that_shortens_its_wait_leaves_that_of_the_pods() -> None:
    life = a_reserved("c1", limits=PODS)
    life.judge("w", "c1", "Ready")
    cycle = life.stored("w").status.admission_cycle
    life.at(30)
    life.answer("w", "c1", "Retry", cycle=cycle, after=300)
    assert life.wait("w") == 300
    life.answer("w", "c1", "Retry", cycle=cycle, after=10)
    assert (life.wait("w"), life.count("w")) == (60, 1)
    life.answer("w", "c1", "Ready", cycle=cycle)
    assert (life.wait("w"), life.count("w")) == (60, 1)
    life.at(89.9)
    assert life.phase("w") == "Backoff"
    life.at(90)
    assert life.phase("w") == "QuotaReserved"


@scenario("L11")
def test_the_latest_end_wins_not_the_largest_delay() -> None:
    life = a_reserved("a", "b")
    life.judge("w", "b", "Retry", after=10)
    life.at(9)
    assert life.wait("w") == 1
    life.at(9.5)
    life.judge("w", "a", "Retry", after=5)
    assert life.wait("w") == 5.5  # of whole seconds the next
    life.at(14.9)
    assert life.phase("w") == "Backoff"
    life.at(15)
    assert life.phase("w") == "QuotaReserved"


# Late and slow ones. ------------------------------------------------------------------------


@scenario("L12")
@pytest.mark.parametrize("reserved", [False, True], ids=["while pending", "while reserved again"])
@pytest.mark.parametrize("rounds", [1, 2, 30])
def test_a_verdict_of_a_slow_check_counts_after_retries_of_a_fast_one(
    rounds: int, reserved: bool
) -> None:
    life = a_reserved("fast", "slow")
    first = life.stored("w").status.admission_cycle
    for number in range(rounds):
        life.advance(1)
        life.answer("w", "fast", "Retry")
        if reserved or number < rounds - 1:
            life.go()
    assert life.phase("w") == ("QuotaReserved" if reserved else "Pending")
    evictions = life.evictions("w")["AdmissionCheck"]
    assert life.answer("w", "slow", "Retry", cycle=first, after=120) is None
    life.go()
    assert (life.phase("w"), life.wait("w")) == ("Backoff", 120)
    assert life.evictions("w")["AdmissionCheck"] == evictions + reserved
    asked = len(life.asked)
    life.advance(119.9)
    assert life.phase("w") == "Backoff"
    assert len([one for one in life.asked[asked:] if isinstance(one, facts.CheckRequested)]) == 0
    life.advance(0.1)
    assert life.phase("w") == "QuotaReserved"
    assert life.counts("w") == {"fast": rounds, "slow": 1}


@scenario("L12")
def test_an_older_verdict_does_not_replace_one_of_the_new_cycle() -> None:
    life = a_reserved("fast", "slow")
    first = life.stored("w").status.admission_cycle
    life.judge("w", "fast", "Retry")
    life.judge("w", "slow", "Ready")
    stale = life.answer("w", "slow", "Retry", cycle=first, after=120)
    assert stale is not None
    assert life.phase("w") == "QuotaReserved"
    life.judge("w", "fast", "Ready")
    assert life.phase("w") == "Admitted"


@scenario("L12")
def test_a_verdict_before_an_eviction_is_stale_after_a_new_reservation() -> None:
    life = a_reserved("fast", "slow", preemption=LOWER)
    first = life.stored("w").status.admission_cycle
    life.judge("w", "fast", "Retry")
    life.submit("high", "cq", "8", priority=10)
    life.go()
    life.finish("high")
    life.go()
    assert life.phase("w") == "QuotaReserved"
    stale = life.answer("w", "slow", "Retry", cycle=first, after=120)
    assert stale is not None
    assert life.phase("w") == "QuotaReserved"


@scenario("L17")
@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_a_delayed_workload_lets_others_pass_in_their_order(strategy: str) -> None:
    life = a_long_life("c1", nominal="8", queueingStrategy=strategy)
    for age, name in enumerate("dcba", 1):
        life.submit(name, "cq", "8", age=age)
    life.go()
    assert life.phases(*"abcd") == ["QuotaReserved", "Pending", "Pending", "Pending"]
    life.judge("a", "c1", "Retry", after=60)
    assert life.phases(*"abcd") == ["Backoff", "QuotaReserved", "Pending", "Pending"]
    life.judge("b", "c1", "Ready")
    life.advance(30)
    life.finish("b")
    life.go()
    assert life.phases(*"acd") == ["Backoff", "QuotaReserved", "Pending"]
    life.judge("c", "c1", "Ready")
    life.advance(60)
    life.finish("c")
    life.go()
    # Its place is by the time of its eviction: behind its peers.
    assert life.phases(*"ad") == ["Pending", "QuotaReserved"]
    life.finish("d")
    life.go()
    assert life.phase("a") == "QuotaReserved"


@scenario("L18")
def test_flavor_checks_stay_listed_during_a_delay_of_one_of_them() -> None:
    life = LongLife()
    life.put("ResourceFlavor", "f")
    life.put("ResourceFlavor", "g")
    for name in ("c1", "c2"):
        life.check(name)
    (group,) = groups(f="10", g="1")
    group["flavors"][0]["admissionChecks"] = ["c1", "c2"]
    life.queue("cq", resourceGroups=[group])
    life.submit("w", "cq", "8")
    assert life.states("w") == {}
    life.go()
    life.judge("w", "c1", "Retry", after=60)
    assert life.stored("w").status.admission is None
    assert life.states("w") == {"c1": "Retry", "c2": "Pending"}
    life.advance(10)
    assert life.answer("w", "c2", "Retry", after=120) is None
    assert life.states("w") == {"c1": "Retry", "c2": "Retry"}
    assert life.wait("w") == 120
    life.at(129.9)
    assert life.phase("w") == "Backoff"
    life.at(130)
    assert (life.phase("w"), life.flavor("w")) == ("QuotaReserved", "f")
    assert life.counts("w") == {"c1": 1, "c2": 1}


@scenario("L19")
def test_a_check_still_judging_is_not_cancelled_by_another_s_eviction() -> None:
    life = a_reserved("c1", "c2")
    cycle = life.stored("w").status.admission_cycle
    life.judge("w", "c1", "Retry", after=60)
    # The one reason that means: free what you booked, and finish judging.
    assert life.withdrawn("c2", "w") == [("AdmissionCheck", cycle)]
    life.advance(20)
    assert life.answer("w", "c2", "Retry", after=120) is None
    assert life.wait("w") == 120
    life.at(139.9)
    assert life.phase("w") == "Backoff"
    life.at(140)
    assert life.phase("w") == "QuotaReserved"
    life.judge("w", "c1", "Ready")
    life.judge("w", "c2", "Ready")
    assert life.phase("w") == "Admitted"


@scenario("L21")
def test_three_checks_with_delays_give_the_result_of_story_3() -> None:
    life = a_reserved("a", "b", "c")
    life.answer("w", "a", "Retry", after=300)
    life.answer("w", "b", "Retry", after=60)
    life.go()
    assert life.wait("w") == 300
    life.at(299.9)
    assert life.phase("w") == "Backoff"
    life.at(300)
    assert (life.phase("w"), life.counts("w")) == ("QuotaReserved", {"a": 1, "b": 1, "c": 0})
    life.judge("w", "a", "Ready")
    life.judge("w", "b", "Ready")
    life.judge("w", "c", "Retry", after=600)
    assert life.wait("w") == 600
    life.advance(599.9)
    assert life.phase("w") == "Backoff"
    life.advance(0.1)
    assert (life.phase("w"), life.counts("w")) == ("QuotaReserved", {"a": 0, "b": 0, "c": 1})


@scenario("L22")
@pytest.mark.parametrize(("after", "end"), [(60, 60), (90, 120)])
def test_a_repeated_retry_keeps_the_wait_and_a_new_delay_restarts_it(after: int, end: int) -> None:
    life = a_reserved("c1")
    life.judge("w", "c1", "Retry", after=60, message="full")
    since = life.rows("w")["c1"].last_transition_time
    life.at(30)
    life.judge("w", "c1", "Retry", after=after, message="full")
    assert (life.rows("w")["c1"].last_transition_time == since) == (after == 60)
    assert life.wait("w") == end - 30
    life.at(end - 0.1)
    assert life.phase("w") == "Backoff"
    life.at(end)
    assert (life.phase("w"), life.counts("w")) == ("QuotaReserved", {"c1": 1})


@scenario("L23")
@pytest.mark.parametrize("late", [10, 59, 200], ids=["stops soon", "stops in time", "stops late"])
@pytest.mark.parametrize("why", ["Preempted", "ClusterQueueStopped", "LocalQueueStopped"])
def test_a_retry_during_another_eviction_holds_it_when_that_is_over(why: str, late: int) -> None:
    life = a_reserved("c1", preemption=LOWER)
    life.judge("w", "c1", "Ready")
    life.stubborn.add("w")
    cycle = life.stored("w").status.admission_cycle
    queue, local = life.spec("ClusterQueue", "cq"), life.spec("LocalQueue", "cq", "ns")
    if why == "Preempted":
        life.submit("high", "cq", "8", priority=10)
    elif why == "ClusterQueueStopped":
        life.put("ClusterQueue", "cq", {**queue, "stopPolicy": "HoldAndDrain"})
    else:
        life.put("LocalQueue", "cq", {**local, "stopPolicy": "HoldAndDrain"}, "ns")
    life.go()
    assert (life.phase("w"), life.evicted_for("w")) == ("Evicting", [why])
    assert life.answer("w", "c1", "Retry", cycle=cycle, after=60) is None
    assert life.phase("w") == "Evicting"
    life.advance(late)
    life.stop("w")
    life.put("ClusterQueue", "cq", queue)
    life.put("LocalQueue", "cq", local, "ns")
    if why == "Preempted":
        life.say(facts.Deleted, "high")
    life.go()
    if late < 60:
        assert life.phase("w") == "Backoff"
        assert life.states("w") == {"c1": "Retry"}
        life.at(59.9)
        assert life.phase("w") == "Backoff"
        life.at(60)
    assert (life.phase("w"), life.counts("w")) == ("QuotaReserved", {"c1": 1})
    assert life.evictions("w") == {why: 1}


@scenario("L23")
@pytest.mark.parametrize("opens", [30, 90])
def test_a_queue_that_stays_stopped_longer_or_shorter_than_the_wait(opens: int) -> None:
    life = a_reserved("c1")
    life.judge("w", "c1", "Ready")
    cycle = life.stored("w").status.admission_cycle
    queue = life.spec("ClusterQueue", "cq")
    life.put("ClusterQueue", "cq", {**queue, "stopPolicy": "HoldAndDrain"})
    life.go()
    assert life.phase("w") == "Backoff"
    assert life.answer("w", "c1", "Retry", cycle=cycle, after=60) is None
    life.at(opens)
    assert life.phase("w") != "QuotaReserved"
    life.put("ClusterQueue", "cq", queue)
    life.go()
    life.at(max(opens, 59.9))
    assert life.phase("w") == ("Backoff" if opens < 60 else "QuotaReserved")
    life.at(max(opens, 60))
    assert life.phase("w") == "QuotaReserved"


@scenario("L26")
def test_a_delay_beyond_the_limit_is_cut_with_a_warning() -> None:
    life = a_reserved("c1", limits=Limits(check_delay=timedelta(seconds=100)))
    life.judge("w", "c1", "Retry", after=1000)
    assert life.wait("w") == 100
    assert life.rows("w")["c1"].requeue_after_seconds == 100
    assert "RetryDelayClamped" in life.noted("w")
    life.at(100)
    assert life.phase("w") == "QuotaReserved"


@scenario("L26")
def test_the_longest_delay_is_a_week_by_default() -> None:
    life = a_reserved("c1")
    life.judge("w", "c1", "Retry", after=10**9)
    assert life.wait("w") == 7 * 86_400
    life.judge("w", "c1", "Retry", after=7 * 86_400)
    assert life.noted("w") == ["RetryDelayClamped"]


@scenario("L26")
def test_a_workload_deleted_during_its_wait_leaves_no_state() -> None:
    life = a_reserved("c1")
    life.judge("w", "c1", "Retry", after=1000)
    assert life.schedules("w") == {"requeue"}
    life.say(facts.Deleted, "w")
    life.go()
    assert not life.has("w")
    assert life.schedules("w") == set()
    life.submit("w", "cq", "8")
    life.go()
    assert (life.phase("w"), life.counts("w")) == ("QuotaReserved", {"c1": 0})
    life.advance(2000)
    assert life.phase("w") == "QuotaReserved"


@scenario("L16")
def test_a_restart_during_a_delay_does_not_change_the_delay() -> None:
    life = a_reserved("c1")
    life.judge("w", "c1", "Retry", after=60)
    life.at(30)
    before = encode(life.stored("w"))
    life.restart_all()
    life.go()
    assert encode(life.stored("w")) == before
    life.at(59.9)
    assert life.phase("w") == "Backoff"
    life.at(60)
    assert (life.phase("w"), life.counts("w")) == ("QuotaReserved", {"c1": 1})


@scenario("L16")
def test_a_wait_that_ended_during_downtime_ends_at_once_and_counts_once() -> None:
    life = a_reserved("c1")
    life.judge("w", "c1", "Retry", after=60)
    life.now += timedelta(seconds=600)
    life.restart_all()
    life.go()
    assert (life.phase("w"), life.counts("w")) == ("QuotaReserved", {"c1": 1})
    # The bus says it once more.
    life.say(facts.TimerDue, "w", kind="requeue", at=NOON + timedelta(seconds=60))
    life.go()
    assert (life.phase("w"), life.counts("w")) == ("QuotaReserved", {"c1": 1})
    assert head(life.stored("w")).active
