"""Quota bars and timelines: where their parts lie, in percent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admittance.events.requests.explanation import FlavorVerdict, Room
from admittance.traces.spans import Attribute, Span
from admittance.web.views import timeline
from admittance.web.views.bars import Bar, bars, rooms_of
from admittance.web.views.timeline import FOLD_WIDTH, Axis
from admittance.web.views.words import Word

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def room(requested: int = 16, **given: object) -> Room:
    return Room(resource=GPU, requested=requested, **given)  # type: ignore[arg-type]


def parts(bar: Bar) -> tuple[float, ...]:
    return bar.own, bar.borrowed, bar.others, bar.most, bar.fits, bar.short


@pytest.mark.parametrize(
    ("given", "expected", "ticks"),
    [
        pytest.param(
            room(usage=24, nominal=16, borrowing_limit=8, potential=24, short=16),
            (40, 20, 0, 60, 0, 40),
            ["nominal 16", "at most 24"],
            id="all that is borrowed is above the nominal quota",
        ),
        pytest.param(
            room(usage=0, nominal=16, potential=80, available=40),
            (0, 0, 50, 100, 20, 0),
            ["nominal 16", "at most 80"],
            id="what other queues use lies at the end",
        ),
        pytest.param(
            room(usage=24, nominal=32, borrowing_limit=0, potential=32, available=8, short=8),
            (60, 0, 0, 80, 20, 20),
            ["nominal 32, no borrowing"],
            id="a queue that may not borrow has a single tick",
        ),
        pytest.param(
            room(nominal=0, short=16),
            (0, 0, 0, 0, 0, 100),
            ["nominal 0"],
            id="no quota is an empty bar",
        ),
        pytest.param(
            room(requested=4, taken=4, nominal=16, potential=16, available=16),
            (0, 0, 0, 100, 50, 0),
            ["nominal 16"],
            id="what earlier pod sets take is asked for, too",
        ),
    ],
)
def test_a_bar_has_the_shares_of_its_room(
    given: Room, expected: tuple[float, ...], ticks: list[str]
) -> None:
    (bar,), _ = bars([given])
    assert parts(bar) == expected
    assert [tick.text for tick in bar.ticks] == ticks


def test_bars_share_a_scale_unless_the_largest_is_far_larger() -> None:
    near = room(1, nominal=8, potential=8, available=8)
    far = room(1, nominal=9, potential=64, available=64)
    further = room(1, nominal=9, potential=65, available=65)
    (one, two), each = bars([near, far])
    assert (one.most, two.most, each) == (12.5, 100, False)
    (one, two), each = bars([near, further])
    assert (one.most, two.most, each) == (100, 100, True)


def test_the_resource_that_is_short_is_drawn_and_the_others_are_a_sentence() -> None:
    cpu = Room(resource="cpu", requested=160_000, available=200_000, nominal=200_000)
    verdicts = [
        FlavorVerdict(pod_set="main", flavor="a", rooms=(cpu, room(nominal=8, short=8))),
        FlavorVerdict(pod_set="main", flavor="b", rooms=(cpu, room(nominal=32)), fits=True),
    ]
    shown = rooms_of(verdicts, [Word("Pending", "pending")] * 2)
    assert shown is not None
    assert (shown.unit, shown.others) == ("GPUs", "The 160 cpu fit in all 2.")
    assert [(row.name, row.short, row.fits) for row in shown.rows] == [
        ("a", "8", "8"),
        ("b", "", "16"),
    ]
    assert shown.rows[1].why == "There is room."


def test_a_workload_without_flavors_has_no_bars() -> None:
    assert rooms_of([], []) is None
    assert rooms_of([FlavorVerdict(pod_set="main", flavor="a")], [Word("x", "off")]) is None


# The axis. ------------------------------------------------------------------------------


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_a_long_time_without_a_change_is_folded() -> None:
    axis = Axis(at(0), at(1000), at(990), [at(10), at(900), at(990)])
    (fold,) = axis.folds
    assert (fold.width, fold.took) == (FOLD_WIDTH, "14 min 50 s")
    assert axis.x(at(900)) - axis.x(at(10)) == pytest.approx(FOLD_WIDTH, abs=0.02)


def test_the_time_that_holds_the_present_is_not_folded() -> None:
    assert Axis(at(0), at(1000), at(500), [at(10)]).folds == ()


def test_an_axis_of_one_moment_and_a_clock_that_went_back_have_positions() -> None:
    axis = Axis(at(0), at(0), at(-50), [])
    assert axis.now == at(0)
    assert (axis.x(at(-1)), axis.x(at(60))) == (0, 100)


@given(
    changes=st.lists(st.floats(0, 10_000), max_size=20),
    present=st.floats(0, 10_000),
    asked=st.lists(st.floats(-100, 11_000), min_size=2, max_size=10),
)
def test_positions_follow_time(changes: list[float], present: float, asked: list[float]) -> None:
    axis = Axis(at(0), at(10_000), at(present), map(at, changes))
    found = [axis.x(at(seconds)) for seconds in sorted(asked)]
    assert found == sorted(found)
    assert all(0 <= x <= 100 for x in found)
    assert all(fold.width == FOLD_WIDTH for fold in axis.folds)
    assert not any(fold.x < axis.x(at(present)) < fold.end for fold in axis.folds)


# Lanes. ---------------------------------------------------------------------------------


def span(name: str, start: float, end: float | None, parent: str = "root", **given: str) -> Span:
    attributes: dict[str, Attribute] = {f"admittance.{key}": text for key, text in given.items()}
    return Span(
        name=name,
        trace_id="t",
        span_id=f"{name}-{start}",
        parent_id=parent,
        start=at(start),
        end=None if end is None else at(end),
        attributes=attributes,
    )


def root(end: float | None = None) -> Span:
    whole = span("workload", 0, end, parent="", workload="w")
    return Span(
        name="workload",
        trace_id="t",
        span_id="root",
        start=whole.start,
        end=whole.end,
        attributes=whole.attributes,
    )


def lanes(*spans: Span, now: float = 100) -> list[str]:
    chart = timeline.build(spans, at(now))
    assert chart is not None
    return [lane.name for lane in chart.lanes]


def test_a_workload_without_facts_has_no_timeline() -> None:
    assert timeline.build([], NOW) is None


def test_phases_are_lanes_and_checks_stand_below_the_reservation() -> None:
    assert lanes(
        root(),
        span("queue", 0, 1),
        span("reservation", 1, 30),
        span("check budget", 1, 10),
        span("run", 30, None),
    ) == ["Queued", "Reserved", "budget", "Running"]


def test_a_requeue_at_once_is_no_backoff() -> None:
    assert lanes(root(), span("queue", 0, 1), span("requeue", 1, 1)) == ["Queued"]
    assert lanes(root(), span("queue", 0, 1), span("requeue", 1, 9)) == ["Queued", "Backoff"]


def test_each_variant_is_a_lane() -> None:
    variant = span("variant spot", 0, None)
    inside = span("queue", 0, None, parent=variant.span_id)
    assert lanes(root(), variant, inside) == ["Queued", "spot"]


def test_attempts_that_are_close_share_a_ring() -> None:
    checks = [span("check budget", start, start + 1) for start in (0, 1, 2, 500)]
    chart = timeline.build([root(), span("reservation", 0, None), *checks], at(1000))
    assert chart is not None
    assert [ring.text for ring in chart.lanes[1].rings] == ["1\u20133", "4"]


def test_an_event_of_no_time_is_still_seen() -> None:
    chart = timeline.build([root(), span("run", 50, 50)], at(100))
    assert chart is not None
    assert chart.lanes[0].bars[0].width == timeline.LEAST_WIDTH


def test_words_stand_in_a_bar_only_if_they_fit() -> None:
    chart = timeline.build([root(), span("queue", 0, 3), span("run", 3, None)], at(100))
    assert chart is not None
    queued, running = (lane.bars[0] for lane in chart.lanes)
    assert (queued.label, running.label) == ("", "1 min 37 s")


def test_the_next_attempt_is_drawn_after_the_present() -> None:
    spans = [root(), span("requeue", 0, None)]
    chart = timeline.build(spans, at(60), due=at(90))
    assert chart is not None and chart.now is not None and chart.due is not None
    assert chart.now < chart.due == 100
    assert "until now" in chart.desc
    past = timeline.build(spans, at(60), past=True)
    assert past is not None and "until then" in past.desc
    far = timeline.build(spans, at(60), due=at(9000))
    assert far is not None and far.due is None


def test_a_workload_that_has_ended_has_no_present() -> None:
    chart = timeline.build([root(50), span("run", 0, 50)], at(1000))
    assert chart is not None
    assert (chart.now, chart.due) == (None, None)
