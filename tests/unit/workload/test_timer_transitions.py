"""The effect of due times on a workload. docs/spec/lifecycle.md#6."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

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
from support.cores.tracked_workload import ME, TrackedWorkload


def a_tracked_workload(
    *checks: str, limit: int | None = None, recovery: float = 30, **spec: Any
) -> TrackedWorkload:
    """An admitted workload with pods that have 30 s to become ready."""
    ready = PodsReadyLimits(
        timeout=timedelta(seconds=30),
        recovery=timedelta(seconds=recovery) if recovery else None,
        backoff_limit=limit,
        backoff_base=60,
        backoff_max=3600,
    )
    return TrackedWorkload(Around(checks, limits=Limits(pods_ready=ready)), **spec).admitted()


def evictions(tracked: TrackedWorkload) -> list[tuple[str, str, int]]:
    stats = tracked.status.scheduling_stats
    rows: tuple[EvictionCount, ...] = () if stats is None else stats.evictions
    return [(row.reason, row.underlying_cause, row.count) for row in rows]


def time_out(tracked: TrackedWorkload) -> TrackedWorkload:
    return tracked.later(30).due("pods-ready")


@pytest.mark.scenario("F1", "F2")
def test_pods_that_are_never_ready_back_off_then_deactivate() -> None:
    tracked = a_tracked_workload(limit=2)
    for count, wait in ((1, 60), (2, 120)):
        time_out(tracked)
        assert tracked.phase is Phase.EVICTING
        tracked.stopped()
        state = tracked.status.requeue_state
        assert state is not None
        assert (tracked.phase, state.count, tracked.wait) == (Phase.BACKOFF, count, wait)
        assert tracked.conditions["Evicted"] == ("True", "PodsReadyTimeout")
        tracked.later(wait).due().admitted()
    assert time_out(tracked).phase is Phase.DEACTIVATED
    assert tracked.conditions["Evicted"] == ("True", "DeactivatedDueToRequeuingLimitExceeded")
    assert tracked.status.requeue_state is None
    assert evictions(tracked) == [
        ("PodsReadyTimeout", "WaitForStart", 2),
        ("Deactivated", "RequeuingLimitExceeded", 1),
    ]
    tracked.stopped().on().admitted()
    assert time_out(tracked).phase is Phase.EVICTING
    state = tracked.status.requeue_state
    assert state is not None
    assert state.count == 1


@pytest.mark.parametrize(
    ("count", "seconds"),
    [(1, 60), (2, 120), (3, 240), (6, 1920), (7, 3600), (10**9, 3600)],
)
def test_the_backoff_doubles_up_to_its_limit(count: int, seconds: int) -> None:
    assert backoff_seconds(count, PodsReadyLimits()) == seconds


def test_a_requeue_limit_of_0_deactivates_and_none_never_does() -> None:
    assert time_out(a_tracked_workload(limit=0)).phase is Phase.DEACTIVATED
    tracked = a_tracked_workload()
    for _ in range(9):
        time_out(tracked).stopped().later(3600).due().admitted()
    assert tracked.phase is Phase.ADMITTED


@pytest.mark.scenario("F3")
def test_pods_that_were_ready_have_the_recovery_timeout() -> None:
    tracked = a_tracked_workload(recovery=10).ready().later(500).ready(ready=False)
    assert tracked.later(9).due("pods-ready").phase is Phase.ADMITTED
    tracked.later(1).due("pods-ready")
    assert tracked.phase is Phase.EVICTING
    assert evictions(tracked) == [("PodsReadyTimeout", "WaitForRecovery", 1)]


@pytest.mark.scenario("F3")
def test_without_a_recovery_timeout_pods_may_stay_unready() -> None:
    tracked = (
        a_tracked_workload(recovery=0).ready().ready(ready=False).later(10**6).due("pods-ready")
    )
    assert (tracked.phase, tracked.reason) == (Phase.ADMITTED, "NotWaiting")


@pytest.mark.parametrize(
    ("annotation", "deployment", "start", "recovery"),
    [
        pytest.param('{"timeoutSeconds": 7}', 30, 7, 7, id="shorter; recovery is the same"),
        pytest.param('{"timeoutSeconds": 90}', 30, 90, 90, id="longer"),
        pytest.param(
            '{"timeoutSeconds": 7, "recoveryTimeoutSeconds": 3}', 30, 7, 3, id="both timeouts"
        ),
        pytest.param(
            '{"timeoutSeconds": 7, "recoveryTimeoutSeconds": 0}', 30, 7, None, id="no recovery"
        ),
        pytest.param('{"timeoutSeconds": 7}', None, 7, 7, id="without waitForPodsReady"),
        pytest.param("seven", 30, 30, 30, id="stored by a version that did not read it"),
    ],
)
def test_a_workload_may_have_its_own_timeouts(
    annotation: str, deployment: int | None, start: int, recovery: int | None
) -> None:
    ready = deployment and PodsReadyLimits(
        timeout=timedelta(seconds=deployment), recovery=timedelta(seconds=deployment)
    )
    around = Around((), limits=Limits(pods_ready=ready or None))
    notes = {"kueue.x-k8s.io/wait-for-pods-ready": annotation}
    tracked = TrackedWorkload(around, annotations=notes).admitted()
    assert due_times(tracked.stored, tracked.now, around)[TimerKind.PODS_READY] == (
        tracked.now + timedelta(seconds=start)
    )
    tracked.ready().ready(ready=False)
    due = due_times(tracked.stored, tracked.now, around).get(TimerKind.PODS_READY)
    assert due == (None if recovery is None else tracked.now + timedelta(seconds=recovery))
    if recovery is not None:
        tracked.later(recovery).due("pods-ready")
        assert tracked.phase is Phase.EVICTING
        assert f"within {recovery} s" in tracked.message("Evicted")


def test_ready_pods_reset_the_requeue_count() -> None:
    tracked = time_out(a_tracked_workload()).stopped().later(60).due().admitted()
    assert tracked.status.requeue_state is not None
    assert tracked.ready().status.requeue_state is None


def test_rows_are_cleared_by_a_timeout_and_the_cycle_moves() -> None:
    tracked = a_tracked_workload("c")
    cycle = tracked.status.admission_cycle
    time_out(tracked)
    assert (tracked.states, tracked.status.admission_cycle) == ({"c": "Pending"}, cycle + 1)
    assert tracked.status.rounds_since == cycle + 1


@pytest.mark.scenario("F6", "F12")
def test_admitted_seconds_of_all_admissions_count_towards_the_maximum() -> None:
    tracked = (
        TrackedWorkload(maximumExecutionTimeSeconds=10).admitted().later(6).preempted().stopped()
    )
    tracked.later(1000).admitted()
    assert tracked.status.accumulated_past_execution_time_seconds == 6
    assert tracked.later(3.9).due("execution").reason == "TooEarly"
    tracked.later(0.1).due("execution")
    assert tracked.phase is Phase.DEACTIVATED
    assert tracked.conditions["Evicted"] == ("True", "DeactivatedDueToMaximumExecutionTimeExceeded")
    assert "it ran 10 s, 10 s are allowed" in tracked.noted()["MaximumExecutionTimeExceeded"]
    assert evictions(tracked)[-1] == ("Deactivated", "MaximumExecutionTimeExceeded", 1)
    assert tracked.status.accumulated_past_execution_time_seconds is None
    tracked.later(5).stopped()
    assert tracked.status.accumulated_past_execution_time_seconds is None


@pytest.mark.scenario("F12")
def test_the_execution_time_sums_all_admissions() -> None:
    tracked = (
        TrackedWorkload().admitted().later(5).preempted().stopped().later(50).admitted().later(7)
    )
    at = tracked.status.admitted_revision
    tracked.happens(facts.Finished(**ME, revision=at)).later(1000)
    assert total_seconds(tracked.stored, tracked.now) == 12


@pytest.mark.scenario("F14")
def test_activation_while_stopping_resets_the_execution_time() -> None:
    tracked = (
        TrackedWorkload(maximumExecutionTimeSeconds=10).admitted().later(10).due("execution").on()
    )
    assert tracked.later(3).stopped().admitted().phase is Phase.ADMITTED
    assert tracked.status.accumulated_past_execution_time_seconds is None
    assert due_times(tracked.stored, tracked.now, tracked.around)[
        TimerKind.EXECUTION
    ] == tracked.now + timedelta(seconds=10)


@pytest.mark.scenario("F13")
@pytest.mark.parametrize("how", ["preempted", "retry", "off", "deleted"])
def test_quota_is_freed_without_a_stop_report_after_the_drain_time(
    how: str,
) -> None:
    tracked = TrackedWorkload(Around(["c"])).admitted()
    admitted = tracked.status.admitted_revision
    match how:
        case "preempted":
            tracked.preempted()
        case "retry":
            tracked.verdict("c", "Retry", 600)
        case "off":
            tracked.off()
        case "deleted":
            tracked.happens(facts.Deleted(**ME))
    evicted = tracked.status.evicted_revision
    assert tracked.later(299).due("drain").reason == "TooEarly"
    tracked.later(1).due("drain")
    assert "ForcedRelease" in tracked.noted()
    if how == "deleted":
        assert tracked.workload is None
        return
    assert tracked.status.admission is None
    assert (
        tracked.phase
        is {
            "preempted": Phase.PENDING,
            "retry": Phase.BACKOFF,
            "off": Phase.DEACTIVATED,
        }[how]
    )
    before = tracked.workload
    for revision in (evicted, admitted):
        assert tracked.happens(facts.Stopped(**ME, revision=revision)).workload is before
    assert tracked.happens(facts.Finished(**ME, revision=evicted)).workload is before


@pytest.mark.scenario("F13")
def test_a_forced_release_ends_a_wait_that_is_already_over() -> None:
    tracked = (
        TrackedWorkload(Around(["c"])).admitted().verdict("c", "Retry", 60).later(300).due("drain")
    )
    assert (tracked.phase, tracked.counts) == (Phase.PENDING, {"c": 1})
    assert tracked.outbox_kinds == ["noted", "pending", "requeued"]


def test_a_job_that_stopped_in_time_is_not_released_twice() -> None:
    tracked = TrackedWorkload().admitted().preempted().stopped().admitted().later(300)
    assert tracked.due("drain").outcome is FactOutcome.IGNORED
    assert tracked.phase is Phase.ADMITTED


def test_a_check_without_a_verdict_in_time_counts_as_retry() -> None:
    rules = [CheckRules("a", "ctl-a", timeout_seconds=30), CheckRules("b", "ctl-b")]
    tracked = (
        TrackedWorkload(Around(["a", "b"], rules=rules))
        .assigned()
        .verdict("a", "Pending", message="soon")
    )
    assert tracked.later(29).due("checks").reason == "TooEarly"
    tracked.later(1).due("checks")
    assert (tracked.phase, tracked.counts) == (Phase.PENDING, {"a": 1, "b": 0})
    assert "no verdict within 30 s" in tracked.message("Evicted")
    assert [say.detail for say in tracked.outbox if say.what == "check_withdrawn"] == ["a", "b"]


def test_the_retry_strategy_holds_for_a_check_timeout() -> None:
    once = RetryStrategy(base_delay="45s", max_retries=1)
    rules = [
        CheckRules("a", "ctl-a", timeout_seconds=30, retry=once),
        CheckRules("b", "ctl-b", timeout_seconds=20),
    ]
    tracked = (
        TrackedWorkload(Around(["a", "b"], rules=rules)).assigned().verdict("b", "Ready").later(30)
    )
    tracked.due("checks")
    assert (tracked.phase, tracked.wait) == (Phase.BACKOFF, 45)
    tracked.later(45).due().assigned().verdict("b", "Ready").later(30).due("checks")
    assert tracked.phase is Phase.REJECTED


def test_a_check_with_a_verdict_has_no_timeout() -> None:
    rules = [CheckRules("a", "ctl-a", timeout_seconds=30)]
    tracked = TrackedWorkload(Around(["a"], rules=rules)).assigned().verdict("a", "Ready").later(30)
    assert tracked.due("checks").reason == "NotWaiting"


def test_the_timeout_of_an_added_check_starts_when_it_is_added() -> None:
    rules = [CheckRules("a", "ctl-a"), CheckRules("b", "ctl-b", timeout_seconds=30)]
    tracked = TrackedWorkload(Around(["a"], rules=rules)).assigned().later(3600).lists("a", "b")
    assert tracked.outbox_kinds == ["check_requested"]
    assert tracked.later(29).due("checks").reason == "TooEarly"
    assert tracked.later(1).due("checks").phase is Phase.PENDING


def test_a_check_that_returns_to_pending_has_a_new_timeout() -> None:
    rules = [CheckRules("a", "ctl-a", timeout_seconds=30), CheckRules("b", "ctl-b")]
    tracked = (
        TrackedWorkload(Around(["a", "b"], rules=rules))
        .assigned()
        .verdict("a", "Ready")
        .later(3600)
    )
    tracked.verdict("a", "Pending", message="once more").later(20).verdict(
        "a", "Pending", message="x"
    )
    assert tracked.later(9).due("checks").reason == "TooEarly"
    assert tracked.later(1).due("checks").phase is Phase.PENDING


@pytest.mark.parametrize("kind", [*map(str, TimerKind), "nonsense"])
def test_a_timer_without_a_waiting_workload_changes_nothing(kind: str) -> None:
    for tracked in (
        TrackedWorkload(),
        TrackedWorkload().assigned(),
        TrackedWorkload().assigned().preempted().stopped(),
    ):
        before = tracked.workload
        tracked.later(10**6).due(kind)
        assert tracked.workload is before
