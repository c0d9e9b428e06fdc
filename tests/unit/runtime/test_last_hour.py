"""The last hour of an instance, minute by minute."""

from __future__ import annotations

from datetime import timedelta

from admittance.runtime.telemetry.last_hour import MINUTES, LastHour
from support.builders import NOON

MINUTE = timedelta(minutes=1)


def test_decisions_are_counted_by_minute() -> None:
    hour = LastHour(lambda: 3)
    hour.count(NOON, 2, 0.002)
    hour.count(NOON + MINUTE * 0.5, 1, 0.001)
    hour.count(NOON + MINUTE * 3, 5, 0.001)
    made = hour.series(NOON + MINUTE * 4)
    assert (made.decisions, made.waiting) == ((3, 0, 0, 5, 0), (3, 3, 3, 3, 3))


def test_an_hour_is_kept() -> None:
    hour = LastHour(lambda: 0)
    for minute in range(3 * MINUTES):
        hour.count(NOON + MINUTE * minute, minute, 0.001)
    made = hour.series(NOON + MINUTE * (3 * MINUTES - 1))
    assert made.decisions == tuple(range(2 * MINUTES, 3 * MINUTES))
    later = hour.series(NOON + timedelta(days=9))
    assert (len(later.decisions), sum(later.decisions)) == (MINUTES, 0)


def test_the_99th_percentile_leaves_one_in_a_hundred_out() -> None:
    hour = LastHour(lambda: 0)
    hour.count(NOON, 99, 0.099)
    hour.count(NOON, 1, 1.0)
    [slow] = hour.series(NOON).p99_ms
    assert 1 <= slow <= 1.1
    hour.count(NOON, 2, 2.0)
    [slower] = hour.series(NOON).p99_ms
    assert 1000 <= slower <= 1100


def test_cycles_without_a_decision_have_no_time() -> None:
    hour = LastHour(lambda: 0)
    hour.count(NOON, 0, 9.0)
    assert hour.series(NOON).p99_ms == (0.0,)


def test_a_clock_that_goes_back_counts_in_the_last_minute() -> None:
    hour = LastHour(lambda: 0)
    hour.count(NOON, 1, 0.001)
    hour.count(NOON - MINUTE * 5, 1, 0.001)
    assert hour.series(NOON).decisions == (2,)


def test_waiting_workloads_of_the_present_minute_are_those_of_now() -> None:
    waiting = [1, 7]
    hour = LastHour(lambda: waiting.pop(0))
    hour.count(NOON, 1, 0.001)
    assert hour.series(NOON).waiting == (7,)
