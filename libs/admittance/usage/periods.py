"""Days and months, in UTC, and how a span of time is split over them."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

Span: TypeAlias = Literal["day", "month"]
DAY_SECONDS: Final = 86_400
DAYS_MAX: Final = 3_660
"""The most days of one run that are counted, its last ones: the clock of a machine may have been
wrong by decades."""


class Period(NamedTuple):
    """A day, such as ``2026-11-26``, or a month, such as ``2026-11``."""

    span: Span
    name: str


class Part(NamedTuple):
    """A part of a run. ``seconds``: how many seconds of the run are in the period; ``last``:
    whether the run ends in the period."""

    period: Period
    seconds: int
    last: bool


@lru_cache(maxsize=16_384)
def _names(day: int) -> tuple[Period, Period]:
    """The day and its month. ``day``: days since 1970."""
    text = date.fromordinal(day + _EPOCH).isoformat()
    return Period("day", text), Period("month", text[:7])


_EPOCH: Final = date(1970, 1, 1).toordinal()


def parts(since: int, until: int) -> Iterator[Part]:
    """The parts of the time from ``since`` to ``until`` by day, and by month. A run that ends at
    midnight ends in the day before. A run without a second has one part of each."""
    last = max(since, until - 1) // DAY_SECONDS
    first = max(since // DAY_SECONDS, last - DAYS_MAX + 1)
    in_month = 0
    for day in range(first, last + 1):
        start = day * DAY_SECONDS
        seconds = min(until, start + DAY_SECONDS) - max(since, start)
        name, month = _names(day)
        yield Part(name, seconds, day == last)
        in_month += seconds
        if day == last or _names(day + 1)[1] != month:
            yield Part(month, in_month, day == last)
            in_month = 0


def periods_between(first: date, last: date) -> list[Period]:
    """The fewest periods that together are the days from ``first`` to ``last``, both included:
    whole months, and single days beside them."""
    periods: list[Period] = []
    day = first
    while day <= last:
        _, days = monthrange(day.year, day.month)
        if day.day == 1 and (month_end := day.replace(day=days)) <= last:
            periods.append(Period("month", day.isoformat()[:7]))
            day = month_end
        else:
            periods.append(Period("day", day.isoformat()))
        day += timedelta(days=1)
    return periods


def days_between(first: date, last: date) -> list[date]:
    """The days from ``first`` to ``last``, both included."""
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def day_of(time: datetime) -> date:
    """The day of a time, in UTC."""
    return time.astimezone(UTC).date()


def first_second(day: date) -> int:
    """The first second of a day, since 1970."""
    return (day.toordinal() - _EPOCH) * DAY_SECONDS
