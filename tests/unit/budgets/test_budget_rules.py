"""Windows, accounts and weights of budgets, and the verdict on one workload, by tables."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest

from admittance.budgets.holders import holder_of
from admittance.budgets.rules import BudgetWindow, moment, number, window_of
from admittance.budgets.verdicts import Account, Answer, answer
from admittance.usage.summary import Summary, SummaryKey, shares_of
from support.builders import NOON
from unit.budgets.budgeted import GPU, HOUR, a_holder, rules

WEEK = 7 * 86_400


def day(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("kind", "now", "begin", "end", "name", "periods"),
    [
        ("Day", "2026-11-27T23:59:59", "2026-11-27", "2026-11-28", "today", 1),
        ("Day", "2026-11-28T00:00:00", "2026-11-28", "2026-11-29", "today", 1),
        ("Week", "2026-11-27T12:00:00", "2026-11-23", "2026-11-30", "this week", 7),
        ("Week", "2026-11-30T00:00:00", "2026-11-30", "2026-12-07", "this week", 7),
        ("Month", "2026-12-31T12:00:00", "2026-12-01", "2027-01-01", "this month", 1),
        ("Month", "2026-02-01T00:00:00", "2026-02-01", "2026-03-01", "this month", 1),
        ("Year", "2026-12-31T12:00:00", "2026-01-01", "2027-01-01", "this year", 12),
    ],
)
def test_a_window_begins_at_midnight_in_utc(
    kind: str, now: str, begin: str, end: str, name: str, periods: int
) -> None:
    window = window_of(kind, datetime.fromisoformat(now).replace(tzinfo=UTC))
    assert window[:3] == (day(begin), day(end), name)
    assert len(window.periods) == periods


PRICES = [
    {"resource": "gpu", "perHour": "2.5"},
    {"resource": "gpu", "flavor": "spot", "perHour": 1},
    {"resource": "memory", "perHour": "0.01", "per": "1Gi"},
    {"resource": "cpu", "perHour": "0.1"},
]


@pytest.mark.parametrize(
    ("spec", "flavor", "amounts", "per_hour"),
    [
        ({"unit": "cpu-hours"}, "default", {"cpu": "500m", GPU: "2"}, Fraction(1, 2)),
        ({"unit": "cpu-seconds"}, "default", {"cpu": "2"}, 7200),
        ({"unit": "gpu-hours"}, "default", {"cpu": "8", GPU: "2", "amd.com/gpu": "1"}, 3),
        ({"unit": "gib-hours"}, "default", {"memory": "3Gi"}, 3),
        ({"unit": "cost", "prices": PRICES}, "default", {GPU: "2", "cpu": "1"}, Fraction("5.1")),
        ({"unit": "cost", "prices": PRICES}, "spot", {GPU: "2"}, 2),
        ({"unit": "cost", "prices": PRICES}, "spot", {"memory": "2Gi"}, Fraction("0.02")),
        ({"unit": "cost", "prices": PRICES}, "spot", {"example.com/fpga": "1"}, 0),
    ],
)
def test_an_amount_counts_by_the_unit_or_the_prices(
    spec: Any, flavor: str, amounts: dict[str, str], per_hour: Any
) -> None:
    holder = holder_of(a_holder("w", amounts=amounts, flavor=flavor))
    assert holder is not None
    assert rules(**spec).rate(holder.run.amounts) * 3600 == per_hour


@pytest.mark.parametrize(
    ("per", "account"),
    [("ClusterQueue", "cq"), ("LocalQueue", "ns/lq"), ("Namespace", "ns"), ("User", "ada")],
)
def test_runs_and_sums_count_for_the_same_account(per: str, account: str) -> None:
    budget = rules(per=per, limit=3, limits={account: 7})
    holder = holder_of(a_holder("w"))
    assert holder is not None
    run = holder.run._replace(until=holder.run.since + 3600)
    assert budget.account_of(run) == account
    assert (budget.limit_of(account), budget.limit_of("other")) == (7, 3)
    summaries: dict[SummaryKey, Summary] = {}
    for about, rows in shares_of(run):
        summaries[about] = Summary()
        for row, counts in rows:
            summaries[about].add(row, counts)
    # The month of the day is not part of the window.
    assert budget.used(summaries, window_of("Day", NOON)) == {account: 1}
    assert budget.used(summaries, window_of("Day", NOON - 24 * HOUR)) == {}


@pytest.mark.parametrize(
    ("fields", "remaining", "ends", "ahead"),
    [
        ({}, 3600, None, 3600),
        ({"spent": 600}, 3000, None, 3000),
        ({"spent": 4000}, 0, None, 0),
        ({"limit": None}, None, None, 0),
        ({"admitted": NOON}, 3600, 3600, 3000),
        ({"admitted": NOON - HOUR}, 3600, 0, 0),
        ({"admitted": NOON, "spent": 3300}, 300, 300, 0),
        ({"admitted": NOON, "limit": None}, None, None, 0),
        ({"admitted": NOON, "stopping": True}, 3600, -int(NOON.timestamp()), 0),
    ],
)
def test_a_time_limit_is_charged_as_far_as_it_is_left(
    fields: Any, remaining: int | None, ends: int | None, ahead: int
) -> None:
    holder = holder_of(a_holder("w", **fields))
    assert holder is not None
    noon = int(NOON.timestamp())
    assert (holder.remaining, holder.ends) == (remaining, None if ends is None else noon + ends)
    assert holder.seconds_ahead(noon + 600) == ahead
    assert holder.waits is not bool(fields.get("admitted") or fields.get("stopping"))


@pytest.mark.parametrize("fields", [{"reserved": None}, {"role": "parent"}])
def test_workloads_without_quota_of_their_own_hold_nothing(fields: Any) -> None:
    assert holder_of(a_holder("w", **fields)) is None


NOVEMBER = window_of("Month", datetime(2026, 11, 27, tzinfo=UTC))
USED = "team-a has used 92 of 100 gpu-hours this month"


@pytest.mark.parametrize(
    ("used", "ahead", "hours", "window", "expected"),
    [
        (92, 0, 8, NOVEMBER, Answer("Ready", f"{USED}; this job may use 8")),
        (92, 0, 9, NOVEMBER,
         Answer("Retry", f"{USED}; this job may use 9; asked again on 2026-12-01", 4 * 86_400)),
        (92, 8, 1, NOVEMBER,
         Answer("Retry", f"{USED}, and its jobs may use 8 more; this job may use 1; asked again "
                "on 2026-12-01", 4 * 86_400)),
        (92, 0, 101, NOVEMBER,
         Answer("Retry", f"{USED}; this job may use 101, more than the whole budget; asked again "
                "on 2026-12-01", 4 * 86_400)),
        (92, 0, None, NOVEMBER,
         Answer("Ready", f"{USED}; this job has no time limit, so it may pass the budget")),
        (92, 8, None, NOVEMBER,
         Answer("Retry", f"{USED}, and its jobs may use 8 more; this job has no time limit; asked "
                "again on 2026-12-01", 4 * 86_400)),
        (Fraction("92.004"), Fraction("0.004"), Fraction("8.004"), NOVEMBER,
         Answer("Ready", f"{USED}; this job may use 8")),
        (Fraction("92.006"), 0, 8, NOVEMBER,
         Answer("Retry", "team-a has used 92.01 of 100 gpu-hours this month; this job may use 8; "
                "asked again on 2026-12-01", 4 * 86_400)),
        (92, 9, 0, NOVEMBER,
         Answer("Ready", f"{USED}, and its jobs may use 9 more; this job uses none")),
        (92, 0, 9, NOVEMBER._replace(end=day("2027-01-01")),
         Answer("Retry", f"{USED}; this job may use 9; asked again on 2026-12-04", WEEK)),
    ],
)  # fmt: skip
def test_a_verdict_names_the_numbers(
    used: Any, ahead: Any, hours: Any, window: BudgetWindow, expected: Answer
) -> None:
    rate = Fraction(1, 3600) if hours != 0 else Fraction(0)
    found = answer(
        rules(unit="gpu-hours", limit=100, window="Month"),
        window,
        Account("team-a", Fraction(used), Fraction(ahead)),
        rate=rate,
        seconds=None if hours is None else int(hours * 3600),
        now=day("2026-11-27"),
        longest=WEEK,
    )
    assert found == expected


@pytest.mark.parametrize(
    ("spec", "account", "text"),
    [
        ({"limits": {"a": 1}}, "b", "no budget is set for b"),
        ({"limits": {"a": 1}, "per": "User"}, "", "no budget is set for jobs without a user"),
        ({"limit": 1, "per": "User"}, "",
         "jobs without a user have used 2 of 1 cpu-hours this month; this job may use 1; asked "
         "again at 2026-11-27T00:01:00Z"),
        ({"limit": 1, "unit": "cost", "currency": "EUR"}, "a",
         "a has used 2 of 1 EUR this month; this job may use 1; asked again at "
         "2026-11-27T00:01:00Z"),
        ({"limit": 0, "unit": "cost"}, "a",
         "a has used 2 of 0 cost this month; this job may use 1, more than the whole budget; "
         "asked again at 2026-11-27T00:01:00Z"),
    ],
)  # fmt: skip
def test_accounts_and_units_are_named(spec: Any, account: str, text: str) -> None:
    found = answer(
        rules(**spec, maxDelaySeconds=60),
        NOVEMBER,
        Account(account, Fraction(2)),
        rate=Fraction(1, 3600),
        seconds=3600,
        now=day("2026-11-27") - 0.5,
        longest=WEEK,
    )
    assert found.message == text
    assert found.delay in (None, 61)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(Fraction(1, 3), "0.33"), (Fraction(12), "12"), (Fraction(3, 2), "1.5"), (Fraction(0), "0"),
     (Fraction(1, 500), "0"), (Fraction(123456789, 10), "12345678.9")],
)  # fmt: skip
def test_numbers_have_at_most_two_decimals(amount: Fraction, text: str) -> None:
    assert number(amount) == text


def test_a_time_that_is_not_midnight_is_named_to_the_second() -> None:
    assert moment(day("2026-12-01")) == "on 2026-12-01"
    assert moment(day("2026-12-01") + 1) == "at 2026-12-01T00:00:01Z"
