"""Sums by words and labels, and as messages."""

from __future__ import annotations

from datetime import date

import pytest

from admittance.events.requests.reading import UsageSum
from admittance.usage import summary as summaries
from admittance.usage.periods import Period, Span
from admittance.usage.report import (
    UsageReport,
    added,
    decimal_of,
    grouping,
    label_keys,
    periods_of,
    span_of,
    sum_of,
)
from admittance.usage.runs import OTHERS
from admittance.usage.summary import Counts, RowKey, Summary, SummaryKey

ABOUT = SummaryKey(Period("day", "2026-11-26"), "cq", "ns")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("week",),
            '"week" is not one of cluster-queue, namespace, queue, user, flavor, day, month, '
            "label:KEY",
        ),
        (("",), '"" is not one of'),
        (("user", "flavor", "user"), "user is named twice"),
        (("label:a", "label:a"), "label:a is named twice"),
        (("label:",), '"label:": '),
        (("label:a b",), '"label:a b": '),
    ],
)
def test_wrong_words_are_refused_with_a_sentence(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError) as error:
        grouping(words)
    assert str(error.value).startswith(said)


def test_words_keep_their_order_and_labels_their_keys() -> None:
    words = ("label:b", "user", "label:example.com/a")
    assert grouping(words) == words
    assert label_keys(words) == ("b", "example.com/a")


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ((), ["2026-01-31", "2026-02", "2026-03-01"]),
        (("month",), ["2026-01-31", "2026-02", "2026-03-01"]),
        (("user", "day"), ["2026-01-31", "2026-02-01", "2026-02-28", "2026-03-01"]),
    ],
)
def test_a_report_by_day_adds_each_day(by: tuple[str, ...], names: list[str]) -> None:
    periods = periods_of(by, date(2026, 1, 31), date(2026, 3, 1))
    assert [period.name for period in periods if period.name in names] == names
    assert len(periods) == (30 if "day" in by else 3)
    assert span_of(by) == ("day" if "day" in by else "month")


def test_sums_by_month_join_its_days() -> None:
    by_month, by_day = UsageReport(("month",)), UsageReport(("day", "user"))
    for name, runs in (("2026-01-30", 1), ("2026-01-31", 2), ("2026-02", 4)):
        span: Span = "day" if len(name) == 10 else "month"
        about = ABOUT._replace(period=Period(span, name))
        for report in (by_month, by_day):
            report.add(about, [(RowKey("lq", "ada", ""), Counts(runs=runs))])
    assert by_month.result() == [(("2026-01",), Counts(runs=3)), (("2026-02",), Counts(runs=4))]
    assert [group for group, _ in by_day.result()][:2] == [
        ("2026-01-30", "ada"),
        ("2026-01-31", "ada"),
    ]


def test_a_report_has_the_labels_of_its_rows_where_they_were_asked_for() -> None:
    report = UsageReport(("label:b", "user", "label:a"))
    rows = [
        (RowKey("lq", "ada", "", ("x", "y")), Counts(runs=1)),
        (RowKey("lq", "ada", "spot", ("x", "y")), Counts(runs=1, amounts={"cpu": 5})),
        (RowKey("lq", "ada", "", ("x", "")), Counts(runs=2)),
    ]
    assert report.add(ABOUT, rows) == {("x", "ada", "y"), ("x", "ada", "")}
    assert report.result() == [
        (("x", "ada", ""), Counts(runs=2)),
        (("x", "ada", "y"), Counts(runs=1, amounts={"cpu": 5})),
    ]


def test_a_full_summary_counts_further_labels_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "ROWS_MAX", 1)
    summary = Summary()
    for value in "abc":
        summary.add(RowKey("lq", "ada", "", (value, value)), Counts(runs=1))
    others = RowKey("lq", OTHERS, "", (OTHERS, OTHERS))
    assert {key: row.runs for key, row in summary.rows.items()} == {
        RowKey("lq", "ada", "", ("a", "a")): 1,
        others: 2,
    }


@pytest.mark.parametrize(
    ("resource", "used", "text"),
    [
        ("cpu", 0, "0"),
        ("cpu", 1500, "1.5"),
        ("cpu", 20_000, "20"),
        ("cpu", 1_001, "1.001"),
        ("memory", 1500, "1500"),
    ],
)
def test_an_amount_is_a_decimal_number(resource: str, used: int, text: str) -> None:
    assert decimal_of(resource, used) == text


def test_sums_of_one_group_are_added() -> None:
    counts = Counts(1, 2, 3, 4, 5, {"gpu": 7, "cpu": 500})
    ended = [sum_of(("b",), counts), sum_of(("a",), Counts(runs=1))]
    more = [UsageSum(group=("b",), running=2, resource_seconds={"cpu": "0.5", "tpu": "1"})]
    assert added(ended, [*more, UsageSum(group=("c",), running=1)]) == [
        UsageSum(group=("a",), runs=1),
        UsageSum(
            group=("b",),
            runs=1,
            finished=2,
            failed=3,
            evicted=4,
            running=2,
            wait_seconds=5,
            resource_seconds={"cpu": "1.0", "gpu": "7", "tpu": "1"},
        ),
        UsageSum(group=("c",), running=1),
    ]
