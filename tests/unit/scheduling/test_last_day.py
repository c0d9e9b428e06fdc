"""The last 24 hours of queues and cohorts, by direct calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from admittance.events.requests.queues import LastDayQuery, Queues, QueuesReply
from admittance.scheduling.last_day import HALF_HOURS, NAMES_MAX, DaySamples, Sample
from support.cores.stepped_scheduler import NOON, SteppedScheduler, groups

Counts = Mapping[str, tuple[int, int]]
"""How many workloads wait and how much cpu is held, by ClusterQueue."""
MINUTE = timedelta(minutes=1)


def played(*counts: tuple[float, Counts], cohorts: Mapping[str, Sequence[str]]) -> QueuesReply:
    """The answer about the queues ``a`` and ``b`` and the cohorts, after these counts with their
    minutes after noon."""
    samples = DaySamples()
    for minutes, queues in counts:
        rows = [Sample(name, waiting, {"cpu": used}) for name, (waiting, used) in queues.items()]
        samples.count(rows, now=NOON + MINUTE * minutes)
    query = LastDayQuery(resource="cpu", cluster_queues=("a", "b"), cohorts=tuple(cohorts))
    return samples.answer(query, cohorts)


def shown(reply: QueuesReply) -> dict[str, tuple[list[float | None], list[int | None]]]:
    """The last three half hours of each row."""
    assert reply.last_day is not None
    rows = (*reply.last_day.cluster_queues, *reply.last_day.cohorts)
    assert all(len(row.waiting) == len(row.used) == HALF_HOURS for row in rows)
    return {row.name: (list(row.waiting[-3:]), list(row.used[-3:])) for row in rows}


@pytest.mark.parametrize(
    ("counts", "waiting", "used"),
    [
        pytest.param([(0, (4, 8))], [None, None, 4], [None, None, 8], id="one count"),
        pytest.param(
            [(0, (4, 8)), (1, (0, 0))], [None, None, 2], [None, None, 4], id="a mean of two counts"
        ),
        pytest.param(
            [(0, (1, 1)), *((n, (0, 0)) for n in range(1, 30))],
            [None, None, 0.1],
            [None, None, 1],
            id="a small number is not rounded to 0",
        ),
        pytest.param(
            [(29, (1, 2)), (30, (3, 4)), (60, (5, 6))],
            [1, 3, 5],
            [2, 4, 6],
            id="each half hour has its own mean",
        ),
        pytest.param(
            [(0, (1, 2)), (61, (3, 4))], [1, None, 3], [2, None, 4], id="a gap is not filled"
        ),
        pytest.param(
            [(30, (1, 2)), (-40, (3, 4))],
            [None, None, 2],
            [None, None, 3],
            id="a clock that went back counts in the last half hour",
        ),
        pytest.param(
            [(0, (1, 2)), (24 * 60 + 1, (3, 4))],
            [None, None, 3],
            [None, None, 4],
            id="a day later nothing is left",
        ),
        pytest.param(
            [(0, (1, 2)), (100 * 24 * 60, (3, 4))],
            [None, None, 3],
            [None, None, 4],
            id="a long gap is one step",
        ),
    ],
)
def test_a_half_hour_has_the_mean_of_its_counts(
    counts: list[tuple[float, tuple[int, int]]],
    waiting: list[float | None],
    used: list[int | None],
) -> None:
    reply = played(*((at, {"a": count}) for at, count in counts), cohorts={})
    assert shown(reply) == {"a": (waiting, used)}


def test_the_first_half_hour_began_a_day_before_the_end_of_the_last_one() -> None:
    reply = played((31, {"a": (1, 1)}), cohorts={})
    assert reply.last_day is not None
    assert reply.last_day.begin == NOON + timedelta(hours=1) - timedelta(days=1)


def test_a_cohort_has_the_sum_of_what_is_below_it() -> None:
    counts = [(0, {"a": (1, 2)}), (30, {"a": (1, 2), "b": (10, 20)})]
    reply = played(*counts, cohorts={"co": ["a", "b", "gone"], "empty": []})
    assert shown(reply) == {
        "a": ([None, 1, 1], [None, 2, 2]),
        "b": ([None, None, 10], [None, None, 20]),
        "co": ([None, 1, 11], [None, 2, 22]),
        "empty": ([None] * 3, [None] * 3),
    }


def test_an_answer_is_of_the_last_count() -> None:
    samples = DaySamples()
    query = LastDayQuery(resource="cpu", cluster_queues=("a",), cohorts=("a",))
    for waiting, means in ((2, (2, 4)), (4, (3, 6))):
        samples.count([Sample("a", waiting, {}), Sample("b", waiting, {})], now=NOON)
        day = samples.answer(query, {"a": ["a", "b"]}).last_day
        assert day is not None
        assert (day.cluster_queues[0].waiting[-1], day.cohorts[0].waiting[-1]) == means


def test_a_deleted_queue_is_forgotten() -> None:
    counts: list[tuple[float, Counts]] = [(0, {"a": (1, 2)}), (1, {}), (2, {"a": (3, 4)})]
    assert shown(played(*counts[:2], cohorts={})) == {}
    assert shown(played(*counts, cohorts={})) == {"a": ([None, None, 3], [None, None, 4])}


def test_another_resource_is_never_counted() -> None:
    samples = DaySamples()
    samples.count([Sample("a", 2, {"cpu": 1})], now=NOON)
    reply = samples.answer(LastDayQuery(resource="gpu", cluster_queues=("a",)), {})
    assert shown(reply) == {"a": ([None, None, 2], [None] * 3)}


def test_an_answer_has_a_limit() -> None:
    names = tuple(f"q-{n}" for n in range(NAMES_MAX))
    query = LastDayQuery(resource="cpu", cluster_queues=names, cohorts=("co",))
    assert DaySamples().answer(query, {}).error == "lastDay has more than 500 names: ask for less"


def test_the_scheduler_counts_what_waits_and_what_is_held() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue("a", "co", resourceGroups=groups(default="4"))
    scheduler.queue("b", "co", resourceGroups=groups(default="1"))
    for name, queue in (("a-0", "a"), ("a-1", "a"), ("b-0", "b")):
        scheduler.submit(name, queue, "3")
    query = Queues(
        last_day=LastDayQuery(resource="cpu", cluster_queues=("a", "b", "no"), cohorts=("co", "no"))
    )
    unknown = scheduler.core.queues(query).last_day
    assert unknown is not None and unknown.begin is None
    scheduler.cycle()
    scheduler.core.count(now=NOON)
    reply = scheduler.core.queues(query)
    assert (reply.cluster_queues, reply.tree) == ((), ())
    assert {name: (row[0][-1], row[1][-1]) for name, row in shown(reply).items()} == {
        "a": (1, 3000),
        "b": (1, 0),
        "co": (2, 3000),
    }
