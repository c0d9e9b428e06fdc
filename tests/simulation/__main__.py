"""``python -m simulation``: plays a seed again and tells its story, or plays many.

``--seed N`` one seed; ``--seeds N`` the first N, ``--seeds A..B`` those from A up to B, on as many
processes as ``-j`` says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from simulation.plots import PLOTS
from simulation.run import Result, World, run
from simulation.shipped import ShippedWorld

PART = 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation")
    parser.add_argument("--seed", type=int, help="play this seed, and tell its story")
    parser.add_argument(
        "--seeds", default="100", help="play N seeds, or those of A..B, and name the broken ones"
    )
    parser.add_argument("--plot", choices=sorted(PLOTS), default="scenario", help="what about")
    parser.add_argument("--shipped", action="store_true", help="play the services that ship")
    parser.add_argument("-j", type=int, default=1, help="processes")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell whole stories")
    asked = parser.parse_args()
    world = ShippedWorld if asked.shipped else World
    if asked.seed is not None:
        return _story(asked.seed, asked.plot, world, verbose=asked.verbose)
    first, dots, last = asked.seeds.partition("..")
    seeds = range(int(first), int(last) + 1) if dots else range(int(first))
    failed = 0
    for result in _all(seeds, asked.plot, asked.j, world):
        if result.broken:
            failed += 1
            sys.stdout.write(f"seed {result.seed}: {result.broken}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(seeds)} seeds, {failed} broken\n")
    return 1 if failed else 0


def _story(seed: int, plot: str, world: type[World], *, verbose: bool) -> int:
    result = run(seed, plot=PLOTS[plot], keep=True, world_of=world)
    lines = result.story if verbose else result.story[-60:]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"seed {seed}: {result.broken or 'every promise was kept'}\n")
    return 1 if result.broken else 0


def _all(seeds: range, plot: str, processes: int, world: type[World]) -> Iterator[Result]:
    parts = [seeds[at : at + PART] for at in range(0, len(seeds), PART)]
    play = partial(_part, plot=plot, world=world)
    if processes <= 1:
        for part in parts:
            yield from play(part)
        return
    with ProcessPoolExecutor(processes) as pool:
        for found in pool.map(play, parts):
            yield from found


def _part(seeds: range, *, plot: str, world: type[World]) -> list[Result]:
    return [run(seed, plot=PLOTS[plot], world_of=world) for seed in seeds]


if __name__ == "__main__":
    sys.exit(main())
