"""The effect of due times on a workload. docs/spec/lifecycle.md#6."""

from __future__ import annotations

from datetime import timedelta

import pytest

from admittance.api.checks import RetryStrategy
from admittance.api.workload import EvictionCount
from admittance.events import facts
from admittance.workload.change import FactOutcome
from admittance.workload.due_times import TimerKind, due_times
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.moves.eviction import total_seconds
from admittance.workload.moves.timeouts import backoff_seconds
from admittance.workload.phase import Phase
from admittance.workload.transition_context import CheckRules
from support.builders import Around

from lives import ME, Life


def a_life(*checks: str, limit: int | None = None, recovery: float = 30, **spec: int) -> Life:
    """Admitted, where pods have 30 s to be ready."""
    ready = PodsReadyLimits(
        timeout=timedelta(seconds=30),
        recovery=timedelta(seconds=recovery) if recovery else None,
        backoff_limit=limit,
        backoff_base=60,
        backoff_max=3600,
    )
    return Life(Around(checks, limits=Limits(pods_ready=ready)), **spec).admitted()


def evictions(life: Life) -> list[tuple[str, str, int]]:
    stats = life.status.scheduling_stats
    rows: tuple[EvictionCount, ...] = () if stats is None else stats.evictions
    return [(row.reason, row.underlying_cause, row.count) for row in rows]


def time_out(life: Life) -> Life:
    return life.later(30).due("pods-ready")


@pytest.mark.scenario("F1", "F2")
def test_pods_that_are_never_ready_back_off_then_deactivate() -> None:
    life = a_life(limit=2)
    for count, wait in ((1, 60), (2, 120)):
        time_out(life)
        assert life.phase is Phase.EVICTING
        life.stopped()
        state = life.status.requeue_state
        assert state is not None
        assert (life.phase, state.count, life.wait) == (Phase.BACKOFF, count, wait)
        assert life.conditions["Evicted"] == ("True", "PodsReadyTimeout")
        life.later(wait).due().admitted()
    assert time_out(life).phase is Phase.DEACTIVATED
    assert life.conditions["Evicted"] == ("True", "DeactivatedDueToRequeuingLimitExceeded")
    assert life.status.requeue_state is None
    assert evictions(life) == [
        ("PodsReadyTimeout", "WaitForStart", 2),
        ("Deactivated", "RequeuingLimitExceeded", 1),
    ]
    life.stopped().on().admitted()
    assert time_out(life).phase is Phase.EVICTING
    state = life.status.requeue_state
    assert state is not None
    assert state.count == 1


@pytest.mark.parametrize(
    ("count", "seconds"),
    [(1, 60), (2, 120), (3, 240), (6, 1920), (7, 3600), (10**9, 3600)],
)
def test_the_backoff_doubles_up_to_its_limit(count: int, seconds: int) -> None:
    assert backoff_seconds(count, PodsReadyLimits()) == seconds


def test_a_requeue_limit_of_0_deactivates_and_none_never_does() -> None:
    assert time_out(a_life(limit=0)).phase is Phase.DEACTIVATED
    life = a_life()
    for _ in range(9):
        time_out(life).stopped().later(3600).due().admitted()
    assert life.phase is Phase.ADMITTED


@pytest.mark.scenario("F3")
def test_pods_that_were_ready_have_the_recovery_timeout() -> None:
    life = a_life(recovery=10).ready().later(500).ready(ready=False)
    assert life.later(9).due("pods-ready").phase is Phase.ADMITTED
    life.later(1).due("pods-ready")
    assert life.phase is Phase.EVICTING
    assert evictions(life) == [("PodsReadyTimeout", "WaitForRecovery", 1)]


@pytest.mark.scenario("F3")
def test_without_a_recovery_timeout_pods_may_stay_unready() -> None:
    life = a_life(recovery=0).ready().ready(ready=False).later(10**6).due("pods-ready")
    assert (life.phase, life.reason) == (Phase.ADMITTED, "NotWaiting")


def test_ready_pods_reset_the_requeue_count() -> None:
    life = time_out(a_life()).stopped().later(60).due().admitted()
    assert life.status.requeue_state is not None
    assert life.ready().status.requeue_state is None


def test_rows_are_cleared_by_a_timeout_and_the_cycle_moves() -> None:
    life = a_life("c")
    cycle = life.status.admission_cycle
    time_out(life)
    assert (life.states, life.status.admission_cycle) == ({"c": "Pending"}, cycle + 1)
    assert life.status.rounds_since == cycle + 1


@pytest.mark.scenario("F6", "F12")
def test_admitted_seconds_of_all_admissions_count_towards_the_maximum() -> None:
    life = Life(maximumExecutionTimeSeconds=10).admitted().later(6).preempted().stopped()
    life.later(1000).admitted()
    assert life.status.accumulated_past_execution_time_seconds == 6
    assert life.later(3.9).due("execution").reason == "TooEarly"
    life.later(0.1).due("execution")
    assert life.phase is Phase.DEACTIVATED
    assert life.conditions["Evicted"] == ("True", "DeactivatedDueToMaximumExecutionTimeExceeded")
    assert "it ran 10 s, 10 s are allowed" in life.noted()["MaximumExecutionTimeExceeded"]
    assert evictions(life)[-1] == ("Deactivated", "MaximumExecutionTimeExceeded", 1)
    assert life.status.accumulated_past_execution_time_seconds is None
    life.later(5).stopped()
    assert life.status.accumulated_past_execution_time_seconds is None


@pytest.mark.scenario("F12")
def test_the_execution_time_sums_all_admissions() -> None:
    life = Life().admitted().later(5).preempted().stopped().later(50).admitted().later(7)
    at = life.status.admitted_revision
    life.happens(facts.Finished(**ME, revision=at)).later(1000)
    assert total_seconds(life.stored, life.now) == 12


@pytest.mark.scenario("F14")
def test_activation_while_stopping_resets_the_execution_time() -> None:
    life = Life(maximumExecutionTimeSeconds=10).admitted().later(10).due("execution").on()
    assert life.later(3).stopped().admitted().phase is Phase.ADMITTED
    assert life.status.accumulated_past_execution_time_seconds is None
    assert due_times(life.stored, life.now, life.around)[
        TimerKind.EXECUTION
    ] == life.now + timedelta(seconds=10)


@pytest.mark.scenario("F13")
@pytest.mark.parametrize("how", ["preempted", "retry", "off", "deleted"])
def test_quota_is_freed_without_a_stop_report_after_the_drain_time(
    how: str,
) -> None:
    life = Life(Around(["c"])).admitted()
    admitted = life.status.admitted_revision
    match how:
        case "preempted":
            life.preempted()
        case "retry":
            life.verdict("c", "Retry", 600)
        case "off":
            life.off()
        case "deleted":
            life.happens(facts.Deleted(**ME))
    evicted = life.status.evicted_revision
    assert life.later(299).due("drain").reason == "TooEarly"
    life.later(1).due("drain")
    assert "ForcedRelease" in life.noted()
    if how == "deleted":
        assert life.workload is None
        return
    assert life.status.admission is None
    assert (
        life.phase
        is {
            "preempted": Phase.PENDING,
            "retry": Phase.BACKOFF,
            "off": Phase.DEACTIVATED,
        }[how]
    )
    before = life.workload
    for revision in (evicted, admitted):
        assert life.happens(facts.Stopped(**ME, revision=revision)).workload is before
    assert life.happens(facts.Finished(**ME, revision=evicted)).workload is before


@pytest.mark.scenario("F13")
def test_a_forced_release_ends_a_wait_that_is_already_over() -> None:
    life = Life(Around(["c"])).admitted().verdict("c", "Retry", 60).later(300).due("drain")
    assert (life.phase, life.counts) == (Phase.PENDING, {"c": 1})
    assert life.said == ["noted", "pending", "requeued"]


def test_a_job_that_stopped_in_time_is_not_released_twice() -> None:
    life = Life().admitted().preempted().stopped().admitted().later(300)
    assert life.due("drain").outcome is FactOutcome.IGNORED
    assert life.phase is Phase.ADMITTED


def test_a_check_without_a_verdict_in_time_counts_as_retry() -> None:
    rules = [CheckRules("a", "ctl-a", timeout_seconds=30), CheckRules("b", "ctl-b")]
    life = Life(Around(["a", "b"], rules=rules)).assigned().verdict("a", "Pending", message="soon")
    assert life.later(29).due("checks").reason == "TooEarly"
    life.later(1).due("checks")
    assert (life.phase, life.counts) == (Phase.PENDING, {"a": 1, "b": 0})
    assert "no verdict within 30 s" in life.message("Evicted")
    assert [say.detail for say in life.says if say.what == "check_withdrawn"] == ["a", "b"]


def test_the_retry_strategy_holds_for_a_check_timeout() -> None:
    once = RetryStrategy(base_delay="45s", max_retries=1)
    rules = [
        CheckRules("a", "ctl-a", timeout_seconds=30, retry=once),
        CheckRules("b", "ctl-b", timeout_seconds=20),
    ]
    life = Life(Around(["a", "b"], rules=rules)).assigned().verdict("b", "Ready").later(30)
    life.due("checks")
    assert (life.phase, life.wait) == (Phase.BACKOFF, 45)
    life.later(45).due().assigned().verdict("b", "Ready").later(30).due("checks")
    assert life.phase is Phase.REJECTED


def test_a_check_with_a_verdict_has_no_timeout() -> None:
    rules = [CheckRules("a", "ctl-a", timeout_seconds=30)]
    life = Life(Around(["a"], rules=rules)).assigned().verdict("a", "Ready").later(30)
    assert life.due("checks").reason == "NotWaiting"


def test_the_timeout_of_an_added_check_starts_when_it_is_added() -> None:
    rules = [CheckRules("a", "ctl-a"), CheckRules("b", "ctl-b", timeout_seconds=30)]
    life = Life(Around(["a"], rules=rules)).assigned().later(3600).lists("a", "b")
    assert life.said == ["check_requested"]
    assert life.later(29).due("checks").reason == "TooEarly"
    assert life.later(1).due("checks").phase is Phase.PENDING


def test_a_check_that_returns_to_pending_has_a_new_timeout() -> None:
    rules = [CheckRules("a", "ctl-a", timeout_seconds=30), CheckRules("b", "ctl-b")]
    life = Life(Around(["a", "b"], rules=rules)).assigned().verdict("a", "Ready").later(3600)
    life.verdict("a", "Pending", message="once more").later(20).verdict("a", "Pending", message="x")
    assert life.later(9).due("checks").reason == "TooEarly"
    assert life.later(1).due("checks").phase is Phase.PENDING


@pytest.mark.parametrize("kind", [*map(str, TimerKind), "nonsense"])
def test_a_timer_without_a_waiting_workload_changes_nothing(kind: str) -> None:
    for life in (Life(), Life().assigned(), Life().assigned().preempted().stopped()):
        before = life.workload
        life.later(10**6).due(kind)
        assert life.workload is before
