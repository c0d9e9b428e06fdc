"""Facts are collected only at a high rate."""

from __future__ import annotations

import pytest

from admittance.runtime.bus.puller import CALM_RATE, CROWDED_PAUSE, Pace


def after(rate: float, seconds: float = 2.0) -> float:
    """The pause after facts arrived one by one at this rate."""
    pace = Pace()
    now = 0.0
    while now < seconds:
        pace.record(1, now)
        now += 1 / rate
    return pace.pause(now)


@pytest.mark.parametrize("rate", [1, 50, 150, CALM_RATE * 0.9])
def test_facts_at_a_low_rate_are_handled_at_once(rate: float) -> None:
    assert after(rate) == 0


@pytest.mark.parametrize("rate", [700, 5_000, 50_000])
def test_facts_at_a_high_rate_wait_a_few_milliseconds(rate: float) -> None:
    assert after(rate) == pytest.approx(CROWDED_PAUSE)


def test_the_first_fact_does_not_wait() -> None:
    assert Pace().pause(1_000.0) == 0


def test_after_a_second_without_facts_the_next_one_does_not_wait() -> None:
    pace = Pace()
    pace.record(1_000, 0.0)
    assert pace.pause(0.0) == pytest.approx(CROWDED_PAUSE)
    assert pace.pause(1.0) == 0
