"""The last 24 hours of the rows of the page of queues, as small charts of 96 by 20 units.

How many workloads waited is 24 bars of an hour, and each row has a scale of its own. The use is a
line of 48 half hours from 0 to 150 % of the nominal quota of now. What was not counted is left
out: it is no 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from admittance.events.requests.queues import LastDay
from admittance.quota.cell import UNLIMITED
from admittance.web.views.words import clock_time, number, unit

WIDTH: Final = 96
FLOOR: Final = 20.0
BAR_MAX: Final = 18.0
LINE_MAX: Final = 18.0
FULL: Final = 1.5
"""How much of the nominal quota the highest point of a line is."""
CHARTS_MAX: Final = 100
"""The most rows of a page with charts."""
HALF_HOUR: Final = timedelta(minutes=30)


class Spark(msgspec.Struct, frozen=True, kw_only=True):
    """``points``: the numbers, the oldest first; None: not counted. ``shape``: the path of the bars
    or the line; ``under``: of the area below the line, or of bars that are 0. ``dashed_at``: where
    the nominal quota is, if there is one."""

    label: str
    points: tuple[float | None, ...]
    shape: str
    under: str
    dashed_at: float | None = None


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """``waiting`` and ``used``: the charts of cohorts and queues by the ids of their rows. ``say``:
    what the charts are, and what they lack."""

    say: str
    waiting: dict[str, Spark]
    used: dict[str, Spark]


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """What a row has now, beside which its last 24 hours stand: the amounts of the resource in
    accounting units."""

    id: str
    name: str
    is_cohort: bool
    waiting: int
    used: int
    nominal: int


def day(rows: Sequence[Now], last: LastDay, resource: str, now: datetime, *, more: bool) -> Day:
    """The charts of the rows. ``more``: there are rows without charts."""
    cohorts = {each.name: each for each in last.cohorts}
    queues = {each.name: each for each in last.cluster_queues}
    waiting: dict[str, Spark] = {}
    used: dict[str, Spark] = {}
    known: list[int] = []
    for row in rows:
        of = (cohorts if row.is_cohort else queues).get(row.name)
        if of is None:
            continue
        known += _counted(of.waiting)
        if any(point is not None for point in of.waiting):
            waiting[row.id] = _bars(row, tuple(_hours(of.waiting)))
        if any(point is not None for point in of.used):
            used[row.id] = _line(row, of.used, resource)
    return Day(say=_say(last, known, now, more=more), waiting=waiting, used=used)


def _say(last: LastDay, known: Sequence[int], now: datetime, *, more: bool) -> str:
    if last.begin is None or not known:
        return (
            "The last 24 hours are not counted yet: a scheduler counts once a minute from its "
            "start on."
        )
    text = "Waiting and use of the last 24 hours: means of an hour and of half an hour."
    if first := min(known):
        since = clock_time(last.begin + HALF_HOUR * first, now, seconds=False)
        text += (
            f" They begin at {since} UTC, with the scheduler that answers or with the first of "
            "these queues: the counts are kept in memory."
        )
    if set(range(first, max(known))) - set(known):
        text += " Gaps were not counted."
    return text + (f" Only the first {CHARTS_MAX} rows have them." if more else "")


def _counted(points: Iterable[float | None]) -> list[int]:
    return [place for place, point in enumerate(points) if point is not None]


def _hours(points: Sequence[float | None]) -> Iterator[float | None]:
    """The means of each two half hours, as far as they were counted."""
    for place in range(0, len(points), 2):
        known = [point for point in points[place : place + 2] if point is not None]
        yield round(sum(known) / len(known), 2) if known else None


def _bars(row: Now, hours: tuple[float | None, ...]) -> Spark:
    most = max(point for point in hours if point is not None)
    step = WIDTH / len(hours)
    shape: list[str] = []
    none: list[str] = []
    for place, point in enumerate(hours):
        if point is not None:
            # A bar of a small number is still seen.
            height = max(1.0, BAR_MAX * point / most) if point else 1.0
            bar = f"M{_short(place * step)} {_short(FLOOR - height)}h{_short(step * 0.8)}V20H"
            (shape if point else none).append(f"{bar}{_short(place * step)}z")
    return Spark(
        label=f"{row.name}: waiting in the last 24 h, now {row.waiting:,}; highest mean of an hour "
        + f"{most:,.2f}".rstrip("0").rstrip("."),
        points=hours,
        shape="".join(shape),
        under="".join(none),
    )


def _line(row: Now, points: tuple[int | None, ...], resource: str) -> Spark:
    most = max(point for point in points if point is not None)
    has_nominal = 0 < row.nominal < UNLIMITED
    top = row.nominal * FULL if has_nominal else max(most, 1)
    step = WIDTH / (len(points) - 1)
    shape, under = "", ""
    for begin, end in _runs(points):
        heights = [LINE_MAX * min(1.0, (points[n] or 0) / top) for n in range(begin, end)]
        places = [n * step for n in range(begin, end)]
        if end - begin == 1:
            # A single half hour is a short stretch, since a point has no length.
            places = [max(0.0, places[0] - step / 2), min(WIDTH, places[0] + step / 2)]
            heights *= 2
        line = " ".join(
            f"{_short(x)} {_short(FLOOR - y)}" for x, y in zip(places, heights, strict=True)
        )
        shape += f"M{line}"
        under += f"M{_short(places[0])} 20 {line} {_short(places[-1])} 20z"
    amounts = f"now {number(resource, row.used)}, highest mean of half an hour "
    amounts += f"{number(resource, most)} {unit(resource)}"
    if has_nominal:
        amounts += f"; {number(resource, row.nominal)} are nominal"
    return Spark(
        label=f"{row.name}: used in the last 24 h, {amounts}",
        points=points,
        shape=shape,
        under=under,
        dashed_at=round(FLOOR - LINE_MAX / FULL, 2) if has_nominal else None,
    )


def _runs(points: Sequence[float | None]) -> Iterator[tuple[int, int]]:
    """The stretches without a gap, as their first place and the place after the last one."""
    begin: int | None = None
    for place, point in enumerate((*points, None)):
        if point is not None and begin is None:
            begin = place
        elif point is None and begin is not None:
            yield begin, place
            begin = None


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
