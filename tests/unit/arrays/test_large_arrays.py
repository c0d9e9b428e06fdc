"""Windows of large arrays, and how often they are counted. docs/spec/arrays.md#2,
docs/spec/arrays.md#3."""

from __future__ import annotations

from datetime import timedelta

import pytest

from admittance.arrays.controller_core import ArrayControllerCore
from admittance.arrays.known_arrays import array_from
from admittance.arrays.required_acts import WINDOW_MIN, window_of
from admittance.events import facts
from support.cores.array_cores import ArrayCores


@pytest.mark.parametrize(
    ("parallelism", "window"),
    [(None, 1000), (1, 1000), (500, 1000), (501, 1002), (2000, 4000)],
)
def test_the_window_of_an_array_has_room_for_twice_the_elements_at_once(
    parallelism: int | None, window: int
) -> None:
    cores = ArrayCores()
    array = {} if parallelism is None else {"parallelism": parallelism}
    cores.submit("a", "q", array={"indexes": "0", **array})
    assert window_of(array_from(cores.stored("a"), 1)) == window


def test_ten_thousand_elements_ten_at_once_cost_a_window_of_objects() -> None:
    cores = ArrayCores(cpu=10)
    cores.array(indexes="0-9999", parallelism=10)
    cores.control()
    assert len(cores.names()) == 1 + WINDOW_MIN
    assert cores.counts().states == {"NotCreated": 9000, "Pending": 1000}
    for index in range(10):
        cores.publish(facts.Finished, f"a-{index}")
    cores.control()
    assert len(cores.names()) == 1 + 10 + WINDOW_MIN
    assert cores.counts().created == WINDOW_MIN + 10
    assert cores.line(size=22) == "s" * 10 + "p" * 10 + "gg"


def test_an_array_is_counted_once_a_second_and_at_once_at_its_end() -> None:
    cores = ArrayCores()
    cores.arrays = ArrayControllerCore(coalesce=timedelta(seconds=1))
    cores.array(indexes="0-2")
    cores.control()
    cores.run()
    cores.published_acts.clear()

    def counts() -> int:
        return sum(isinstance(fact, facts.ElementsCounted) for fact in cores.published_acts)

    cores.now += timedelta(seconds=5)
    cores.publish(facts.Finished, "a-0")
    cores.control()
    assert counts() == 1
    cores.publish(facts.Finished, "a-1")
    cores.control()
    assert counts() == 1
    assert cores.arrays.wake() == cores.now + timedelta(seconds=1)
    cores.publish(facts.Finished, "a-2")
    cores.control()
    assert (counts(), cores.counts().results) == (2, "sss")


def test_an_act_that_could_not_be_published_is_published_again() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-1")
    submitted = cores.arrays.acts(cores.now)
    assert [act.fact.name for act in submitted] == ["a-0", "a-1"]
    assert cores.arrays.acts(cores.now) == []
    for act in submitted:
        cores.arrays.failed(act.fact, cores.now)
    cores.now += timedelta(seconds=1)
    assert [act.fact.name for act in cores.arrays.acts(cores.now)] == ["a-0", "a-1"]
    cores.arrays.stated(submitted[0].fact, 7)
    assert (len(cores.arrays), cores.arrays.arrays.unfinished(), cores.arrays.stuck) == (1, 0, 0)
    assert cores.arrays.pending == 2
