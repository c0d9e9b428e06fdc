"""Plays many seeds, and makes the story of a broken one shorter."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from random import Random
from typing import Final

from simulation.plots import PLOTS
from simulation.run import Result, World, run
from simulation.scenario import Scenario

PART: Final = 20
"""Seeds that a process plays at once."""
SHORTENED: Final = ("faults", "applyings", "sayings")
"""The parts of a scenario of which something can be left out."""


def play_all(seeds: range, plot: str, processes: int, world: type[World]) -> Iterator[list[Result]]:
    """The results, a part of the seeds at a time."""
    parts = [seeds[at : at + PART] for at in range(0, len(seeds), PART)]
    play = partial(_play, plot=plot, world=world)
    if processes <= 1:
        yield from map(play, parts)
        return
    with ProcessPoolExecutor(processes) as pool:
        try:
            yield from pool.map(play, parts)
        finally:
            pool.shutdown(cancel_futures=True)


def _play(seeds: range, *, plot: str, world: type[World]) -> list[Result]:
    return [run(seed, plot=PLOTS[plot], world_of=world) for seed in seeds]


def hunt(seeds: range, plot: str, processes: int, world: type[World]) -> Result | None:
    """Plays seeds up to the first that breaks a promise, and tells how far it is on standard
    error. None: all kept theirs."""
    began, played = time.monotonic(), 0
    for results in play_all(seeds, plot, processes, world):
        for result in results:
            if result.broken:
                return result
        played += len(results)
        rate = played / (time.monotonic() - began)
        sys.stderr.write(f"\r{played} of {len(seeds)} seeds, {rate:.1f} a second ")
        sys.stderr.flush()
    sys.stderr.write("\n")
    return None


def shortened(
    seed: int, plot: Callable[[Random], Scenario], world: type[World]
) -> tuple[Scenario, Result]:
    """The shortest scenario found that still breaks a promise with this seed, and its result. What
    users and admins do, and faults, are left out in ever smaller parts."""

    def played(scenario: Scenario, *, keep: bool = False) -> Result:
        def draw(rng: Random) -> Scenario:
            plot(rng)  # So that what is drawn afterwards stays as it was.
            return scenario

        return run(seed, plot=draw, keep=keep, world_of=world)

    found = plot(Random(seed))
    for name in SHORTENED:
        size = len(getattr(found, name))
        while size:
            at = 0
            while at < len(getattr(found, name)):
                items = getattr(found, name)
                shorter = found._replace(**{name: items[:at] + items[at + size :]})
                if played(shorter).broken:
                    found = shorter
                else:
                    at += size
            size //= 2
    return found, played(found, keep=True)
