"""The forecast of a tree: plays, arrivals and intervals together."""

from __future__ import annotations

import random
from itertools import islice
from math import inf
from typing import Any

import pytest

from admittance.forecast.arrivals import ARRIVAL, Arrivals
from admittance.forecast.forecast import HORIZON, KEPT, Memory, Rows, forecast, samples_of
from admittance.forecast.played import QueueRules
from admittance.forecast.rows import Holding, Key, Source, Waiting
from admittance.forecast.run_times import RunTimes
from admittance.quota.cell import Quota
from admittance.quota.tree import Tree
from admittance.scheduling.state.held.person_limits import Limit, Person

CPU = ("f", "cpu")
DAY = 86_400.0
A = Source("a")
NOW = 10 * DAY


def job(name: str, at: float = 0.0, queue: str = "a") -> Waiting:
    return Waiting(("ns", name), queue, at, ((((CPU, 4),),),), A)


def rows(*waiting: Waiting, since: float | None = None) -> Rows:
    node = Tree().set_queue("a", "", {CPU: Quota(4)})
    holding = []
    if since is not None:
        node.cell(CPU).charge(4)
        holding.append(Holding(("ns", "h"), "a", ((CPU, 4),), since, A))
    return Rows({"a": QueueRules(node)}, waiting, holding)


def memory(*seconds: float) -> Memory:
    """Each run time is known often, so that draws vary by a hundredth only."""
    found = Memory(RunTimes(), Arrivals(NOW))
    for each in seconds * (50 // max(1, len(seconds))):
        found.run_times.add(A, each, NOW)
    return found


def close(*seconds: float) -> Any:
    """An interval that is nearly this one."""
    return pytest.approx(seconds, rel=0.03, abs=3)


def chance() -> random.Random:
    return random.Random(1)


def test_a_workload_that_fits_starts_now() -> None:
    found = forecast(rows(job("x")), memory(60), NOW, chance().random)
    assert found == {("ns", "x"): (0, 0, 60)}


def test_a_workload_starts_after_what_holds_its_quota() -> None:
    """The workload h has run for 100 s of 600; the next one runs for 600 s."""
    after: dict[Key, tuple[Key, ...]] = {}
    tree = rows(job("x"), job("y", 1), since=NOW - 100)
    found = forecast(tree, memory(600), NOW, chance().random, after)
    assert after == {("ns", "x"): (("ns", "h"),), ("ns", "y"): (("ns", "x"),)}
    assert found == {("ns", "x"): close(440, 500, 560), ("ns", "y"): close(990, 1100, 1210)}


@pytest.mark.parametrize(
    ("is_checked", "start"),
    [
        pytest.param(False, 500, id="it runs for 100 s of 600"),
        pytest.param(True, 900, id="its checks take 400 s, and 100 s are over"),
    ],
)
def test_a_workload_holds_quota_for_its_checks_and_for_its_run(
    is_checked: bool, start: float
) -> None:
    known = memory()
    for _ in range(100):
        known.run_times.add(A, 600.0, NOW, 400.0)
    tree = rows(job("x"), job("y", 1), since=NOW - 100)
    [holds] = tree.holding
    tree = tree._replace(holding=[holds._replace(is_checked=is_checked)])
    found = forecast(tree, known, NOW, chance().random)
    assert found["ns", "x"].p50 == pytest.approx(start, rel=0.02)
    assert found["ns", "y"].p50 == pytest.approx(start + 1000, rel=0.02)


def test_arrivals_of_a_user_count_for_the_same_persons() -> None:
    person = Person(Limit("ClusterQueue a", "", (("cpu", 4),)), "ada", is_any=False)
    known = memory(600)
    known.arrivals = arrivals(NOW - DAY)
    for minute in range(1, 30):
        urgent = job(f"u{minute}", NOW - DAY + 60 * minute)._replace(priority=1)
        known.arrivals.add(urgent)
    tree = rows(job("x"), since=NOW)._replace(persons={("a", ""): (person,)})
    person.held["cpu"] = 4
    found = forecast(tree, known, NOW, chance().random)["ns", "x"]
    assert found.p50 < 700, "the arrivals are over their limit"


@pytest.mark.parametrize("seconds", [(), (1.1 * HORIZON,)])
def test_without_a_known_end_within_the_horizon_there_is_no_forecast(
    seconds: tuple[float, ...],
) -> None:
    known = memory(*seconds)
    assert forecast(rows(job("x"), since=NOW), known, NOW, chance().random) == {}
    assert known.made == {}


def test_forecasts_are_compared_with_the_start_of_their_workload() -> None:
    known = memory(600)
    held = rows(job("x"), since=NOW)
    for after in range(0, 100, 10):
        forecast(held, known, NOW + after, chance().random)
    first, second = known.made["ns", "x"][:2]
    assert first == (NOW, close(600, 600, 600)) and second == (NOW + 10, close(590, 590, 590))
    known.started(("ns", "x"), NOW + 750)
    assert known.made == {}
    # Half a width is 30 s, and the start was 150 s later than the median.
    assert known.widening.sides == pytest.approx((1, 5), rel=0.1)
    assert forecast(held, known, NOW, chance().random) == {("ns", "x"): close(570, 600, 750)}


def test_a_workload_that_waits_for_long_keeps_some_of_its_forecasts() -> None:
    known, draws = memory(600), chance().random
    for later in range(KEPT + 20):
        forecast(rows(job("x"), since=NOW), known, NOW + later, draws)
    times = [made_at - NOW for made_at, _ in known.made["ns", "x"]]
    assert len(times) == KEPT
    assert times[0] < 20 and times[-1] == KEPT + 19


def test_a_workload_that_left_its_queue_is_no_error() -> None:
    known = memory(600)
    forecast(rows(job("x"), since=NOW), known, NOW, chance().random)
    known.gone(("ns", "x"))
    known.started(("ns", "x"), NOW)
    known.gone(("ns", "x"))
    assert known.made == {}


def test_a_long_tail_is_cut_at_the_horizon() -> None:
    known = memory(*[600] * 30, *[9 * HORIZON] * 10)
    found = forecast(rows(job("x"), since=NOW), known, NOW, chance().random)["ns", "x"]
    assert found.p90 == pytest.approx(found.p50 + 2 * (HORIZON - found.p50))


def arrivals(begin: float, *times: float, queue: str = "a") -> Arrivals:
    found = Arrivals(begin)
    for at in times:
        found.add(job(f"{at}", at, queue))
    return found


@pytest.mark.parametrize(
    ("known", "drawn_by", "times"),
    [
        # Of yesterday, then of the day before.
        (arrivals(NOW - 2 * DAY, NOW - 100, NOW - DAY - 50), (0.0, 0.9), [DAY - 100, 2 * DAY - 50]),
        (arrivals(NOW - 2 * DAY, NOW - DAY), (0.0, 0.0), [0, DAY]),
        (arrivals(NOW - 2 * DAY, NOW - 2 * DAY), (0.9, 0.9), [0, DAY]),
        # Only some hours are known: they follow each other.
        (arrivals(NOW - 3600, NOW - 600), (0.9, 0.9), [3000, 6600]),
        (arrivals(NOW), (), []),
        (arrivals(NOW - DAY), (), []),
    ],
)
def test_arrivals_are_those_of_an_earlier_day(
    known: Arrivals, drawn_by: tuple[float, ...], times: list[float]
) -> None:
    drawn = islice(known.drawn(NOW, inf, {"a"}, iter(drawn_by).__next__), len(times) or 1)
    found = list(drawn)
    assert [each.queued_at - NOW for each in found] == times
    assert {each.key[0] for each in found} <= {ARRIVAL}


def test_arrivals_of_other_trees_and_of_earlier_days_do_not_count() -> None:
    known = arrivals(NOW - 9 * DAY, NOW - 2 * DAY - 1, NOW - 2 * DAY, NOW - 1)
    known.add(job("other", NOW - 5, "b"))
    known.forget(NOW)
    drawn = list(islice(known.drawn(NOW, inf, {"a"}, iter((0.9, 0.0)).__next__), 2))
    assert [each.queued_at - NOW for each in drawn] == [0, 2 * DAY - 1]
    assert len({each.key for each in drawn}) == 2


def test_a_tree_without_known_arrivals_gets_none() -> None:
    known = memory(600)
    known.arrivals = arrivals(NOW - DAY, NOW - 5, queue="b")
    draws = iter((0.0,) * 1000).__next__
    assert forecast(rows(job("x")), known, NOW, draws)["ns", "x"].p50 == 0


def test_arrivals_delay_a_workload_of_low_priority() -> None:
    known = memory(600)
    known.arrivals = arrivals(NOW - DAY)
    for minute in range(1, 30):
        urgent = job(f"u{minute}", NOW - DAY + 60 * minute)._replace(priority=1)
        known.arrivals.add(urgent)
    found = forecast(rows(job("x"), since=NOW), known, NOW, chance().random)["ns", "x"]
    assert found.p50 == pytest.approx(600 * 30, rel=0.02)


@pytest.mark.parametrize(
    ("waiting", "samples"),
    [(0, 20), (1, 20), (5_000, 20), (5_001, 19), (10_000, 10), (12_501, 8), (10**6, 8)],
)
def test_a_forecast_of_many_workloads_has_fewer_plays(waiting: int, samples: int) -> None:
    assert samples_of(waiting) == samples
