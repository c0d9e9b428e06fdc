"""The charts of the last 24 hours on the page of queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from admittance.events.requests.queues import DayOfNode, LastDay
from admittance.quota.cell import UNLIMITED
from admittance.web.views import queues
from admittance.web.views.sparks import CHARTS_MAX, Day, Now, Spark, day
from unit.web.test_queues_and_pending import GPU, a_tree, queue

NOW = datetime(2026, 1, 2, 11, 40, tzinfo=UTC)
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
MEANING = "Waiting and use of the last 24 hours: means of an hour and of half an hour."


def at(values: dict[int, float]) -> tuple[float | None, ...]:
    """Half hours with these values, counted from the present one: 0, -1 and so on."""
    return tuple(values.get(place - 47) for place in range(48))


def made(
    waiting: dict[int, float], used: dict[int, int] | None = None, *, nominal: int = 8
) -> tuple[Day, Spark | None, Spark | None]:
    """The charts of the queue ``q``."""
    whole = tuple((used or {}).get(place - 47) for place in range(48))
    of = DayOfNode(name="q", waiting=at(waiting), used=whole)
    row = Now(id="queue-q", name="q", is_cohort=False, waiting=1, used=4, nominal=nominal)
    last = LastDay(begin=BEGIN, cluster_queues=(of,))
    charts = day([row], last, GPU, NOW, more=False)
    return charts, charts.waiting.get("queue-q"), charts.used.get("queue-q")


@pytest.mark.parametrize(
    ("waiting", "hours", "shape", "under"),
    [
        pytest.param({0: 4}, [None, 4], "M92 2h3.2V20H92z", "", id="one bar is the highest"),
        pytest.param({0: 4, -1: 1}, [None, 2.5], "M92 2h3.2V20H92z", "", id="a mean of two"),
        pytest.param(
            {0: 1, -2: 2},
            [2, 1],
            "M88 2h3.2V20H88zM92 11h3.2V20H92z",
            "",
            id="the height is a part of the highest",
        ),
        pytest.param(
            {0: 0, -2: 900, -3: 900}, [900, 0], "M88 2h3.2V20H88z", "M92 19h3.2V20H92z", id="a zero"
        ),
        pytest.param(
            {0: 0.1, -2: 900, -3: 900},
            [900, 0.1],
            "M88 2h3.2V20H88zM92 19h3.2V20H92z",
            "",
            id="a small number is seen",
        ),
    ],
)
def test_waiting_is_a_bar_for_each_hour(
    waiting: dict[int, float], hours: list[float | None], shape: str, under: str
) -> None:
    _, bars, _ = made(waiting)
    assert bars is not None and len(bars.points) == 24
    assert (list(bars.points[-2:]), bars.shape, bars.under) == (hours, shape, under)


@pytest.mark.parametrize(
    ("used", "nominal", "shape", "dashed_at"),
    [
        pytest.param({0: 8, -1: 0}, 8, "M94 20 96 8", 8, id="the nominal quota is dashed"),
        pytest.param({0: 12, -1: 4}, 8, "M94 14 96 2", 8, id="150 % is the top"),
        pytest.param({0: 80, -1: 4}, 8, "M94 14 96 2", 8, id="what is above ends there"),
        pytest.param({0: 8}, 8, "M95 8 96 8", 8, id="one half hour is a short stretch"),
        pytest.param(
            {0: 8, -1: 8, -3: 8, -4: 8},
            8,
            "M87.8 8 89.9 8M94 8 96 8",
            8,
            id="a gap ends a line",
        ),
        pytest.param({0: 8, -1: 4}, 0, "M94 11 96 2", None, id="without quota the most is the top"),
        pytest.param(
            {0: 8, -1: 4}, UNLIMITED, "M94 11 96 2", None, id="unlimited quota has no line"
        ),
        pytest.param({0: 0, -1: 0}, 0, "M94 20 96 20", None, id="nothing was used"),
    ],
)
def test_use_is_a_line_of_half_hours(
    used: dict[int, int], nominal: int, shape: str, dashed_at: float | None
) -> None:
    _, _, line = made({0: 1}, used, nominal=nominal)
    assert line is not None
    assert (line.shape, line.dashed_at) == (shape, dashed_at)
    assert line.under.count("z") == shape.count("M")


def test_a_chart_says_its_numbers() -> None:
    _, bars, line = made({0: 2.5}, {0: 6})
    assert bars is not None and line is not None
    assert bars.label == "q: waiting in the last 24 h, now 1; highest mean of an hour 2.5"
    assert line.label == (
        "q: used in the last 24 h, now 4, highest mean of half an hour 6 GPUs; 8 are nominal"
    )


def test_a_resource_that_was_not_counted_has_no_line() -> None:
    _, bars, line = made({0: 2})
    assert bars is not None and line is None


@pytest.mark.parametrize(
    ("places", "says"),
    [
        pytest.param(range(-47, 1), "", id="a whole day"),
        pytest.param(
            range(-2, 1),
            " They begin at 10:30 UTC, with the scheduler that answers or with the first of these "
            "queues: the counts are kept in memory.",
            id="a scheduler that started this morning",
        ),
        pytest.param([*range(-47, -9), *range(-3, 1)], " Gaps were not counted.", id="a gap"),
    ],
)
def test_the_page_says_what_the_charts_lack(places: Sequence[int], says: str) -> None:
    charts, *_ = made(dict.fromkeys(places, 1.0))
    assert charts.say == MEANING + says


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(LastDay(), id="nothing is counted"),
        pytest.param(LastDay(begin=BEGIN), id="the queue is new"),
    ],
)
def test_a_page_without_counts_says_so(last: LastDay) -> None:
    row = Now(id="queue-q", name="q", is_cohort=False, waiting=0, used=0, nominal=0)
    charts = day([row], last, GPU, NOW, more=False)
    assert (charts.waiting, charts.used) == ({}, {})
    assert charts.say.startswith("The last 24 hours are not counted yet")


def test_queues_and_cohorts_of_one_name_have_charts_of_their_own() -> None:
    statuses, tree = a_tree()
    view = queues.build(statuses, [tree])
    rows = queues.rows_with_charts(view)
    assert [(row.id, row.waiting, row.used, row.nominal) for row in rows] == [
        ("cohort-outer", 3, 24, 40),
        ("cohort-inner", 2, 24, 16),
        ("queue-a", 2, 24, 16),
        ("queue-b", 1, 0, 16),
        ("queue-alone", 0, 0, 4),
    ]
    one = at({0: 1})
    last = LastDay(
        begin=BEGIN,
        cluster_queues=(DayOfNode(name="a", waiting=one), DayOfNode(name="inner", waiting=one)),
        cohorts=(DayOfNode(name="outer", waiting=one),),
    )
    charts = queues.with_day(view, rows, last, NOW).day
    assert charts is not None and set(charts.waiting) == {"cohort-outer", "queue-a"}


def test_only_the_first_rows_have_charts() -> None:
    view = queues.build([queue(f"q-{n:03}", 0, 1) for n in range(CHARTS_MAX + 1)], [])
    rows = queues.rows_with_charts(view)
    full = at(dict.fromkeys(range(-47, 1), 0.0))
    of = tuple(DayOfNode(name=row.name, waiting=full) for row in rows)
    charts = queues.with_day(view, rows, LastDay(begin=BEGIN, cluster_queues=of), NOW).day
    assert charts is not None and len(charts.waiting) == CHARTS_MAX
    assert charts.say == f"{MEANING} Only the first {CHARTS_MAX} rows have them."
