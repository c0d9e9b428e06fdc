"""Intervals of starts, and how earlier errors widen them."""

from __future__ import annotations

import pytest

from admittance.forecast.widening import Interval, Widening, error_of, quantiles


@pytest.mark.parametrize(
    ("values", "interval"),
    [
        ([5.0], (5, 5, 5)),
        ([3.0, 1.0, 2.0], (1, 2, 3)),
        ([float(each) for each in range(21)], (2, 10, 18)),
    ],
)
def test_quantiles_are_sampled_values(
    values: list[float], interval: tuple[float, float, float]
) -> None:
    assert quantiles(values) == interval


@pytest.mark.parametrize(
    ("interval", "actual", "error"),
    [
        (Interval(100, 200, 400), 200, 0.0),
        (Interval(100, 200, 400), 400, 1.0),
        (Interval(100, 200, 400), 600, 2.0),
        (Interval(100, 200, 400), 100, -1.0),
        (Interval(100, 200, 400), 50, -1.5),
        # A narrow interval has half widths of 30 s, or of a twentieth of the median.
        (Interval(200, 200, 200), 230, 1.0),
        (Interval(200, 200, 200), 185, -0.5),
        (Interval(1000, 1000, 1000), 1100, 2.0),
    ],
)
def test_an_error_counts_half_widths_above_the_median(
    interval: Interval, actual: float, error: float
) -> None:
    assert error_of(interval, actual) == pytest.approx(error)


SAME = Interval(100, 200, 400)


@pytest.mark.parametrize(
    ("actual", "below", "above"),
    [
        ([], 2.0, 2.0),
        ([2000.0] * 9, 2.0, 2.0),  # Too few.
        ([200.0] * 10, 1.0, 1.0),  # Never narrower.
        ([400.0 + 200 * each for each in range(10)], 1.0, 10.0),
        ([100.0 - 100 * each for each in range(10)], 10.0, 1.0),
        # Of 38 errors none lies outside, of 39 one, of 59 two.
        ([200.0 + 200 * each for each in range(38)], 1.0, 37.0),
        ([200.0 + 200 * each for each in range(-19, 20)], 36.0, 18.0),
        ([200.0 + 200 * each for each in range(-29, 30)], 54.0, 27.0),
        ([200.0 + 200 * each for each in range(1500)], 1.0, 1450.0),  # The last 1,000.
    ],
)
def test_each_side_is_widened_by_a_quantile_of_the_last_errors(
    actual: list[float], below: float, above: float
) -> None:
    """Half widths are 100 s below and 200 s above the median."""
    widening = Widening()
    for each in actual:
        widening.add(SAME, each)
    assert widening.sides == pytest.approx((below, above))


@pytest.mark.parametrize(
    ("interval", "widened"),
    [
        (Interval(100, 200, 400), (0, 200, 600)),
        (Interval(900, 1000, 1000), (800, 1000, 1100)),
        (Interval(0, 0, 0), (0, 0, 60)),
    ],
)
def test_a_widened_interval_keeps_its_median(
    interval: Interval, widened: tuple[float, float, float]
) -> None:
    assert Widening().widened(interval) == pytest.approx(widened)
