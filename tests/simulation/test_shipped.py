"""The services that ship, in many random lives: nothing that was promised is ever broken."""

from __future__ import annotations

import os

import pytest

from simulation.plots import PLOTS
from simulation.run import run
from simulation.shipped import ShippedWorld

SEEDS = int(os.environ.get("ADMIT_SHIPPED_SEEDS", "40"))
PART = 10


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_shipped_services_keep_every_promise(first: int) -> None:
    _check("scenario", range(first, first + PART))


@pytest.mark.parametrize("plot", sorted(set(PLOTS) - {"scenario"}))
def test_shipped_services_keep_every_promise_in_each_plot(plot: str) -> None:
    _check(plot, range(3))


def _check(plot: str, seeds: range) -> None:
    for seed in seeds:
        broken = run(seed, plot=PLOTS[plot], world_of=ShippedWorld).broken
        if broken:
            story = run(seed, plot=PLOTS[plot], keep=True, world_of=ShippedWorld).story
            told = "\n".join(story[-40:])
            raise AssertionError(f"seed {seed} of {plot}: {broken}\n{told}")


def test_a_seed_of_shipped_services_is_always_the_same_story() -> None:
    for seed in (3, 7):
        first = run(seed, keep=True, world_of=ShippedWorld)
        assert first == run(seed, keep=True, world_of=ShippedWorld)


def test_most_stories_of_shipped_services_do_real_work() -> None:
    results = [run(seed, world_of=ShippedWorld) for seed in range(10)]
    assert sum(result.finished for result in results) > 20
    assert sum(result.reservations for result in results) > 30
