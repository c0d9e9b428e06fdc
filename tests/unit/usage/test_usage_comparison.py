"""Sums that differ from the log are computed anew, where the log has all runs of their days."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from admittance.usage.comparison import (
    compared_sums,
    days_ahead,
    difference_text,
    first_whole_day,
    total_of,
)
from admittance.usage.periods import Period
from admittance.usage.runs import OTHERS
from admittance.usage.summary import Counts, RowKey, Summary, SummaryKey

FIRST = date(2026, 10, 30)
ROW = RowKey("lq", "ada", "")


def a_key(name: str, namespace: str = "ns") -> SummaryKey:
    return SummaryKey(Period("day" if len(name) == 10 else "month", name), "cq", namespace)


def sums(**runs: int) -> dict[SummaryKey, Summary]:
    """Summaries with so many runs by day or month, such as ``d2026_10_30``."""
    return {a_key(name[1:].replace("_", "-")): a_summary(count) for name, count in runs.items()}


def a_summary(runs: int, user: str = "ada", cpu: int = 0) -> Summary:
    summary = Summary(7, 3)
    summary.add(ROW._replace(user=user), Counts(runs=runs))
    if cpu:
        summary.add(ROW._replace(user=user, flavor="f"), Counts(runs=runs, amounts={"cpu": cpu}))
    return summary


@pytest.mark.parametrize(
    ("oldest", "day"),
    [
        (datetime(2026, 10, 28, 0, 0, tzinfo=UTC), date(2026, 10, 30)),
        (datetime(2026, 10, 28, 23, 59, tzinfo=UTC), date(2026, 10, 30)),
    ],
)
def test_a_day_is_whole_if_the_log_began_before_it_by_any_clock(
    oldest: datetime, day: date
) -> None:
    assert first_whole_day(oldest) == day


@pytest.mark.parametrize(
    ("stored", "anew", "wrong"),
    [
        pytest.param(
            sums(d2026_10_29=9, d2026_10_30=4, d2026_11_01=5, m2026_10=13, m2026_11=5),
            sums(d2026_10_29=1, d2026_10_30=4, d2026_11_01=5, m2026_10=5, m2026_11=5),
            {},
            id="sums that are right, and an older day of which the log has a part only",
        ),
        pytest.param(
            sums(d2026_10_29=9, d2026_10_30=3, m2026_10=12),
            sums(d2026_10_30=4),
            {"2026-10-30": 4, "2026-10": 13},
            id="a month that is partly on the log is the sum of its old and new days",
        ),
        pytest.param(
            sums(d2026_10_29=9, m2026_10=13) | {a_key("2026-10-30"): Summary(7, 3)},
            sums(d2026_10_30=4),
            {"2026-10-30": 4},
            id="a day that cannot be read, in a month that is right",
        ),
        pytest.param(
            sums(d2026_10_30=3, m2026_10=12) | {a_key("2026-10-29"): Summary(7, 3)},
            sums(d2026_10_30=4),
            {"2026-10-30": 4},
            id="a month with an older day that cannot be read stays as it is",
        ),
        pytest.param(
            sums(d2026_10_29=9, d2026_10_30=4) | {a_key("2026-10"): Summary(7, 3)},
            sums(d2026_10_30=4),
            {"2026-10": 13},
            id="a month that cannot be read is the sum of its days",
        ),
        pytest.param(
            sums(d2026_11_01=5, d2026_11_02=1, m2026_11=7),
            sums(d2026_11_01=5, d2026_11_02=1),
            {"2026-11": 6},
            id="a month that is wholly on the log is the sum of its days",
        ),
        pytest.param(
            sums(), sums(d2026_11_01=5), {"2026-11-01": 5, "2026-11": 5}, id="sums that are lost"
        ),
        pytest.param(
            sums(d2026_11_01=5, m2026_11=5),
            {},
            {"2026-11-01": 0, "2026-11": 0},
            id="sums of nothing",
        ),
    ],
)
def test_sums_that_differ_from_the_log_are_those_of_the_log(
    stored: dict[SummaryKey, Summary], anew: dict[SummaryKey, Summary], wrong: dict[str, int]
) -> None:
    corrected = compared_sums(stored, anew, FIRST)
    assert {key.period.name: total_of(each).runs for key, each in corrected.items()} == wrong


@pytest.mark.parametrize(
    ("stored", "computed", "same"),
    [
        (a_summary(0), Summary(), True),
        (a_summary(2, "ada"), a_summary(2, "bob"), False),
        (a_summary(2, "ada"), a_summary(2, OTHERS), True),
        (a_summary(2, "ada"), a_summary(3, OTHERS), False),
        (a_summary(2, cpu=5), a_summary(2, cpu=6), False),
    ],
)
def test_summaries_are_the_same_up_to_users_that_are_counted_together(
    stored: Summary, computed: Summary, same: bool
) -> None:
    key = a_key("2026-10-30")
    corrected = compared_sums({key: stored}, {key: computed}, FIRST)
    assert (key not in corrected) is same


@pytest.mark.parametrize(
    ("stored", "computed", "text"),
    [
        (a_summary(2, cpu=5_000), a_summary(3, cpu=6), "runs 3 (was 2), cpu 6 (was 5,000)"),
        (a_summary(2, cpu=1), a_summary(2), "cpu 0 (was 1)"),
        (a_summary(2), a_summary(2, cpu=1), "cpu 1 (was 0)"),
        (a_summary(2), a_summary(2, "bob"), "other users, queues or flavors"),
    ],
)
def test_a_difference_is_said_in_numbers(stored: Summary, computed: Summary, text: str) -> None:
    said = difference_text(a_key("2026-11-03"), stored, computed)
    assert said == f"2026-11-03, cq, ns: {text}"


def test_days_that_have_not_begun_are_ahead() -> None:
    keys = [*sums(d2026_10_30=1, d2026_10_31=1, m2026_11=1, d2026_11_02=1), a_key("2026-10-31")]
    assert days_ahead(keys, FIRST) == ("2026-10-31", "2026-11-02")
