"""Timers and switches: pods that are never ready, time limits, stopped queues, lost runners, and
being turned off and on. docs/spec/lifecycle.md#6, #7.6.
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
from support.cores.stepped_scheduler import groups
from support.cores.timed_cores import TimedCores, cores_with_queue

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
) -> TimedCores:
    """Cores that wait for pods to be ready."""
    waits = WaitForPodsReady(
        timeout=timeout,
        recovery_timeout=recovery,
        block_admission=block,
        requeuing_strategy=RequeuingStrategy(
            timestamp=timestamp, backoff_limit_count=limit, backoff_base_seconds=base
        ),
    )
    configuration = Configuration(wait_for_pods_ready=waits)
    return cores_with_queue(
        *checks, config=config_of(configuration), limits=limits_of(configuration), **more
    )


def submitted(cores: TimedCores, name: str = "w", cpu: str = "8", **more: Any) -> TimedCores:
    cores.submit(name, "cq", cpu, **more)
    cores.go()
    return cores


# Pods that are not ready. -------------------------------------------------------------------


def timed_out_for_good() -> TimedCores:
    cores = submitted(patient(limit=2))
    for number in (1, 2):
        assert cores.phase("w") == "Admitted"
        cores.advance(29.9)
        assert cores.phase("w") == "Admitted"
        cores.advance(0.1)
        assert (cores.phase("w"), cores.count("w"), cores.wait("w")) == (
            "Backoff",
            number,
            60 * number,
        )
        assert cores.reason("w", "Evicted") == "True: PodsReadyTimeout"
        cores.advance(60 * number - 0.1)
        assert cores.phase("w") == "Backoff"
        cores.advance(0.1)
    cores.advance(30)
    return cores


@scenario("F1")
def test_the_third_timeout_of_two_allowed_is_the_last() -> None:
    cores = timed_out_for_good()
    assert cores.phase("w") == "Deactivated"
    assert not head(cores.stored("w")).active
    assert cores.reason("w", "Evicted") == "True: DeactivatedDueToRequeuingLimitExceeded"
    assert cores.stored("w").status.requeue_state is None
    assert cores.usage("cq") == 0
    evicted = [fact for fact in cores.published if isinstance(fact, facts.Evicted)]
    assert [eviction.underlying_cause for eviction in evicted] == [
        "WaitForStart", "WaitForStart", "RequeuingLimitExceeded",
    ]  # fmt: skip
    cores.advance(86_400)
    assert (cores.phase("w"), cores.starts("w")) == ("Deactivated", 3)


@scenario("F1")
@pytest.mark.parametrize(("limit", "starts"), [(0, 1), (1, 2), (3, 4)])
def test_the_limit_is_the_number_of_retries(limit: int, starts: int) -> None:
    cores = submitted(patient(limit=limit))
    cores.advance(86_400)
    assert (cores.phase("w"), cores.starts("w")) == ("Deactivated", starts)


@scenario("F1")
def test_without_a_limit_retries_continue_with_delays_up_to_an_hour() -> None:
    cores = submitted(patient())
    waits = []
    for _ in range(9):
        cores.advance(30)
        wait = cores.wait("w")
        assert wait is not None
        waits.append(wait)
        cores.advance(wait)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


@scenario("F1")
def test_ready_pods_start_the_count_over() -> None:
    cores = submitted(patient(limit=2))
    cores.advance(30)
    assert cores.count("w") == 1
    cores.advance(60)
    assert cores.count("w") == 1, "kept while it is admitted"
    cores.ready("w")
    assert (cores.phase("w"), cores.count("w")) == ("Running", None)


@scenario("F2")
def test_a_reactivated_workload_starts_with_a_count_of_zero() -> None:
    cores = timed_out_for_good()
    cores.publish(facts.Activated, "w")
    cores.go()
    assert cores.phase("w") == "Admitted"
    assert cores.reason("w", "Requeued") == "True: Reactivated"
    cores.advance(30)
    assert (cores.phase("w"), cores.count("w"), cores.wait("w")) == ("Backoff", 1, 60)


@scenario("F3")
@pytest.mark.parametrize("recovery", [None, "20s"], ids=["by default", "as said"])
def test_pods_that_do_not_come_back_in_time_evict(recovery: str | None) -> None:
    cores = submitted(patient(recovery=recovery))
    cores.advance(5)
    cores.ready("w")
    assert cores.reason("w", "PodsReady") == "True: Started"
    cores.advance(3600)
    assert cores.phase("w") == "Running"
    cores.not_ready("w")
    assert cores.reason("w", "PodsReady") == "False: WaitForRecovery"
    wait = 30 if recovery is None else 20
    cores.advance(wait - 0.1)
    assert cores.phase("w") == "Admitted"
    cores.advance(0.1)
    assert (cores.phase("w"), cores.count("w")) == ("Backoff", 1)
    (evicted,) = [fact for fact in cores.published if isinstance(fact, facts.Evicted)]
    assert (evicted.reason, evicted.underlying_cause) == ("PodsReadyTimeout", "WaitForRecovery")


@scenario("F3")
def test_without_a_recovery_timeout_pods_may_stay_unready() -> None:
    cores = submitted(patient(recovery="0s"))
    cores.ready("w")
    cores.not_ready("w")
    cores.advance(7 * 86_400)
    assert cores.phase("w") == "Admitted"
    assert not cores.evicted_for("w")


@scenario("F3")
def test_pods_that_recover_are_left_alone() -> None:
    cores = submitted(patient())
    cores.ready("w")
    cores.not_ready("w")
    cores.advance(29)
    cores.ready("w")
    assert cores.reason("w", "PodsReady") == "True: Recovered"
    cores.advance(3600)
    assert cores.phase("w") == "Running"


def is_ready(cores: TimedCores) -> None:
    cores.ready("a")


def is_evicted(cores: TimedCores) -> None:
    cores.publish(facts.Deactivated, "a")


def is_deleted(cores: TimedCores) -> None:
    cores.publish(facts.Deleted, "a")


def times_out(cores: TimedCores) -> None:
    cores.advance(30)


ENDS: list[Callable[[TimedCores], None]] = [is_ready, is_evicted, is_deleted, times_out]


@scenario("F4")
@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__.replace("_", " "))
def test_no_quota_is_reserved_while_admitted_pods_are_not_ready(
    end: Callable[[TimedCores], None], strategy: str
) -> None:
    cores = submitted(patient(block=True, queueingStrategy=strategy), "a", "2")
    submitted(cores, "b", "2")
    cores.advance(10)
    assert cores.phases("a", "b") == ["Admitted", "Pending"]
    assert cores.reason("b", "QuotaReserved") == "False: WaitingForPodsReady"
    explained = cores.scheduler.explain("ns", "b", now=cores.now)
    assert (explained.reason, explained.outlook and explained.outlook.outcome) == (
        "WaitingForPodsReady", "Hindered",
    )  # fmt: skip
    assert any("pods of all admitted" in remedy for remedy in explained.unblocked_by)
    end(cores)
    cores.go()
    assert cores.phase("b") == "Admitted"


@scenario("F4")
def test_of_many_that_fit_one_starts_at_a_time_over_all_queues() -> None:
    cores = patient(block=True, cohort="all")
    cores.queue("other", "all", resourceGroups=groups(default="10"))
    cores.queue("apart", resourceGroups=groups(default="10"))
    for number in range(6):
        cores.submit(f"w-{number}", "cq" if number % 2 else "other", "1", age=10 - number)
    names = [f"w-{number}" for number in range(6)]
    for round_ in range(1, 7):
        cores.go()
        running = [name for name in names if cores.phase(name) != "Pending"]
        assert len(running) == round_
        (starting,) = [name for name in names if cores.phase(name) == "Admitted"]
        cores.advance(20)
        cores.ready(starting)
    assert cores.phases(*names) == ["Running"] * 6
    cores.not_ready("w-0")
    cores.submit("late", "apart", "1")
    cores.go()
    assert cores.phase("late") == "Pending"
    cores.restart()
    cores.go()
    assert cores.phase("late") == "Pending"
    cores.ready("w-0")
    cores.go()
    assert cores.phase("late") == "Admitted"


@scenario("F4")
def test_a_void_decision_does_not_block_other_workloads() -> None:
    cores = patient(block=True)
    cores.submit("a", "cq", "2", age=1)
    cores.submit("b", "cq", "2")
    (decision,) = [
        decision for decision in cores.cycle(apply=False) if isinstance(decision, facts.Assigned)
    ]
    assert decision.name == "a"
    cores.publish(facts.Deactivated, "a")
    cores.apply(decision)
    cores.go()
    assert cores.phases("a", "b") == ["Deactivated", "Admitted"]


@scenario("F4")
def test_an_existing_reservation_is_not_blocked_by_unready_pods() -> None:
    cores = patient("c1", block=True)
    submitted(cores, "a", "2")
    submitted(cores, "b", "2")
    assert cores.phases("a", "b") == ["QuotaReserved", "QuotaReserved"]
    cores.report("a", "c1", "Ready")
    submitted(cores, "c", "2")
    assert cores.phases("a", "c") == ["Admitted", "Pending"]
    cores.report("b", "c1", "Ready")
    assert cores.phase("b") == "Admitted"


@scenario("F5")
@pytest.mark.parametrize(("timestamp", "first"), [("Eviction", "b"), ("Creation", "a")])
def test_the_place_after_a_timeout_is_by_eviction_or_by_creation(
    timestamp: str, first: str
) -> None:
    cores = patient(timestamp=timestamp, base=10)
    cores.submit("a", "cq", "8", age=100)
    cores.go()
    cores.advance(25)
    cores.submit("b", "cq", "8")
    cores.submit("full", "cq", "8", priority=10)
    cores.advance(5)
    assert cores.phases("a", "b", "full") == ["Backoff", "Pending", "Admitted"]
    cores.ready("full")
    cores.advance(20)
    assert cores.phases("a", "b") == ["Pending", "Pending"]
    cores.finish("full")
    cores.go()
    assert cores.phase(first) == "Admitted"


@scenario("F5")
def test_after_a_checks_retry_it_is_always_by_eviction() -> None:
    cores = patient("c1", timestamp="Creation")
    cores.submit("a", "cq", "8", age=100)
    cores.submit("b", "cq", "8", age=50)
    cores.go()
    cores.answer("a", "c1", "Retry")
    cores.go()
    assert cores.phases("a", "b") == ["Pending", "QuotaReserved"]


# Time limits. -------------------------------------------------------------------------------


def ran_out_of_time() -> TimedCores:
    cores = submitted(cores_with_queue("c1"), maximumExecutionTimeSeconds=10)
    cores.advance(100)
    cores.report("w", "c1", "Ready")
    cores.advance(6)
    cores.report("w", "c1", "Retry", after=60)
    assert cores.stored("w").status.accumulated_past_execution_time_seconds == 6
    cores.advance(60)
    cores.report("w", "c1", "Ready")
    cores.advance(3.9)
    assert cores.phase("w") == "Admitted"
    cores.advance(0.1)
    return cores


@scenario("F6")
def test_only_the_admitted_seconds_of_all_admissions_count() -> None:
    cores = ran_out_of_time()
    assert cores.phase("w") == "Deactivated"
    assert cores.reason("w", "Evicted") == "True: DeactivatedDueToMaximumExecutionTimeExceeded"
    assert "MaximumExecutionTimeExceeded" in cores.noted("w")
    assert cores.stored("w").status.accumulated_past_execution_time_seconds is None
    assert cores.usage("cq") == 0


@scenario("F12")
def test_the_execution_time_is_that_of_all_admissions() -> None:
    cores = submitted(cores_with_queue("c1"))
    cores.report("w", "c1", "Ready")
    cores.advance(5)
    cores.report("w", "c1", "Retry", after=60)
    cores.advance(60)
    cores.report("w", "c1", "Ready")
    cores.advance(7)
    cores.finish("w")
    before = cores.stored("w").status.accumulated_past_execution_time_seconds or 0
    admitted, finished = (find(cores.stored("w"), kind) for kind in ("Admitted", "Finished"))
    assert admitted is not None
    assert admitted.last_transition_time is not None
    assert finished is not None
    assert finished.last_transition_time is not None
    last = (finished.last_transition_time - admitted.last_transition_time).total_seconds()
    assert (before, last) == (5, 7)


# Stopped queues. ----------------------------------------------------------------------------


def stop(cores: TimedCores, where: str, policy: str) -> None:
    """Stops the ClusterQueue or the LocalQueue, or starts it again."""
    namespace = "ns" if where == "LocalQueue" else ""
    spec = cores.spec(where, "cq", namespace)
    cores.put(where, "cq", {**spec, "stopPolicy": policy}, namespace)
    cores.go()


@scenario("F7")
@pytest.mark.parametrize("where", ["ClusterQueue", "LocalQueue"])
@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_queue_gives_back_reservations_and_a_drained_one_evicts(
    policy: str, where: str
) -> None:
    cores = cores_with_queue("c1")
    for name in ("reserved", "admitted"):
        submitted(cores, name, "2")
    cores.report("admitted", "c1", "Ready")
    cores.slow_jobs.add("admitted")
    cycle = cores.stored("reserved").status.admission_cycle
    stop(cores, where, policy)
    submitted(cores, "new", "2")
    # T18: no job, so no eviction.
    assert cores.phase("reserved") == "Pending"
    assert cores.reason("reserved", "QuotaReserved") == "False: Suspended"
    assert cores.reason("reserved", "Evicted") == ""
    assert cores.stored("reserved").status.admission_cycle == cycle + 1
    assert len(cores.withdrawn("c1", "reserved")) == 1
    assert cores.phase("new") == "Pending"
    if policy == "Hold":
        assert cores.phase("admitted") == "Admitted"
    else:
        # T17.
        assert cores.phase("admitted") == "Evicting"
        assert cores.reason("admitted", "Evicted") == f"True: {where}Stopped"
        assert cores.usage("cq") == 2_000
        cores.stop("admitted")
        cores.go()
        assert cores.reason("admitted", "Requeued") == f"False: {where}Stopped"
        assert (cores.phase("admitted"), cores.usage("cq")) == ("Backoff", 0)
    cores.advance(86_400)
    assert cores.phases("reserved", "new") == ["Pending", "Pending"]
    # T23.
    stop(cores, where, "None")
    assert cores.phases("reserved", "new") == ["QuotaReserved", "QuotaReserved"]
    if policy == "Hold":
        assert (cores.phase("admitted"), cores.starts("admitted")) == ("Admitted", 1)
    else:
        assert cores.phase("admitted") == "QuotaReserved"
        assert cores.reason("admitted", "Requeued") == f"True: {where}Restarted"


@scenario("F7")
@pytest.mark.parametrize("where", ["ClusterQueue", "LocalQueue"])
def test_a_ready_check_in_a_stopped_queue_admits_no_workload(where: str) -> None:
    cores = submitted(cores_with_queue("c1"))
    cores.announces_objects = False
    stop(cores, where, "Hold")
    cores.announces_objects = True
    cores.answer("w", "c1", "Ready")
    cores.go()
    assert cores.starts("w") == 0
    stop(cores, where, "Hold")
    assert cores.phase("w") == "Pending"


# Off and on. --------------------------------------------------------------------------------


@scenario("F8")
def test_a_deactivated_workload_has_no_timer() -> None:
    cores = submitted(patient())
    cores.advance(30 + 60 + 30)
    assert (cores.phase("w"), cores.count("w")) == ("Backoff", 2)
    cores.advance(90)
    assert cores.wait("w") == 30
    cores.publish(facts.Deactivated, "w")
    assert cores.phase("w") == "Deactivated"
    assert cores.stored("w").status.requeue_state is None
    assert not cores.scheduled("w")
    cores.advance(86_400)
    assert cores.phase("w") == "Deactivated"


@scenario("F9")
@pytest.mark.parametrize("stopped", [False, True], ids=["while it stops", "after it stopped"])
def test_an_eviction_keeps_its_reason_when_the_user_turns_it_off_then(stopped: bool) -> None:
    cores = submitted(cores_with_queue(preemption=LOWER))
    cores.slow_jobs.add("w")
    submitted(cores, "high", priority=10)
    if stopped:
        cores.stop("w")
    cores.publish(facts.Deactivated, "w")
    assert cores.reason("w", "Evicted") == "True: Preempted"
    cores.stop("w")
    cores.go()
    assert (cores.phase("w"), cores.phase("high")) == ("Deactivated", "Admitted")
    assert cores.reason("w", "Evicted") == "True: Preempted"
    assert cores.evictions("w") == {"Preempted": 1}


@scenario("F10")
@pytest.mark.parametrize(("priority", "phase"), [(4, "Pending"), (6, "Admitted")])
def test_a_lowered_priority_makes_a_victim_only_if_it_is_then_lower(
    priority: int, phase: str
) -> None:
    cores = submitted(cores_with_queue(preemption=LOWER), priority=10)
    submitted(cores, "waits", priority=5)
    assert cores.phases("w", "waits") == ["Admitted", "Pending"]
    cores.publish(facts.Reprioritized, "w", priority=priority)
    assert cores.phase("w") == "Admitted", "no eviction by itself"
    cores.go()
    assert cores.phase("w") == phase
    assert cores.starts("waits") == (phase == "Pending")


@scenario("F11")
@pytest.mark.parametrize("ended", ["deactivated", "finished"])
def test_deactivated_and_finished_workloads_stay_so_after_a_restart(ended: str) -> None:
    cores = submitted(cores_with_queue())
    cores.publish(facts.Deactivated if ended == "deactivated" else facts.Finished, "w")
    cores.go()
    cores.restart()
    cores.go()
    cores.advance(86_400)
    assert cores.phase("w") == ("Deactivated" if ended == "deactivated" else "Finished")
    assert (cores.usage("cq"), cores.starts("w")) == (0, 1)
    submitted(cores, "other")
    assert cores.phase("other") == "Admitted"


# Runners that say nothing. ------------------------------------------------------------------


@scenario("F13")
def test_quota_is_freed_although_the_runner_never_answers() -> None:
    cores = submitted(cores_with_queue(preemption=LOWER))
    old = cores.stored("w").status.admitted_revision
    cores.slow_jobs.add("w")
    submitted(cores, "high", priority=10)
    cores.advance(299.9)
    assert cores.phases("w", "high") == ["Evicting", "Pending"]
    evicted = cores.stored("w").status.evicted_revision
    cores.advance(0.1)
    assert cores.phases("w", "high") == ["Pending", "Admitted"]
    assert "ForcedRelease" in cores.noted("w")
    cores.finish("high")
    cores.go()
    assert (cores.phase("w"), cores.starts("w")) == ("Admitted", 2)
    # Late words of the first run are not about the second one.
    for revision in (evicted, old):
        cores.publish(facts.Stopped, "w", revision=revision)
        cores.publish(facts.Finished, "w", revision=revision)
    cores.advance(3600)
    assert (cores.phase("w"), cores.starts("w"), cores.usage("cq")) == ("Admitted", 2, 8_000)


@scenario("F13")
def test_a_runner_that_answers_in_time_is_not_forced() -> None:
    cores = submitted(cores_with_queue("c1"))
    cores.report("w", "c1", "Ready")
    cores.slow_jobs.add("w")
    cores.report("w", "c1", "Retry", after=600)
    cores.advance(299)
    cores.stop("w")
    cores.advance(10)
    assert "ForcedRelease" not in cores.noted("w")
    assert cores.phase("w") == "Backoff"


# Every way out and back. --------------------------------------------------------------------


def reject(cores: TimedCores) -> None:
    cores.report("w", "c1", "Rejected")


def exceed_the_limit(cores: TimedCores) -> None:
    cores.report("w", "c1", "Ready")
    cores.advance(30)


def exceed_the_time(cores: TimedCores) -> None:
    cores.report("w", "c1", "Ready")
    cores.ready("w")
    cores.advance(100)


def turn_off(cores: TimedCores) -> None:
    cores.publish(facts.Deactivated, "w")


CAUSES = [
    pytest.param(reject, "DeactivatedDueToAdmissionCheck", id="T11"),
    pytest.param(exceed_the_limit, "DeactivatedDueToRequeuingLimitExceeded", id="T14"),
    pytest.param(exceed_the_time, "DeactivatedDueToMaximumExecutionTimeExceeded", id="T15"),
    pytest.param(turn_off, "Deactivated", id="T16"),
]


@scenario("F14")
@pytest.mark.parametrize(("cause", "reason"), CAUSES)
def test_after_any_deactivation_it_may_be_turned_on_again(
    cause: Callable[[TimedCores], None], reason: str
) -> None:
    cores = submitted(patient("c1", limit=0), maximumExecutionTimeSeconds=100)
    cause(cores)
    cores.go()
    assert cores.phase("w") == ("Rejected" if cause is reject else "Deactivated")
    assert cores.reason("w", "Evicted") == f"True: {reason}"
    states = {"Rejected"} if cause is reject else {"Pending"}
    assert (cores.usage("cq"), set(cores.states("w").values())) == (0, states)
    cores.advance(3600)
    assert not head(cores.stored("w")).active
    starts = cores.starts("w")
    cores.publish(facts.Activated, "w")
    assert cores.reason("w", "Requeued") == "True: Reactivated"
    cores.go()
    assert cores.phase("w") == "QuotaReserved"
    cores.report("w", "c1", "Ready")
    assert (cores.phase("w"), cores.starts("w")) == ("Admitted", starts + 1)
    cores.ready("w")
    cores.advance(99)
    assert cores.phase("w") == "Running", "all of its time is given anew"


def is_preempted(cores: TimedCores) -> None:
    cores.submit("high", "cq", "8", priority=10)
    cores.go()


def gets_a_retry(cores: TimedCores) -> None:
    cores.report("w", "c1", "Retry", after=60)


def gets_a_retry_at_once(cores: TimedCores) -> None:
    cores.report("w", "c1", "Retry")


def is_never_ready(cores: TimedCores) -> None:
    cores.advance(30)


def is_drained(cores: TimedCores) -> None:
    stop(cores, "ClusterQueue", "HoldAndDrain")


def is_drained_locally(cores: TimedCores) -> None:
    stop(cores, "LocalQueue", "HoldAndDrain")


def is_cut(cores: TimedCores) -> None:
    spec = cores.spec("ClusterQueue", "cq")
    cores.put("ClusterQueue", "cq", {**spec, "resourceGroups": groups(default="5")})
    cores.go()


def is_lost(cores: TimedCores) -> None:
    revision = cores.stored("w").status.admitted_revision
    cores.publish(facts.Stopped, "w", revision=revision, reason="NodeFailures")
    cores.go()


def is_rejected(cores: TimedCores) -> None:
    cores.report("w", "c1", "Rejected")


EVICTIONS = [
    pytest.param(is_preempted, "Preempted", id="Preempted"),
    pytest.param(gets_a_retry, "AdmissionCheck", id="AdmissionCheck"),
    pytest.param(gets_a_retry_at_once, "AdmissionCheck", id="AdmissionCheck, without delay"),
    pytest.param(is_never_ready, "PodsReadyTimeout", id="PodsReadyTimeout"),
    pytest.param(is_drained, "ClusterQueueStopped", id="ClusterQueueStopped"),
    pytest.param(is_drained_locally, "LocalQueueStopped", id="LocalQueueStopped"),
    pytest.param(is_cut, "QuotaChanged", id="QuotaChanged"),
    pytest.param(turn_off, "Deactivated", id="Deactivated"),
    pytest.param(is_rejected, "DeactivatedDueToAdmissionCheck", id="AdmissionCheck, rejected"),
]


def admitted() -> TimedCores:
    cores = submitted(patient("c1", preemption=LOWER, onQuotaCut="evict"))
    cores.report("w", "c1", "Ready")
    assert cores.phase("w") == "Admitted"
    return cores


def gives_way(cores: TimedCores) -> None:
    """Ends the cause of every eviction: deletes ``high``, starts the queues and restores the
    quota."""
    if cores.has("high"):
        cores.publish(facts.Deleted, "high")
    for where in ("ClusterQueue", "LocalQueue"):
        stop(cores, where, "None")
    spec = cores.spec("ClusterQueue", "cq")
    cores.put("ClusterQueue", "cq", {**spec, "resourceGroups": groups(default="10")})
    cores.go()
    cores.advance(60)


@scenario("F15")
@pytest.mark.parametrize("stops", ["at once", "late"])
@pytest.mark.parametrize(
    ("evicted", "reason"), [*EVICTIONS, pytest.param(is_lost, "NodeFailures", id="NodeFailures")]
)
def test_any_evicted_workload_can_get_quota_again(
    evicted: Callable[[TimedCores], None], reason: str, stops: str
) -> None:
    cores = admitted()
    if stops == "late":
        cores.slow_jobs.add("w")
    evicted(cores)
    assert cores.evicted_for("w") == [reason]
    if stops == "late":
        cores.advance(100)
        cores.stop("w")
    gives_way(cores)
    if not head(cores.stored("w")).active:
        cores.publish(facts.Activated, "w")
        cores.go()
    assert cores.phase("w") == "QuotaReserved"
    cores.report("w", "c1", "Ready")
    assert (cores.phase("w"), cores.starts("w")) == ("Admitted", 2)


@scenario("L24")
@pytest.mark.parametrize(("evicted", "reason"), EVICTIONS)
def test_a_workload_reactivated_while_its_job_stops_competes_again(
    evicted: Callable[[TimedCores], None], reason: str
) -> None:
    cores = admitted()
    cores.slow_jobs.add("w")
    evicted(cores)
    assert cores.evicted_for("w") == [reason]
    assert cores.usage("cq") == 8_000
    if head(cores.stored("w")).active:
        cores.publish(facts.Deactivated, "w")
    cores.publish(facts.Activated, "w")
    cores.go()
    assert cores.phase("w") == "Evicting"
    assert (cores.starts("w"), cores.usage("cq")) == (1, 8_000)
    stop(cores, "ClusterQueue", "None")
    stop(cores, "LocalQueue", "None")
    cores.stop("w")
    assert cores.reason("w", "Requeued") == "True: Reactivated"
    assert cores.phase("w") == "Pending"
    assert cores.counts("w") == {"c1": 0}
    gives_way(cores)
    assert cores.phase("w") == "QuotaReserved"


@scenario("L24")
@pytest.mark.parametrize(("evicted", "reason"), EVICTIONS)
def test_a_workload_recovers_when_its_queue_stops_while_its_job_ends(
    evicted: Callable[[TimedCores], None], reason: str
) -> None:
    cores = admitted()
    cores.slow_jobs.add("w")
    evicted(cores)
    if head(cores.stored("w")).active:
        cores.publish(facts.Deactivated, "w")
    cores.publish(facts.Activated, "w")
    stop(cores, "ClusterQueue", "Hold")
    cores.stop("w")
    cores.go()
    assert cores.phase("w") in ("Pending", "Backoff")
    gives_way(cores)
    assert (cores.phase("w"), cores.seconds() <= 200) == ("QuotaReserved", True)


@scenario("F13")
def test_the_drain_time_is_a_setting() -> None:
    limits = limits_of(Configuration(), drain=10)
    assert limits.drain == timedelta(seconds=10)
    cores = submitted(cores_with_queue("c1", limits=limits))
    cores.report("w", "c1", "Ready")
    cores.slow_jobs.add("w")
    cores.report("w", "c1", "Rejected")
    cores.advance(9.9)
    assert cores.usage("cq") == 8_000
    cores.advance(0.1)
    assert (cores.usage("cq"), cores.phase("w")) == (0, "Rejected")
