"""Draws of run times from those of earlier workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from admittance.forecast.rows import Source
from admittance.forecast.run_times import Running, RunTimes, Sample, levels

DAY = 86_400.0
ADA = Source("q", "ada", "train.py")


def chances(*values: float) -> Callable[[], float]:
    """Returns the values one after another."""
    return iter(values).__next__


def known(*runs: tuple[Source, float]) -> RunTimes:
    found = RunTimes()
    for at, (source, seconds) in enumerate(runs):
        found.add(source, seconds, float(at))
    return found


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        (Source("q"), ["queue", "all"]),
        (Source("q", user="ada"), ["user", "queue", "all"]),
        (Source("q", script="x"), ["script", "queue", "all"]),
        (Source("q", "ada", "x", "uid"), ["array", "script", "user", "queue", "all"]),
    ],
)
def test_the_levels_of_a_source_go_from_near_to_far(source: Source, kinds: list[str]) -> None:
    assert [level[0] for level in levels(source)] == kinds


@pytest.mark.parametrize(
    ("values", "limit", "elapsed", "drawn_by", "drawn"),
    [
        ([], None, 0, [], None),
        ([], 60.0, 0, [], 60.0),
        # One value: the script is taken with probability 1/3, else farther levels.
        ([7.0], None, 0, [0.3, 0.0], 7.0),
        ([5.0, 1.0, 3.0], None, 0, [0.5, 0.0], 1.0),
        ([5.0, 1.0, 3.0], None, 0, [0.5, 0.99], 5.0),
        ([5.0, 1.0, 3.0], None, 1.0, [0.49, 0.0], 3.0),
        ([5.0, 1.0, 3.0], None, 4.9, [0.33, 0.99], 5.0),
        ([5.0, 1.0, 3.0], 2.0, 0, [0.5, 0.99], 2.0),
        # The run is longer than all that are known.
        ([5.0, 1.0, 3.0], None, 5.0, [0.5], 7.5),
        ([5.0, 1.0, 3.0], 6.0, 5.0, [0.5], 6.0),
        # The run is past its limit and has not ended yet.
        ([5.0, 1.0, 3.0], 4.0, 5.0, [0.5], 5.0),
    ],
)
def test_a_draw_is_longer_than_the_run_so_far_and_within_the_limit(
    values: Sequence[float],
    limit: float | None,
    elapsed: float,
    drawn_by: Sequence[float],
    drawn: float | None,
) -> None:
    sample = Sample(known(*((ADA, value) for value in values)), Running(), chances(*drawn_by))
    assert sample.draw(ADA, limit, elapsed) == drawn


@pytest.mark.parametrize(
    ("drawn_by", "drawn"),
    [
        ([0.66, 0.0], 10.0),  # 4 runs of the script: 4/6
        ([0.67, 0.7, 0.0], 10.0),  # 5 runs by ada: 5/7
        ([0.67, 0.72, 0.74, 0.0], 10.0),  # 6 runs of the queue: 6/8
        ([0.67, 0.72, 0.76, 0.79, 0.0], 1.0),  # all 8 runs: 8/10
        ([0.67, 0.72, 0.76, 0.81, 0.99], 60.0),  # None of the levels: the last one.
    ],
)
def test_each_level_is_taken_with_the_weight_of_its_runs(
    drawn_by: Sequence[float], drawn: float
) -> None:
    runs = [(ADA, 10.0)] * 4
    runs += [(Source("q", "ada", "eval.py"), 20.0), (Source("q", "bob", "train.py"), 30.0)]
    runs += [(Source("p", "bob"), 60.0), (Source("p", "bob"), 1.0)]
    assert Sample(known(*runs), Running(), chances(*drawn_by)).draw(ADA, None) == drawn


def test_all_elements_of_an_array_are_drawn_from_one_past_array() -> None:
    runs = [(Source("q", "ada", "", f"a{number}"), float(number)) for number in (1, 2, 2)]
    run_times = known(*runs)
    assert list(run_times.past_arrays(Source("q", "ada"))) == ["a1", "a2"]
    assert list(run_times.past_arrays(Source("q", "bob"))) == ["a1", "a2"]
    assert list(run_times.past_arrays(Source("p", "ada"))) == []
    new = Source("q", "ada", "", "new")
    # The first draw chooses the past array a2; then its level, then the value, for each element.
    sample = Sample(run_times, Running(), chances(0.9, 0.4, 0.0, 0.4, 0.0))
    assert [sample.draw(new, None), sample.draw(new, None)] == [2.0, 2.0]
    run_times.add(new, 9.0, 5.0)
    assert Sample(run_times, Running(), chances(0.3, 0.0)).draw(new, None) == 9.0


@pytest.mark.parametrize(
    ("far", "drawn_by", "drawn"),
    [
        ([], [0.4, 0.4], 10.0),
        # The run of 50 s is taken, and all known run times are shorter.
        ([], [0.4, 0.5, 0.5], 75.0),
        # A farther level has a longer one: 1 of 3 in weight.
        ([100.0], [0.4, 0.5, 0.3, 0.0], 100.0),
        ([100.0], [0.4, 0.5, 0.34, 0.0], 100.0),
        ([100.0, 40.0], [0.51, 0.51, 0.51, 0.7, 0.49], 40.0),
    ],
)
def test_a_workload_that_runs_stands_for_longer_runs(
    far: Sequence[float], drawn_by: Sequence[float], drawn: float
) -> None:
    """One run of train.py took 10 s, and one has run for 50 s."""
    run_times = known((ADA, 10.0), *((Source("p"), seconds) for seconds in far))
    sample = Sample(run_times, Running([(ADA, 50.0)]), chances(*drawn_by))
    assert sample.draw(ADA, None) == drawn


def test_only_the_last_runs_of_two_weeks_count() -> None:
    run_times = known(*((ADA, float(number)) for number in range(60)))
    level = levels(ADA)[0]
    assert list(run_times.values(level)) == [float(number) for number in range(10, 60)]
    run_times.forget(14 * DAY + 58)
    assert list(run_times.values(level)) == [58.0, 59.0]
    run_times.forget(14 * DAY + 60)
    assert list(run_times.values(level)) == []


def test_arrays_without_run_times_are_forgotten() -> None:
    run_times = RunTimes()
    run_times.add(Source("q", "ada", "", "old"), 1.0, 0.0)
    run_times.add(Source("q", "ada", "", "new"), 1.0, 100.0)
    run_times.forget(14 * DAY + 1)
    assert list(run_times.past_arrays(Source("q", "ada"))) == ["new"]
    run_times.forget(14 * DAY + 101)
    assert list(run_times.past_arrays(Source("q", "ada"))) == []
