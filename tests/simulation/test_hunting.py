"""A hunt ends at the first broken seed, and a broken story is made shorter."""

from __future__ import annotations

from random import Random

import pytest

from simulation import hunting
from simulation.hunting import hunt, shortened
from simulation.plots import PLOTS
from simulation.run import Result, World, run
from simulation.scenario import Scenario


class Lossy(World):
    """A world that breaks a promise when two workloads were submitted."""

    def begin(self) -> None:
        super().begin()
        said = {getattr(saying.fact, "name", "") for saying in self.plan.sayings}
        if {"w1", "w3"} <= said:
            raise ValueError("w1 and w3")


def test_a_story_is_shortened_to_what_breaks_it() -> None:
    seed = next(seed for seed in range(99) if run(seed, world_of=Lossy).broken)
    scenario, result = shortened(seed, PLOTS["scenario"], Lossy)
    assert result.broken == "ValueError: w1 and w3"
    names = [getattr(saying.fact, "name", "") for saying in scenario.sayings]
    assert sorted(names) == ["w1", "w3"]
    assert scenario.applyings == scenario.faults == []


def test_a_scenario_is_drawn_again_as_it_was() -> None:
    drawn: list[Scenario] = []

    def plot(rng: Random) -> Scenario:
        drawn.append(PLOTS["contested"](rng))
        return drawn[-1]

    run(3, plot=plot)
    assert PLOTS["contested"](Random(3)) == drawn[0]


def test_a_hunt_ends_at_the_first_broken_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []

    def play(seed: int, **_: object) -> Result:
        played.append(seed)
        return Result(seed, "broken" if seed == 31 else "", [], 0, 0, 0)

    monkeypatch.setattr(hunting, "run", play)
    found = hunt(range(1000), "scenario", 1, World)
    assert found is not None
    assert found.seed == 31
    assert max(played) < 2 * hunting.PART
    assert hunt(range(20), "scenario", 1, World) is None
