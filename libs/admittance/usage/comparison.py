"""Compares stored sums with sums that are computed anew from the log.

Only days that are wholly on the log are compared: older days stay as they are, since nothing could
compute them again. A month is the sum of its days, unless an older one of them cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Final

from admittance.usage.periods import Period, Span, day_of
from admittance.usage.runs import OTHERS
from admittance.usage.summary import Counts, RowKey, Summary, SummaryKey

SKEW_DAYS: Final = 1
"""By how many days the clock that dates a run may be ahead of the clock that dates the log."""
Summaries = Mapping[SummaryKey, Summary]


def first_whole_day(oldest: datetime) -> date:
    """The first day of which all runs are on the log. ``oldest``: the time of its first message."""
    return day_of(oldest) + timedelta(days=1 + SKEW_DAYS)


def days_ahead(keys: Iterable[SummaryKey], today: date) -> tuple[str, ...]:
    """The days of sums that have not begun."""
    days = {key.period.name for key in keys if key.period.span == "day"}
    return tuple(sorted(day for day in days if day > today.isoformat()))


def compared_sums(stored: Summaries, anew: Summaries, first: date) -> dict[SummaryKey, Summary]:
    """What the sums must be that differ from the log. ``stored``: all of the first day's month and
    of later months; ``anew``: the sums of the log; ``first``: the first day that is wholly on the
    log."""
    begin = first.isoformat()
    days = _of_span("day", stored)
    old = {key: each for key, each in days.items() if key.period.name >= begin}
    new = {key: each for key, each in _of_span("day", anew).items() if key.period.name >= begin}
    wrong = {key: new.get(key, Summary()) for key in _differing(old, new)}
    lost = {_month(key) for key, each in days.items() if key not in old and not each.rows}
    months: dict[SummaryKey, Summary] = {}
    for key, summary in sorted((days | wrong).items()):
        month = months.setdefault(_month(key), Summary())
        for row, counts in summary.rows.items():
            month.add(row, counts)
    differing = _differing(_of_span("month", stored), months)
    return wrong | {key: months.get(key, Summary()) for key in differing if key not in lost}


def _of_span(span: Span, summaries: Summaries) -> dict[SummaryKey, Summary]:
    return {key: each for key, each in summaries.items() if key.period.span == span}


def _month(day: SummaryKey) -> SummaryKey:
    return day._replace(period=Period("month", day.period.name[:7]))


def _differing(stored: Summaries, computed: Summaries) -> list[SummaryKey]:
    empty = Summary()
    keys = sorted(stored.keys() | computed.keys())
    return [key for key in keys if not _same(stored.get(key, empty), computed.get(key, empty))]


def _same(one: Summary, other: Summary) -> bool:
    if _filled(one) == _filled(other):
        return True
    # Which users a full summary counts together depends on the order in which they came.
    full = any(row.user == OTHERS for summary in (one, other) for row in summary.rows)
    return full and total_of(one) == total_of(other)


def _filled(summary: Summary) -> dict[RowKey, Counts]:
    return {row: counts for row, counts in summary.rows.items() if not counts.is_empty()}


def total_of(summary: Summary) -> Counts:
    """The sum of all rows. Each run is counted once, also with several flavors."""
    total = Counts()
    for row, counts in summary.rows.items():
        total.add(Counts(amounts=counts.amounts) if row.flavor else counts)
    return total


def difference_text(about: SummaryKey, stored: Summary, computed: Summary) -> str:
    """How the stored sum differs, such as ``2026-11-03, gpus, team-a: runs 4 (was 5)``. Amounts are
    seconds times accounting units."""
    where = f"{about.period.name}, {about.cluster_queue}, {about.namespace}"
    was, now = _numbers(stored), _numbers(computed)
    parts = [
        f"{name} {now.get(name, 0):,} (was {was.get(name, 0):,})"
        for name in dict.fromkeys([*was, *now])
        if was.get(name, 0) != now.get(name, 0)
    ]
    return f"{where}: {', '.join(parts) or 'other users, queues or flavors'}"


def _numbers(summary: Summary) -> dict[str, int]:
    total = total_of(summary)
    names: Iterable[str] = ("runs", "finished", "failed", "evicted", "wait_seconds")
    return {**{name: getattr(total, name) for name in names}, **dict(sorted(total.amounts.items()))}
