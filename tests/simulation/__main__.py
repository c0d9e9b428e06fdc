"""``python -m simulation``: plays a seed again and tells its story, or plays many.

``--seed N`` one seed, ``--shorten`` with what is not needed left out; ``--seeds N`` the first N,
``--seeds A..B`` those from A up to B, on as many processes as ``-j`` says; ``--hunt`` up to the
first broken one.
"""

from __future__ import annotations

import argparse
import sys

from simulation.hunting import SHORTENED, hunt, play_all, shortened
from simulation.plots import PLOTS
from simulation.run import Result, World, run
from simulation.shipped import ShippedWorld


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation")
    parser.add_argument("--seed", type=int, help="play this seed, and tell its story")
    parser.add_argument(
        "--seeds", default="100", help="play N seeds, or those of A..B, and name the broken ones"
    )
    parser.add_argument("--plot", choices=sorted(PLOTS), default="scenario", help="what about")
    parser.add_argument("--shipped", action="store_true", help="play the services that ship")
    parser.add_argument("--hunt", action="store_true", help="end at the first broken seed")
    parser.add_argument("--shorten", action="store_true", help="find a shorter story of the seed")
    parser.add_argument("-j", type=int, default=1, help="processes")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell whole stories")
    asked = parser.parse_args()
    world = ShippedWorld if asked.shipped else World
    if asked.seed is not None and asked.shorten:
        return _shorten(asked.seed, asked.plot, world)
    if asked.seed is not None:
        return _story(run(asked.seed, plot=PLOTS[asked.plot], keep=True, world_of=world), asked)
    first, dots, last = asked.seeds.partition("..")
    seeds = range(int(first), int(last) + 1) if dots else range(int(first))
    if asked.hunt:
        return _hunt(hunt(seeds, asked.plot, asked.j, world), asked)
    failed = 0
    for results in play_all(seeds, asked.plot, asked.j, world):
        for result in results:
            if result.broken:
                failed += 1
                sys.stdout.write(f"seed {result.seed}: {result.broken}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{len(seeds)} seeds, {failed} broken\n")
    return 1 if failed else 0


def _story(result: Result, asked: argparse.Namespace) -> int:
    lines = result.story if asked.verbose else result.story[-60:]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"seed {result.seed}: {result.broken or 'every promise was kept'}\n")
    return 1 if result.broken else 0


def _hunt(broken: Result | None, asked: argparse.Namespace) -> int:
    if broken is None:
        sys.stdout.write("every promise was kept\n")
        return 0
    shipped = "--shipped " if asked.shipped else ""
    again = f"python -m simulation {shipped}--plot {asked.plot} --seed {broken.seed}"
    sys.stdout.write(f"seed {broken.seed}: {broken.broken}\nplay it again: {again} -v\n")
    sys.stdout.write(f"make it shorter: {again} --shorten\n")
    return 1


def _shorten(seed: int, plot: str, world: type[World]) -> int:
    if not run(seed, plot=PLOTS[plot], world_of=world).broken:
        sys.stdout.write(f"seed {seed}: every promise was kept\n")
        return 0
    scenario, result = shortened(seed, PLOTS[plot], world)
    sys.stdout.write("".join(f"{line}\n" for line in result.story))
    for name in SHORTENED:
        for item in getattr(scenario, name):
            sys.stdout.write(f"{name}: {item}\n")
    sys.stdout.write(f"seed {seed}: {result.broken}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
