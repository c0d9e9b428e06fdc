"""The length of a wait, its causes and its messages. docs/spec/lifecycle.md#3.2, #3.5, #3.7."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from admittance.api.checks import RetryStrategy
from admittance.api.workload import CheckState, RequeueState
from admittance.workload.change import with_status
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.moves.backoff import (
    chance_of_retry,
    check_deadline,
    pods_ready_part,
    requeue_state_of,
    strategy_delay,
)
from admittance.workload.phase import Phase
from admittance.workload.transition_context import CheckRules
from support.builders import NOON, Around
from support.cores.tracked_workload import HOLD, TrackedWorkload


def a_row(name: str, state: str, after: int | None, at: float | None = 0) -> CheckState:
    since = None if at is None else NOON + timedelta(seconds=at)
    return CheckState(
        name=name, state=state, requeue_after_seconds=after, last_transition_time=since
    )


@pytest.mark.scenario("L1", "L11")
@pytest.mark.parametrize(
    ("rows", "want"),
    [
        pytest.param([], None, id="no rows"),
        pytest.param([a_row("a", "Retry", None)], None, id="no delay"),
        pytest.param([a_row("a", "Retry", 0)], None, id="a delay of 0"),
        pytest.param([a_row("a", "Retry", 60, None)], None, id="a row without a time"),
        pytest.param([a_row("a", "Ready", 60)], None, id="not in Retry"),
        pytest.param([a_row("a", "Retry", 60)], 60, id="one"),
        pytest.param([a_row("a", "Retry", 60), a_row("b", "Retry", 120)], 120, id="the longer"),
        pytest.param([a_row("a", "Retry", 5, 10), a_row("b", "Retry", 10)], 15, id="the later end"),
        pytest.param([a_row("a", "Retry", 60), a_row("b", "Retry", None, 50)], 60, id="a mix"),
        pytest.param([a_row("a", "Retry", 5, 0.2)], 6, id="whole seconds, and never less"),
    ],
)
def test_the_latest_end_of_all_delays_counts(rows: list[CheckState], want: int | None) -> None:
    end = None if want is None else NOON + timedelta(seconds=want)
    assert check_deadline(tuple(rows)) == end


@pytest.mark.scenario("L8", "L15")
def test_the_example_of_the_proposal() -> None:
    day = datetime(2026, 2, 6, tzinfo=UTC)
    tracked = TrackedWorkload(
        Around(["budget", "gpu", "license"]), now=day.replace(hour=10, minute=9)
    ).admitted()
    tracked.now = day.replace(hour=10, minute=10)
    tracked.verdict("budget", "Retry", 50_400, message="daily budget exhausted")
    tracked.now = day.replace(hour=10, minute=11)
    tracked.verdict("gpu", "Retry", 480, message="no A100")
    tracked.now = day.replace(hour=10, minute=20)
    tracked.verdict("license", "Retry")
    state = tracked.status.requeue_state
    assert state is not None
    assert state.requeue_at == datetime(2026, 2, 7, 0, 10, tzinfo=UTC)
    assert tracked.message("Evicted") == (
        'Evicted due to AdmissionChecks in Retry state: "budget" (daily budget exhausted); '
        '"gpu" (no A100); "license". Next attempt not before 2026-02-07T00:10:00Z, set by "budget"'
    )
    tracked.stopped()
    assert tracked.later(86_400 / 2).due().phase is Phase.BACKOFF
    tracked.now = state.requeue_at
    assert tracked.due().phase is Phase.PENDING


@pytest.mark.scenario("L15")
def test_the_message_of_a_wait_is_kept_current() -> None:
    tracked = (
        TrackedWorkload(Around(["a", "b"])).assigned().verdict("a", "Retry", 60, message="full")
    )
    assert tracked.conditions["QuotaReserved"] == ("False", "PendingEvaluation")
    for kind in ("QuotaReserved", "Requeued", "Evicted"):
        assert tracked.message(kind).endswith('not before 2026-01-01T12:01:00Z, set by "a"')
    tracked.later(1).verdict("b", "Retry", 60)
    for kind in ("QuotaReserved", "Requeued", "Evicted"):
        assert tracked.message(kind).endswith('not before 2026-01-01T12:01:01Z, set by "b"')
    tracked.later(60).due()
    assert tracked.message("QuotaReserved") == ""


@pytest.mark.scenario("L10")
def test_the_backoff_of_unready_pods_is_never_shortened_by_a_check() -> None:
    limits = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(seconds=30)))
    tracked = (
        TrackedWorkload(Around(["c"], limits=limits))
        .admitted()
        .later(30)
        .due("pods-ready")
        .stopped()
    )
    assert (tracked.phase, tracked.wait) == (Phase.BACKOFF, 60)
    assert tracked.verdict("c", "Retry", 300, ago=1).wait == 300
    assert tracked.verdict("c", "Retry", 30, ago=1).wait == 60
    assert tracked.message("Requeued").endswith("set by the backoff after PodsReadyTimeout")
    assert tracked.verdict("c", "Retry", 90, ago=1).wait == 90
    state = tracked.status.requeue_state
    assert state is not None
    assert state.count == 1
    assert tracked.later(90).due().phase is Phase.PENDING
    assert tracked.status.requeue_state == RequeueState(count=1)


def test_a_backoff_of_unready_pods_ends_by_its_timer_only() -> None:
    limits = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(seconds=30)))
    tracked = TrackedWorkload(Around(limits=limits)).admitted().later(30).due("pods-ready")
    tracked.stopped().later(61).lists("c")
    assert tracked.states == {"c": "Pending"}
    assert tracked.conditions["Requeued"] == ("False", "PodsReadyTimeout")
    assert tracked.due().conditions["Requeued"] == ("True", "BackoffFinished")


def test_a_time_that_no_row_explains_is_the_pods_backoff() -> None:
    tracked = TrackedWorkload(Around(["c"]))
    until = NOON + timedelta(seconds=50)
    changed = with_status(tracked.stored, requeue_state=RequeueState(count=2, requeue_at=until))
    assert pods_ready_part(changed) == until
    assert requeue_state_of(changed, ()) == RequeueState(count=2, requeue_at=until)
    later = requeue_state_of(changed, (a_row("c", "Retry", 70),))
    assert later == RequeueState(
        count=2, requeue_at=NOON + timedelta(seconds=70), pods_ready_until=until
    )


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=5),
    st.none() | st.integers(1, 150),
)
def test_a_wait_ends_with_the_later_of_its_causes(
    delays: list[tuple[int, int]], pods: int | None
) -> None:
    before = TrackedWorkload(Around(["c"])).stored
    if pods is not None:
        until = NOON + timedelta(seconds=pods)
        before = with_status(before, requeue_state=RequeueState(requeue_at=until))
    rows = tuple(a_row(str(n), "Retry", after, at) for n, (after, at) in enumerate(delays))
    state = requeue_state_of(before, rows)
    ends = [after + at for after, at in delays if after] + ([pods] if pods else [])
    want = max(ends, default=None)
    got = None if state is None else state.requeue_at
    assert got == (None if want is None else NOON + timedelta(seconds=want))
    # And taking all of them away leaves the other part.
    after = requeue_state_of(with_status(before, admission_checks=rows, requeue_state=state), ())
    left = None if after is None else after.requeue_at
    assert left == (None if pods is None else NOON + timedelta(seconds=pods))


# Strategies. ----------------------------------------------------------------------------

STATIC = RetryStrategy(base_delay="60s")
BACKOFF = RetryStrategy(strategy="backoff", base_delay="30s", max_delay="100s")


@pytest.mark.scenario("L14")
@pytest.mark.parametrize(
    ("strategy", "want"),
    [
        pytest.param(STATIC, [60, 60, 60, 60], id="the same every time"),
        pytest.param(BACKOFF, [30, 60, 100, 100], id="doubled up to a limit"),
        pytest.param(
            RetryStrategy(strategy="backoff", base_delay="10s", factor=1.5), [10, 15, 23, 34],
            id="by another factor, rounded up",
        ),
        pytest.param(RetryStrategy(base_delay="1m", max_delay="45s"), [45] * 4, id="limited"),
    ],
)  # fmt: skip
def test_each_retry_has_the_delay_of_the_strategy(strategy: RetryStrategy, want: list[int]) -> None:
    around = Around(["c"], rules=[CheckRules("c", "ctl-c", retry=strategy)])
    tracked = TrackedWorkload(around)
    delays = []
    for count in range(4):
        tracked.assigned().verdict("c", "Retry")
        assert tracked.status.admission_checks[0].requeue_after_seconds == tracked.wait
        delays.append(tracked.wait)
        assert tracked.counts == {"c": count}
        tracked.later(tracked.wait or 0).due()
    assert delays == want


def test_an_explicit_delay_overrides_the_strategy_even_0() -> None:
    around = Around(["c"], rules=[CheckRules("c", "ctl-c", retry=STATIC)])
    assert TrackedWorkload(around).assigned().verdict("c", "Retry", 5).wait == 5
    assert TrackedWorkload(around).assigned().verdict("c", "Retry", 0).phase is Phase.PENDING


@pytest.mark.scenario("L13")
def test_jitter_differs_per_workload_and_is_deterministic() -> None:
    strategy = RetryStrategy(base_delay="60s", jitter=0.5)
    delays = [strategy_delay(strategy, 0, chance_of_retry(f"uid-{n}", "c", 0)) for n in range(100)]
    assert (min(delays) >= 60, max(delays) <= 90, len(set(delays)) > 20) == (True, True, True)
    assert delays == [
        strategy_delay(strategy, 0, chance_of_retry(f"uid-{n}", "c", 0)) for n in range(100)
    ]
    assert (
        chance_of_retry("uid-1", "c", 0)
        != chance_of_retry("uid-1", "c", 1)
        != chance_of_retry("uid-1", "d", 1)
    )


def test_a_repeated_retry_with_jitter_changes_nothing() -> None:
    strategy = RetryStrategy(base_delay="60s", jitter=1)
    around = Around(["c"], rules=[CheckRules("c", "ctl-c", retry=strategy)])
    tracked = TrackedWorkload(around).assigned().verdict("c", "Retry").later(5)
    assert tracked.verdict("c", "Retry").reason == "Repeated"


@given(st.integers(0, 10**9), st.floats(1, 1e300), st.floats(0, 1), st.floats(0, 0.999))
def test_every_count_and_factor_gives_a_delay(
    count: int, factor: float, jitter: float, luck: float
) -> None:
    strategy = RetryStrategy(strategy="backoff", base_delay="1s", factor=factor, jitter=jitter)
    assert 1 <= strategy_delay(strategy, count, luck) < 2**31


def test_a_check_without_retries_left_rejects() -> None:
    strategy = RetryStrategy(base_delay="5s", max_retries=2)
    tracked = TrackedWorkload(Around(["c"], rules=[CheckRules("c", "ctl-c", retry=strategy)]))
    for count in (1, 2):
        tracked.assigned().verdict("c", "Retry").later(5).due()
        assert tracked.counts == {"c": count}
    tracked.assigned().verdict("c", "Retry", message="no room")
    assert tracked.phase is Phase.REJECTED
    assert "(no room; retried 2 times, 2 are allowed)" in tracked.message("Evicted")


@pytest.mark.scenario("L26")
def test_a_delay_above_the_limit_is_cut_and_noted() -> None:
    tracked = TrackedWorkload(
        Around(["c"], limits=Limits(check_delay=timedelta(hours=1)))
    ).assigned()
    tracked.verdict("c", "Retry", 3601, message="later")
    assert tracked.wait == 3600
    assert "RetryDelayClamped" in tracked.noted()
    assert tracked.verdict("c", "Retry", 3601, message="later").reason == "Repeated"


@pytest.mark.scenario("L20")
@pytest.mark.parametrize("after", [None, 60], ids=["by the strategy", "by the controller"])
def test_with_the_gate_off_a_retry_has_no_delay(
    after: int | None,
) -> None:
    rules = [CheckRules("c", "ctl-c", retry=RetryStrategy(base_delay="5s", max_retries=0))]
    tracked = TrackedWorkload(
        Around(["c"], limits=Limits(requeue_after=False), rules=rules)
    ).assigned()
    tracked.verdict("c", "Retry", after)
    assert (tracked.phase, tracked.counts) == (Phase.PENDING, {"c": 1})
    assert "RequeueAfterDisabled" in tracked.noted()
    assert "the gate ACRequeueAfter is off" in tracked.message("Evicted")


def test_a_stopped_queue_is_the_reason_during_a_wait() -> None:
    tracked = TrackedWorkload(Around(["a", "b"])).assigned().verdict("a", "Retry", 60).stops(HOLD)
    tracked.verdict("b", "Retry", 90)
    assert tracked.conditions["QuotaReserved"] == ("False", "Suspended")
