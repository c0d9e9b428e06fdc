"""Timers and switches: pods that are never ready, time limits, stopped queues, lost runners, and
being turned off and on. LIFECYCLE 6, 7.6.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from admittance.api.configuration import Configuration, RequeuingStrategy, WaitForPodsReady
from admittance.events import facts
from admittance.scheduling.state.config import config_of
from admittance.workload.conditions import find
from admittance.workload.limits import limits_of
from admittance.workload.stored import head
from support.cores.scheduling_story import groups

from long_living import LongLife, a_long_life

scenario = pytest.mark.scenario
LOWER = {"withinClusterQueue": "LowerPriority"}


def patient(
    *checks: str,
    timeout: str = "30s",
    recovery: str | None = None,
    block: bool = False,
    timestamp: str = "Eviction",
    limit: int | None = None,
    base: int = 60,
    **more: Any,
) -> LongLife:
    """A life that waits for pods to be ready."""
    waits = WaitForPodsReady(
        timeout=timeout,
        recovery_timeout=recovery,
        block_admission=block,
        requeuing_strategy=RequeuingStrategy(
            timestamp=timestamp, backoff_limit_count=limit, backoff_base_seconds=base
        ),
    )
    configuration = Configuration(wait_for_pods_ready=waits)
    return a_long_life(
        *checks, config=config_of(configuration), limits=limits_of(configuration), **more
    )


def submitted(life: LongLife, name: str = "w", cpu: str = "8", **more: Any) -> LongLife:
    life.submit(name, "cq", cpu, **more)
    life.go()
    return life


# Pods that are not ready. -------------------------------------------------------------------


def timed_out_for_good() -> LongLife:
    life = submitted(patient(limit=2))
    for number in (1, 2):
        assert life.phase("w") == "Admitted"
        life.advance(29.9)
        assert life.phase("w") == "Admitted"
        life.advance(0.1)
        assert (life.phase("w"), life.count("w"), life.wait("w")) == (
            "Backoff",
            number,
            60 * number,
        )
        assert life.reason("w", "Evicted") == "True: PodsReadyTimeout"
        life.advance(60 * number - 0.1)
        assert life.phase("w") == "Backoff"
        life.advance(0.1)
    life.advance(30)
    return life


@scenario("F1")
def test_the_third_timeout_of_two_allowed_is_the_last() -> None:
    life = timed_out_for_good()
    assert life.phase("w") == "Deactivated"
    assert not head(life.stored("w")).active
    assert life.reason("w", "Evicted") == "True: DeactivatedDueToRequeuingLimitExceeded"
    assert life.stored("w").status.requeue_state is None
    assert life.usage("cq") == 0
    evicted = [one for one in life.said if isinstance(one, facts.Evicted)]
    assert [one.underlying_cause for one in evicted] == [
        "WaitForStart", "WaitForStart", "RequeuingLimitExceeded",
    ]  # fmt: skip
    life.advance(86_400)
    assert (life.phase("w"), life.starts("w")) == ("Deactivated", 3)


@scenario("F1")
@pytest.mark.parametrize(("limit", "starts"), [(0, 1), (1, 2), (3, 4)])
def test_the_limit_is_the_number_of_retries(limit: int, starts: int) -> None:
    life = submitted(patient(limit=limit))
    life.advance(86_400)
    assert (life.phase("w"), life.starts("w")) == ("Deactivated", starts)


@scenario("F1")
def test_without_a_limit_retries_continue_with_delays_up_to_an_hour() -> None:
    life = submitted(patient())
    waits = []
    for _ in range(9):
        life.advance(30)
        wait = life.wait("w")
        assert wait is not None
        waits.append(wait)
        life.advance(wait)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


@scenario("F1")
def test_ready_pods_start_the_count_over() -> None:
    life = submitted(patient(limit=2))
    life.advance(30)
    assert life.count("w") == 1
    life.advance(60)
    assert life.count("w") == 1, "kept while it is admitted"
    life.ready("w")
    assert (life.phase("w"), life.count("w")) == ("Running", None)


@scenario("F2")
def test_a_reactivated_workload_starts_with_a_count_of_zero() -> None:
    life = timed_out_for_good()
    life.say(facts.Activated, "w")
    life.go()
    assert life.phase("w") == "Admitted"
    assert life.reason("w", "Requeued") == "True: Reactivated"
    life.advance(30)
    assert (life.phase("w"), life.count("w"), life.wait("w")) == ("Backoff", 1, 60)


@scenario("F3")
@pytest.mark.parametrize("recovery", [None, "20s"], ids=["by default", "as said"])
def test_pods_that_do_not_come_back_in_time_evict(recovery: str | None) -> None:
    life = submitted(patient(recovery=recovery))
    life.advance(5)
    life.ready("w")
    assert life.reason("w", "PodsReady") == "True: Started"
    life.advance(3600)
    assert life.phase("w") == "Running"
    life.not_ready("w")
    assert life.reason("w", "PodsReady") == "False: WaitForRecovery"
    wait = 30 if recovery is None else 20
    life.advance(wait - 0.1)
    assert life.phase("w") == "Admitted"
    life.advance(0.1)
    assert (life.phase("w"), life.count("w")) == ("Backoff", 1)
    (evicted,) = [one for one in life.said if isinstance(one, facts.Evicted)]
    assert (evicted.reason, evicted.underlying_cause) == ("PodsReadyTimeout", "WaitForRecovery")


@scenario("F3")
def test_without_a_recovery_timeout_pods_may_stay_unready() -> None:
    life = submitted(patient(recovery="0s"))
    life.ready("w")
    life.not_ready("w")
    life.advance(7 * 86_400)
    assert life.phase("w") == "Admitted"
    assert not life.evicted_for("w")


@scenario("F3")
def test_pods_that_recover_are_left_alone() -> None:
    life = submitted(patient())
    life.ready("w")
    life.not_ready("w")
    life.advance(29)
    life.ready("w")
    assert life.reason("w", "PodsReady") == "True: Recovered"
    life.advance(3600)
    assert life.phase("w") == "Running"


def is_ready(life: LongLife) -> None:
    life.ready("a")


def is_evicted(life: LongLife) -> None:
    life.say(facts.Deactivated, "a")


def is_deleted(life: LongLife) -> None:
    life.say(facts.Deleted, "a")


def times_out(life: LongLife) -> None:
    life.advance(30)


ENDS: list[Callable[[LongLife], None]] = [is_ready, is_evicted, is_deleted, times_out]


@scenario("F4")
@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__.replace("_", " "))
def test_no_quota_is_reserved_while_admitted_pods_are_not_ready(
    end: Callable[[LongLife], None], strategy: str
) -> None:
    life = submitted(patient(block=True, queueingStrategy=strategy), "a", "2")
    submitted(life, "b", "2")
    life.advance(10)
    assert life.phases("a", "b") == ["Admitted", "Pending"]
    assert life.reason("b", "QuotaReserved") == "False: WaitingForPodsReady"
    told = life.core.explain("ns", "b", now=life.now)
    assert (told.reason, told.outlook and told.outlook.outcome) == (
        "WaitingForPodsReady", "Hindered",
    )  # fmt: skip
    assert any("pods of all admitted" in one for one in told.unblocked_by)
    end(life)
    life.go()
    assert life.phase("b") == "Admitted"


@scenario("F4")
def test_of_many_that_fit_one_starts_at_a_time_over_all_queues() -> None:
    life = patient(block=True, cohort="all")
    life.queue("other", "all", resourceGroups=groups(default="10"))
    life.queue("apart", resourceGroups=groups(default="10"))
    for number in range(6):
        life.submit(f"w-{number}", "cq" if number % 2 else "other", "1", age=10 - number)
    names = [f"w-{number}" for number in range(6)]
    for round_ in range(1, 7):
        life.go()
        running = [name for name in names if life.phase(name) != "Pending"]
        assert len(running) == round_
        (starting,) = [name for name in names if life.phase(name) == "Admitted"]
        life.advance(20)
        life.ready(starting)
    assert life.phases(*names) == ["Running"] * 6
    life.not_ready("w-0")
    life.submit("late", "apart", "1")
    life.go()
    assert life.phase("late") == "Pending"
    life.restart_all()
    life.go()
    assert life.phase("late") == "Pending"
    life.ready("w-0")
    life.go()
    assert life.phase("late") == "Admitted"


@scenario("F4")
def test_a_void_decision_does_not_block_other_workloads() -> None:
    life = patient(block=True)
    life.submit("a", "cq", "2", age=1)
    life.submit("b", "cq", "2")
    (decision,) = [one for one in life.cycle(apply=False) if isinstance(one, facts.Assigned)]
    assert decision.name == "a"
    life.say(facts.Deactivated, "a")
    life.apply(decision)
    life.go()
    assert life.phases("a", "b") == ["Deactivated", "Admitted"]


@scenario("F4")
def test_an_existing_reservation_is_not_blocked_by_unready_pods() -> None:
    life = patient("c1", block=True)
    submitted(life, "a", "2")
    submitted(life, "b", "2")
    assert life.phases("a", "b") == ["QuotaReserved", "QuotaReserved"]
    life.judge("a", "c1", "Ready")
    submitted(life, "c", "2")
    assert life.phases("a", "c") == ["Admitted", "Pending"]
    life.judge("b", "c1", "Ready")
    assert life.phase("b") == "Admitted"


@scenario("F5")
@pytest.mark.parametrize(("timestamp", "first"), [("Eviction", "b"), ("Creation", "a")])
def test_the_place_after_a_timeout_is_by_eviction_or_by_creation(
    timestamp: str, first: str
) -> None:
    life = patient(timestamp=timestamp, base=10)
    life.submit("a", "cq", "8", age=100)
    life.go()
    life.advance(25)
    life.submit("b", "cq", "8")
    life.submit("full", "cq", "8", priority=10)
    life.advance(5)
    assert life.phases("a", "b", "full") == ["Backoff", "Pending", "Admitted"]
    life.ready("full")
    life.advance(20)
    assert life.phases("a", "b") == ["Pending", "Pending"]
    life.finish("full")
    life.go()
    assert life.phase(first) == "Admitted"


@scenario("F5")
def test_after_a_checks_retry_it_is_always_by_eviction() -> None:
    life = patient("c1", timestamp="Creation")
    life.submit("a", "cq", "8", age=100)
    life.submit("b", "cq", "8", age=50)
    life.go()
    life.answer("a", "c1", "Retry")
    life.go()
    assert life.phases("a", "b") == ["Pending", "QuotaReserved"]


# Time limits. -------------------------------------------------------------------------------


def ran_out_of_time() -> LongLife:
    life = submitted(a_long_life("c1"), maximumExecutionTimeSeconds=10)
    life.advance(100)
    life.judge("w", "c1", "Ready")
    life.advance(6)
    life.judge("w", "c1", "Retry", after=60)
    assert life.stored("w").status.accumulated_past_execution_time_seconds == 6
    life.advance(60)
    life.judge("w", "c1", "Ready")
    life.advance(3.9)
    assert life.phase("w") == "Admitted"
    life.advance(0.1)
    return life


@scenario("F6")
def test_only_the_admitted_seconds_of_all_admissions_count() -> None:
    life = ran_out_of_time()
    assert life.phase("w") == "Deactivated"
    assert life.reason("w", "Evicted") == "True: DeactivatedDueToMaximumExecutionTimeExceeded"
    assert "MaximumExecutionTimeExceeded" in life.noted("w")
    assert life.stored("w").status.accumulated_past_execution_time_seconds is None
    assert life.usage("cq") == 0


@scenario("F12")
def test_the_execution_time_is_that_of_all_admissions() -> None:
    life = submitted(a_long_life("c1"))
    life.judge("w", "c1", "Ready")
    life.advance(5)
    life.judge("w", "c1", "Retry", after=60)
    life.advance(60)
    life.judge("w", "c1", "Ready")
    life.advance(7)
    life.finish("w")
    before = life.stored("w").status.accumulated_past_execution_time_seconds or 0
    admitted, finished = (find(life.stored("w"), kind) for kind in ("Admitted", "Finished"))
    assert admitted is not None
    assert admitted.last_transition_time is not None
    assert finished is not None
    assert finished.last_transition_time is not None
    last = (finished.last_transition_time - admitted.last_transition_time).total_seconds()
    assert (before, last) == (5, 7)


# Stopped queues. ----------------------------------------------------------------------------


def stop(life: LongLife, where: str, policy: str) -> None:
    """The ClusterQueue or the LocalQueue is stopped, or runs again."""
    namespace = "ns" if where == "LocalQueue" else ""
    spec = life.spec(where, "cq", namespace)
    life.put(where, "cq", {**spec, "stopPolicy": policy}, namespace)
    life.go()


@scenario("F7")
@pytest.mark.parametrize("where", ["ClusterQueue", "LocalQueue"])
@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_queue_gives_back_reservations_and_a_drained_one_evicts(
    policy: str, where: str
) -> None:
    life = a_long_life("c1")
    for name in ("reserved", "admitted"):
        submitted(life, name, "2")
    life.judge("admitted", "c1", "Ready")
    life.stubborn.add("admitted")
    cycle = life.stored("reserved").status.admission_cycle
    stop(life, where, policy)
    submitted(life, "new", "2")
    # T18: no job, so no eviction.
    assert life.phase("reserved") == "Pending"
    assert life.reason("reserved", "QuotaReserved") == "False: Suspended"
    assert life.reason("reserved", "Evicted") == ""
    assert life.stored("reserved").status.admission_cycle == cycle + 1
    assert len(life.withdrawn("c1", "reserved")) == 1
    assert life.phase("new") == "Pending"
    if policy == "Hold":
        assert life.phase("admitted") == "Admitted"
    else:
        # T17.
        assert life.phase("admitted") == "Evicting"
        assert life.reason("admitted", "Evicted") == f"True: {where}Stopped"
        assert life.usage("cq") == 2_000
        life.stop("admitted")
        life.go()
        assert life.reason("admitted", "Requeued") == f"False: {where}Stopped"
        assert (life.phase("admitted"), life.usage("cq")) == ("Backoff", 0)
    life.advance(86_400)
    assert life.phases("reserved", "new") == ["Pending", "Pending"]
    # T23.
    stop(life, where, "None")
    assert life.phases("reserved", "new") == ["QuotaReserved", "QuotaReserved"]
    if policy == "Hold":
        assert (life.phase("admitted"), life.starts("admitted")) == ("Admitted", 1)
    else:
        assert life.phase("admitted") == "QuotaReserved"
        assert life.reason("admitted", "Requeued") == f"True: {where}Restarted"


@scenario("F7")
@pytest.mark.parametrize("where", ["ClusterQueue", "LocalQueue"])
def test_a_ready_check_in_a_stopped_queue_admits_no_workload(where: str) -> None:
    life = submitted(a_long_life("c1"))
    life.deaf = True
    stop(life, where, "Hold")
    life.deaf = False
    life.answer("w", "c1", "Ready")
    life.go()
    assert life.starts("w") == 0
    stop(life, where, "Hold")
    assert life.phase("w") == "Pending"


# Off and on. --------------------------------------------------------------------------------


@scenario("F8")
def test_a_deactivated_workload_has_no_timer() -> None:
    life = submitted(patient())
    life.advance(30 + 60 + 30)
    assert (life.phase("w"), life.count("w")) == ("Backoff", 2)
    life.advance(90)
    assert life.wait("w") == 30
    life.say(facts.Deactivated, "w")
    assert life.phase("w") == "Deactivated"
    assert life.stored("w").status.requeue_state is None
    assert not life.schedules("w")
    life.advance(86_400)
    assert life.phase("w") == "Deactivated"


@scenario("F9")
@pytest.mark.parametrize("stopped", [False, True], ids=["while it stops", "after it stopped"])
def test_an_eviction_keeps_its_reason_when_the_user_turns_it_off_then(stopped: bool) -> None:
    life = submitted(a_long_life(preemption=LOWER))
    life.stubborn.add("w")
    submitted(life, "high", priority=10)
    if stopped:
        life.stop("w")
    life.say(facts.Deactivated, "w")
    assert life.reason("w", "Evicted") == "True: Preempted"
    life.stop("w")
    life.go()
    assert (life.phase("w"), life.phase("high")) == ("Deactivated", "Admitted")
    assert life.reason("w", "Evicted") == "True: Preempted"
    assert life.evictions("w") == {"Preempted": 1}


@scenario("F10")
@pytest.mark.parametrize(("priority", "phase"), [(4, "Pending"), (6, "Admitted")])
def test_a_lowered_priority_makes_a_victim_only_if_it_is_then_lower(
    priority: int, phase: str
) -> None:
    life = submitted(a_long_life(preemption=LOWER), priority=10)
    submitted(life, "waits", priority=5)
    assert life.phases("w", "waits") == ["Admitted", "Pending"]
    life.say(facts.Reprioritized, "w", priority=priority)
    assert life.phase("w") == "Admitted", "no eviction by itself"
    life.go()
    assert life.phase("w") == phase
    assert life.starts("waits") == (phase == "Pending")


@scenario("F11")
@pytest.mark.parametrize("ended", ["deactivated", "finished"])
def test_deactivated_and_finished_workloads_stay_so_after_a_restart(ended: str) -> None:
    life = submitted(a_long_life())
    life.say(facts.Deactivated if ended == "deactivated" else facts.Finished, "w")
    life.go()
    life.restart_all()
    life.go()
    life.advance(86_400)
    assert life.phase("w") == ("Deactivated" if ended == "deactivated" else "Finished")
    assert (life.usage("cq"), life.starts("w")) == (0, 1)
    submitted(life, "other")
    assert life.phase("other") == "Admitted"


# Runners that say nothing. ------------------------------------------------------------------


@scenario("F13")
def test_quota_is_freed_although_the_runner_never_answers() -> None:
    life = submitted(a_long_life(preemption=LOWER))
    old = life.stored("w").status.admitted_revision
    life.stubborn.add("w")
    submitted(life, "high", priority=10)
    life.advance(299.9)
    assert life.phases("w", "high") == ["Evicting", "Pending"]
    evicted = life.stored("w").status.evicted_revision
    life.advance(0.1)
    assert life.phases("w", "high") == ["Pending", "Admitted"]
    assert "ForcedRelease" in life.noted("w")
    life.finish("high")
    life.go()
    assert (life.phase("w"), life.starts("w")) == ("Admitted", 2)
    # Late words of the first run are not about the second one.
    for revision in (evicted, old):
        life.say(facts.Stopped, "w", revision=revision)
        life.say(facts.Finished, "w", revision=revision)
    life.advance(3600)
    assert (life.phase("w"), life.starts("w"), life.usage("cq")) == ("Admitted", 2, 8_000)


@scenario("F13")
def test_a_runner_that_answers_in_time_is_not_forced() -> None:
    life = submitted(a_long_life("c1"))
    life.judge("w", "c1", "Ready")
    life.stubborn.add("w")
    life.judge("w", "c1", "Retry", after=600)
    life.advance(299)
    life.stop("w")
    life.advance(10)
    assert "ForcedRelease" not in life.noted("w")
    assert life.phase("w") == "Backoff"


# Every way out and back. --------------------------------------------------------------------


def reject(life: LongLife) -> None:
    life.judge("w", "c1", "Rejected")


def exceed_the_limit(life: LongLife) -> None:
    life.judge("w", "c1", "Ready")
    life.advance(30)


def exceed_the_time(life: LongLife) -> None:
    life.judge("w", "c1", "Ready")
    life.ready("w")
    life.advance(100)


def turn_off(life: LongLife) -> None:
    life.say(facts.Deactivated, "w")


CAUSES = [
    pytest.param(reject, "DeactivatedDueToAdmissionCheck", id="T11"),
    pytest.param(exceed_the_limit, "DeactivatedDueToRequeuingLimitExceeded", id="T14"),
    pytest.param(exceed_the_time, "DeactivatedDueToMaximumExecutionTimeExceeded", id="T15"),
    pytest.param(turn_off, "Deactivated", id="T16"),
]


@scenario("F14")
@pytest.mark.parametrize(("cause", "reason"), CAUSES)
def test_after_any_deactivation_it_may_be_turned_on_again(
    cause: Callable[[LongLife], None], reason: str
) -> None:
    life = submitted(patient("c1", limit=0), maximumExecutionTimeSeconds=100)
    cause(life)
    life.go()
    assert life.phase("w") == ("Rejected" if cause is reject else "Deactivated")
    assert life.reason("w", "Evicted") == f"True: {reason}"
    states = {"Rejected"} if cause is reject else {"Pending"}
    assert (life.usage("cq"), set(life.states("w").values())) == (0, states)
    life.advance(3600)
    assert not head(life.stored("w")).active
    starts = life.starts("w")
    life.say(facts.Activated, "w")
    assert life.reason("w", "Requeued") == "True: Reactivated"
    life.go()
    assert life.phase("w") == "QuotaReserved"
    life.judge("w", "c1", "Ready")
    assert (life.phase("w"), life.starts("w")) == ("Admitted", starts + 1)
    life.ready("w")
    life.advance(99)
    assert life.phase("w") == "Running", "all of its time is given anew"


def is_preempted(life: LongLife) -> None:
    life.submit("high", "cq", "8", priority=10)
    life.go()


def is_told_to_retry(life: LongLife) -> None:
    life.judge("w", "c1", "Retry", after=60)


def is_told_to_retry_at_once(life: LongLife) -> None:
    life.judge("w", "c1", "Retry")


def is_never_ready(life: LongLife) -> None:
    life.advance(30)


def is_drained(life: LongLife) -> None:
    stop(life, "ClusterQueue", "HoldAndDrain")


def is_drained_locally(life: LongLife) -> None:
    stop(life, "LocalQueue", "HoldAndDrain")


def is_cut(life: LongLife) -> None:
    spec = life.spec("ClusterQueue", "cq")
    life.put("ClusterQueue", "cq", {**spec, "resourceGroups": groups(default="5")})
    life.go()


def is_lost(life: LongLife) -> None:
    revision = life.stored("w").status.admitted_revision
    life.say(facts.Stopped, "w", revision=revision, reason="NodeFailures")
    life.go()


def is_rejected(life: LongLife) -> None:
    life.judge("w", "c1", "Rejected")


EVICTIONS = [
    pytest.param(is_preempted, "Preempted", id="Preempted"),
    pytest.param(is_told_to_retry, "AdmissionCheck", id="AdmissionCheck"),
    pytest.param(is_told_to_retry_at_once, "AdmissionCheck", id="AdmissionCheck, without delay"),
    pytest.param(is_never_ready, "PodsReadyTimeout", id="PodsReadyTimeout"),
    pytest.param(is_drained, "ClusterQueueStopped", id="ClusterQueueStopped"),
    pytest.param(is_drained_locally, "LocalQueueStopped", id="LocalQueueStopped"),
    pytest.param(is_cut, "QuotaChanged", id="QuotaChanged"),
    pytest.param(turn_off, "Deactivated", id="Deactivated"),
    pytest.param(is_rejected, "DeactivatedDueToAdmissionCheck", id="AdmissionCheck, rejected"),
]


def admitted() -> LongLife:
    life = submitted(patient("c1", preemption=LOWER, onQuotaCut="evict"))
    life.judge("w", "c1", "Ready")
    assert life.phase("w") == "Admitted"
    return life


def gives_way(life: LongLife) -> None:
    """Whatever it was evicted for is over, and users turn on what is off."""
    if life.has("high"):
        life.say(facts.Deleted, "high")
    for where in ("ClusterQueue", "LocalQueue"):
        stop(life, where, "None")
    spec = life.spec("ClusterQueue", "cq")
    life.put("ClusterQueue", "cq", {**spec, "resourceGroups": groups(default="10")})
    life.go()
    life.advance(60)


@scenario("F15")
@pytest.mark.parametrize("stops", ["at once", "late"])
@pytest.mark.parametrize(
    ("evicted", "reason"), [*EVICTIONS, pytest.param(is_lost, "NodeFailures", id="NodeFailures")]
)
def test_any_evicted_workload_can_get_quota_again(
    evicted: Callable[[LongLife], None], reason: str, stops: str
) -> None:
    life = admitted()
    if stops == "late":
        life.stubborn.add("w")
    evicted(life)
    assert life.evicted_for("w") == [reason]
    if stops == "late":
        life.advance(100)
        life.stop("w")
    gives_way(life)
    if not head(life.stored("w")).active:
        life.say(facts.Activated, "w")
        life.go()
    assert life.phase("w") == "QuotaReserved"
    life.judge("w", "c1", "Ready")
    assert (life.phase("w"), life.starts("w")) == ("Admitted", 2)


@scenario("L24")
@pytest.mark.parametrize(("evicted", "reason"), EVICTIONS)
def test_a_workload_reactivated_while_its_job_stops_competes_again(
    evicted: Callable[[LongLife], None], reason: str
) -> None:
    life = admitted()
    life.stubborn.add("w")
    evicted(life)
    assert life.evicted_for("w") == [reason]
    assert life.usage("cq") == 8_000
    if head(life.stored("w")).active:
        life.say(facts.Deactivated, "w")
    life.say(facts.Activated, "w")
    life.go()
    assert life.phase("w") == "Evicting"
    assert (life.starts("w"), life.usage("cq")) == (1, 8_000)
    stop(life, "ClusterQueue", "None")
    stop(life, "LocalQueue", "None")
    life.stop("w")
    assert life.reason("w", "Requeued") == "True: Reactivated"
    assert life.phase("w") == "Pending"
    assert life.counts("w") == {"c1": 0}
    gives_way(life)
    assert life.phase("w") == "QuotaReserved"


@scenario("L24")
@pytest.mark.parametrize(("evicted", "reason"), EVICTIONS)
def test_a_workload_recovers_when_its_queue_stops_while_its_job_ends(
    evicted: Callable[[LongLife], None], reason: str
) -> None:
    life = admitted()
    life.stubborn.add("w")
    evicted(life)
    if head(life.stored("w")).active:
        life.say(facts.Deactivated, "w")
    life.say(facts.Activated, "w")
    stop(life, "ClusterQueue", "Hold")
    life.stop("w")
    life.go()
    assert life.phase("w") in ("Pending", "Backoff")
    gives_way(life)
    assert (life.phase("w"), life.seconds() <= 200) == ("QuotaReserved", True)


@scenario("F13")
def test_the_drain_time_is_a_setting() -> None:
    limits = limits_of(Configuration(), drain=10)
    assert limits.drain == timedelta(seconds=10)
    life = submitted(a_long_life("c1", limits=limits))
    life.judge("w", "c1", "Ready")
    life.stubborn.add("w")
    life.judge("w", "c1", "Rejected")
    life.advance(9.9)
    assert life.usage("cq") == 8_000
    life.advance(0.1)
    assert (life.usage("cq"), life.phase("w")) == (0, "Rejected")
