"""Sums of usage over days are read as whole months, and single days beside them."""

from __future__ import annotations

from datetime import date

import pytest

from admittance.usage.periods import periods_between


@pytest.mark.parametrize(
    ("first", "last", "periods"),
    [
        pytest.param("2026-02-10", "2026-02-10", ["2026-02-10"], id="one day"),
        pytest.param("2026-02-10", "2026-02-09", [], id="no day"),
        pytest.param("2026-02-01", "2026-02-28", ["2026-02"], id="a whole month"),
        pytest.param("2026-12-01", "2026-12-31", ["2026-12"], id="the last month of a year"),
        pytest.param(
            "2026-01-31", "2026-03-02",
            ["2026-01-31", "2026-02", "2026-03-01", "2026-03-02"],
            id="the last day of a month, a month, and two days of the next",
        ),
        pytest.param(
            "2026-02-27", "2026-03-01",
            ["2026-02-27", "2026-02-28", "2026-03-01"],
            id="no month is whole",
        ),
    ],
)  # fmt: skip
def test_a_span_of_days_is_its_whole_months_and_the_other_days(
    first: str, last: str, periods: list[str]
) -> None:
    found = periods_between(date.fromisoformat(first), date.fromisoformat(last))
    assert [period.name for period in found] == periods
    assert [period.span for period in found] == [
        "month" if len(name) == len("2026-01") else "day" for name in periods
    ]
