"""Which tree is played next, and how long a forecast counts."""

from __future__ import annotations

from math import inf

from admittance.forecast.answers import (
    AGE_MAX,
    ASKED_SECONDS,
    FRESH_SECONDS,
    PAUSE_FACTOR,
    Answers,
    Forecasts,
    Turn,
)
from admittance.forecast.rows import Holding, Source
from admittance.forecast.run_times import RunTimes


def made(at: float) -> Forecasts:
    return Forecasts(at, {}, ())


def test_without_a_question_nothing_is_played() -> None:
    answers = Answers()
    assert answers.turn(0) == Turn(None, inf)
    answers.ask("a", 0)
    assert answers.turn(0) == Turn("a", 0)
    assert answers.turn(ASKED_SECONDS + 1) == Turn(None, inf)


def test_a_forecast_is_made_again_when_it_is_no_longer_fresh() -> None:
    answers = Answers()
    answers.ask("a", 0)
    answers.made("a", made(0), 0.01, 0)
    assert answers.turn(1) == Turn(None, FRESH_SECONDS)
    assert answers.turn(FRESH_SECONDS) == Turn("a", FRESH_SECONDS)


def test_after_a_long_play_no_tree_is_played_for_a_while() -> None:
    answers = Answers()
    answers.ask("a", 0)
    answers.made("a", made(0), 5.0, 5)
    answers.ask("b", 6)
    rest = 5 + 5 * PAUSE_FACTOR
    assert answers.turn(6) == Turn(None, rest)
    answers.ask("a", rest)
    assert answers.turn(rest) == Turn("b", rest), "it has no forecast yet"


def test_an_old_forecast_is_not_given() -> None:
    answers = Answers()
    answers.made("a", made(0), 0.0, 0)
    assert answers.get("a", AGE_MAX) == made(0)
    assert answers.oldest(AGE_MAX) == AGE_MAX
    assert answers.get("a", AGE_MAX + 1) is None
    assert answers.oldest(AGE_MAX) == 0


def test_a_clock_that_went_back_stops_no_play() -> None:
    answers = Answers()
    answers.made("a", made(1e6), 100.0, 1e6)
    answers.ask("a", 0)
    assert answers.turn(0) == Turn("a", 0)
    assert answers.get("a", 0) is None


def test_why_there_is_no_start_is_computed_once_for_each_forecast() -> None:
    run_times = RunTimes()
    holding = [Holding(("ns", "h"), "a", (), 0, Source("a"))]
    first = Forecasts(0, {}, holding)
    assert first.why_not_found(run_times).startswith("1 workload that holds quota has no time")
    run_times.add(Source("a"), 60, 0)
    assert first.why_not_found(run_times).startswith("1 workload that holds quota has no time")
    assert Forecasts(1, {}, holding).why_not_found(run_times).startswith("it does not start within")
