"""Draws of run times from those of earlier workloads."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import log
from statistics import fmean, median, stdev

import pytest

from admittance.forecast.rows import Source
from admittance.forecast.run_times import Running, RunTimes, Sample, levels

DAY = 86_400.0
ADA = Source("q", "ada", "train.py")


def fixed(value: float) -> Callable[[], float]:
    """Returns the same value each time. With 0.5 the middle run time is drawn, hardly varied."""
    return lambda: value


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
    ("values", "spread"),
    [
        # Too few runs for quartiles.
        ([100.0, 100.0, 900.0], 0.6),
        ([100.0, 110.0, 121.0, 132.0, 145.0], log(132 / 110) / 1.35),
        ([100.0] * 5, 0.05),
        ([1.0, 10.0, 100.0, 1000.0, 10_000.0], 1.0),
    ],
)
def test_a_draw_varies_as_far_as_the_quartiles_are_apart(
    values: Sequence[float], spread: float
) -> None:
    width = known(*((ADA, value) for value in values)).width(levels(ADA)[0])
    assert width == pytest.approx(0.5 * spread * len(values) ** -0.2)


@pytest.mark.parametrize(
    ("values", "limit", "elapsed", "drawn"),
    [
        ([], None, 0, None),
        ([], 60.0, 0, 60.0),
        ([70.0], None, 0, 70.0),
        ([50.0, 10.0, 30.0], None, 0, 30.0),
        ([50.0, 10.0, 30.0], 20.0, 0, 20.0),
        # The run is longer than what is drawn: one of the longer ones.
        ([50.0, 10.0, 30.0], None, 40.0, 50.0),
        # The run is longer than all that are known.
        ([50.0, 10.0, 30.0], None, 60.0, 90.0),
        ([50.0, 10.0, 30.0], 70.0, 60.0, 70.0),
        # The run is past its limit and has not ended yet.
        ([50.0, 10.0, 30.0], 40.0, 60.0, 60.0),
    ],
)
def test_a_draw_is_longer_than_the_run_so_far_and_within_the_limit(
    values: Sequence[float], limit: float | None, elapsed: float, drawn: float | None
) -> None:
    sample = Sample(known(*((ADA, value) for value in values)), Running(), fixed(0.5))
    found = sample.draw(ADA, limit, elapsed)
    assert found == (drawn if drawn is None else pytest.approx(drawn, rel=0.01))


def drawn_often(
    run_times: RunTimes, source: Source, running: Running | None = None, elapsed: float = 0.0
) -> list[float]:
    chance = random.Random(1).random
    samples = [Sample(run_times, running or Running(), chance) for _ in range(200)]
    found = [sample.draw(source, None, elapsed) for sample in samples for _ in range(15)]
    return sorted(seconds for seconds in found if seconds is not None)


@pytest.mark.parametrize(
    ("source", "share"),
    [
        # Of one run of the script half the draws; of the other half one in three: 1 run in 2.
        pytest.param(Source("q", "ada", "train.py"), 0.5, id="one run of the script"),
        pytest.param(Source("q", "ada", "new.py"), 0.5, id="a new script of the user"),
        pytest.param(Source("q", "bob", "train.py"), 0.5, id="a new user of the queue"),
        pytest.param(Source("q", "ada", "new.py", "array"), 0.5, id="a new array"),
    ],
)
def test_few_runs_of_the_nearest_level_count_as_much_as_all_others(
    source: Source, share: float
) -> None:
    run_times = known((ADA, 10.0), (Source("p", "eve"), 10_000.0))
    drawn = drawn_often(run_times, source)
    near = sum(seconds < 1000 for seconds in drawn) / len(drawn)
    assert near > share


def test_an_array_counts_little_against_many_runs_of_its_script() -> None:
    array = Source("q", "ada", "train.py", "uid")
    run_times = known(*[(ADA, 1000.0)] * 20, (array, 1.0))
    drawn = drawn_often(run_times, array)
    assert sum(seconds < 100 for seconds in drawn) / len(drawn) < 0.25


def test_draws_lie_around_the_run_times_that_are_known() -> None:
    run_times = known(*((ADA, 1000.0 * factor) for factor in (0.7, 0.8, 0.9, 1.1, 1.25, 1.4)))
    drawn = drawn_often(run_times, ADA)
    assert median(drawn) == pytest.approx(1000, rel=0.1)
    assert fmean(drawn) == pytest.approx(1030, rel=0.1)
    assert drawn[0] < 690 and drawn[-1] > 1410
    assert len(set(drawn)) > 100


def shared(run_times: RunTimes, source: Source) -> float:
    """By how much the logarithms of the run times of a source differ between samples, as the
    standard deviation of the medians of samples."""
    chance = random.Random(1).random
    medians = []
    for _ in range(200):
        sample = Sample(run_times, Running(), chance)
        medians.append(log(median(sample.draw(source, None) or 1.0 for _ in range(31))))
    return stdev(medians)


def test_the_fewer_runs_are_known_the_more_samples_differ_as_a_whole() -> None:
    few, many = (known(*((ADA, 10.0 * 2**n) for n in [1, 2, 3] * k)) for k in (1, 15))
    assert shared(few, ADA) > 1.5 * shared(many, ADA)


def test_the_runs_of_an_array_differ_together_until_many_of_them_have_ended() -> None:
    runs = [(ADA, 10.0 * 2**n) for n in (1, 2, 3)] * 15
    array = Source("q", "ada", "train.py", "uid")
    ended = [(array, 10.0 * 2**n) for n in (1, 2, 3)] * 15
    assert shared(known(*runs), array) > 2 * shared(known(*runs), ADA)
    assert shared(known(*runs), array) > 1.5 * shared(known(*runs, *ended), array)


def test_a_long_run_is_drawn_from_the_long_run_times_alone() -> None:
    """Of 20 runs of the script two are long; runs of other queues are longer still."""
    runs = [(ADA, 10.0)] * 18 + [(ADA, 1000.0)] * 2 + [(Source("p"), 100_000.0)] * 20
    drawn = drawn_often(known(*runs), ADA, elapsed=500.0)
    assert drawn[0] > 500
    # The other queues have a weight of 1/21, and half of these draws are of the script again.
    assert sum(seconds > 50_000 for seconds in drawn) / len(drawn) < 0.4


def test_a_workload_that_runs_stands_for_longer_runs() -> None:
    """One run of train.py took 10 s; of two that still run one has run for 50 s."""
    run_times = known((ADA, 10.0))
    drawn = drawn_often(run_times, ADA, Running([(ADA, 50.0), (ADA, 5.0)]))
    assert 0.2 < sum(seconds > 50 for seconds in drawn) / len(drawn) < 0.5
    far = known((ADA, 10.0), (Source("p"), 100.0))
    assert max(drawn_often(far, ADA, Running([(ADA, 50.0)]))) >= 100


def test_only_the_last_runs_of_two_weeks_count() -> None:
    run_times = known(*((ADA, float(number)) for number in range(60)))
    level = levels(ADA)[0]
    assert list(run_times.values(level)) == [float(number) for number in range(10, 60)]
    run_times.forget(14 * DAY + 58)
    assert list(run_times.values(level)) == [58.0, 59.0]
    run_times.forget(14 * DAY + 60)
    assert list(run_times.values(level)) == []


def test_runs_may_be_added_in_any_order() -> None:
    run_times = RunTimes()
    for number in (*range(30, 60), *range(30)):
        run_times.add(ADA, float(number), float(number))
    assert list(run_times.values(levels(ADA)[0])) == [float(number) for number in range(10, 60)]


@pytest.mark.parametrize(
    ("checked", "elapsed", "seconds"),
    [([], 0, 0), ([], 5, 7.5), ([9.0, 1.0, 4.0], 0, 4), ([9.0, 1.0, 4.0], 4, 9), ([4.0], 6, 9)],
)
def test_checks_take_as_long_as_those_of_earlier_workloads_of_the_queue(
    checked: list[float], elapsed: float, seconds: float
) -> None:
    run_times = RunTimes()
    for number, each in enumerate(checked):
        run_times.add(ADA, 60.0, float(number), each)
    sample = Sample(run_times, Running(), fixed(0.5))
    assert sample.checks("q", elapsed) == seconds
    assert sample.checks("p") == 0
