"""Plays many seeds of all plots, and makes the story of a broken one shorter."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from random import Random
from typing import Final, NamedTuple, TextIO

from simulation.plots.catalog import PLOTS
from simulation.plots.scenario import Plot, Scenario
from simulation.run import Result, run
from simulation.world import World, collector_off

PART: Final = 10
"""Seeds that a process plays at once."""
SUITE: Final = range(int(os.environ.get("ADMIT_SEEDS", "1600")))
"""Seeds that the suite plays."""
SHORTENED: Final = ("faults", "admin_changes", "user_facts")
"""The parts of a scenario of which something can be left out."""


class Part(NamedTuple):
    """Some seeds of one plot."""

    plot: str
    seeds: range

    def __str__(self) -> str:
        return f"{self.plot}-{self.seeds[0]}"


class Found(NamedTuple):
    """A broken seed."""

    plot: str
    result: Result


class Tally:
    """What a hunt has played so far."""

    def __init__(self) -> None:
        self.seeds = 0
        self.steps = 0
        self.finished = 0
        self.faults: Counter[str] = Counter()
        self.moves: set[tuple[str, str]] = set()
        self._began = time.monotonic()

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.steps += result.steps
        self.finished += result.finished
        self.faults += result.faults
        self.moves |= result.moves

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def lines(self) -> Iterator[str]:
        """The figures of a finished hunt."""
        rate = self.seeds / self.seconds
        yield f"{self.seeds} seeds in {self.seconds:.0f} s, {rate:.1f} a second"
        yield f"{self.steps} callbacks, {self.finished} workloads finished"
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        yield f"{self.faults.total()} faults: {faults}"
        moves = ", ".join(f"{a or 'none'} to {b or 'gone'}" for a, b in sorted(self.moves))
        yield f"{len(self.moves)} moves: {moves}"


def parts_of(seeds: range, plots: Sequence[str]) -> Iterator[Part]:
    """Shares the seeds among the plots: seed n is played with plot n modulo their number."""
    for at in range(0, len(seeds), PART * len(plots)):
        some = seeds[at : at + PART * len(plots)]
        for number, plot in enumerate(plots):
            if part := some[number :: len(plots)]:
                yield Part(plot, part)


def play(part: Part) -> list[Result]:
    """The results of its seeds, up to the first broken one."""
    found = []
    with collector_off():
        for seed in part.seeds:
            found.append(run(seed, plot=PLOTS[part.plot]))
            if found[-1].broken:
                break
    return found


def parts_of_suite(*plots: str) -> list[Part]:
    """The parts of the suite's seeds that belong to these plots."""
    return [part for part in parts_of(SUITE, sorted(PLOTS)) if part.plot in plots]


def check(part: Part) -> None:
    """Raises AssertionError with the story of the first broken seed of the part."""
    last = play(part)[-1]
    if last.broken:
        story = run(last.seed, plot=PLOTS[part.plot], keep=True).story
        told = "\n".join(story[-40:])
        raise AssertionError(
            f"{told}\nseed {last.seed} of {part.plot}: {last.broken}\n"
            f"play it again: python -m simulation --plot {part.plot} --seed {last.seed} -v"
        )


def play_all(parts: Iterator[Part], processes: int) -> Iterator[tuple[Part, list[Result]]]:
    """The results, as processes have them."""
    if processes <= 1:
        for part in parts:
            yield part, play(part)
        return
    with ProcessPoolExecutor(processes) as pool:
        running: dict[Future[list[Result]], Part] = {}
        try:
            while True:
                for part in islice(parts, 2 * processes - len(running)):
                    running[pool.submit(play, part)] = part
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    yield running.pop(one), one.result()
        finally:
            pool.shutdown(cancel_futures=True)


def hunt(
    seeds: range, plots: Sequence[str], processes: int, tally: Tally, said: TextIO = sys.stderr
) -> Found | None:
    """Plays seeds up to one that breaks a promise, and reports its progress. None: no seed does."""
    for part, results in play_all(parts_of(seeds, plots), processes):
        for result in results:
            tally.add(result)
            if result.broken:
                return Found(part.plot, result)
        rate = tally.seeds / tally.seconds
        said.write(f"\r{tally.seeds} of {len(seeds)} seeds, {rate:.1f} a second ")
        said.flush()
    said.write("\n")
    return None


def shortened(seed: int, plot: Plot, world: type[World] = World) -> tuple[Scenario, Result]:
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
