"""``python -m simulation``: plays a seed again and tells its story, or hunts for a broken one.

``--seed N`` plays one seed, ``--shorten`` leaves out what its story does not need. ``--seeds N``
plays the first N, ``--seeds A..B`` those from A to B, up to a broken one, in ``-j`` processes.
"""

from __future__ import annotations

import argparse
import os
import sys

from simulation.hunting.hunt import SHORTENED, Tally, hunt, shortened
from simulation.plots.catalog import PLOTS
from simulation.run import Result, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation")
    parser.add_argument("--seed", type=int, help="play this seed, and tell its story")
    parser.add_argument("--shorten", action="store_true", help="find a shorter story of the seed")
    parser.add_argument("--seeds", default="100", help="play N seeds, or those of A..B")
    parser.add_argument("--plot", choices=sorted(PLOTS), help="what about (default: all in turn)")
    parser.add_argument("-j", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell whole stories")
    asked = parser.parse_args()
    if asked.seed is not None:
        plot = asked.plot or "scenario"
        if asked.shorten:
            return _shorten(asked.seed, plot)
        return _story(run(asked.seed, plot=PLOTS[plot], keep=True), verbose=asked.verbose)
    first, dots, last = asked.seeds.partition("..")
    seeds = range(int(first), int(last) + 1) if dots else range(int(first))
    tally = Tally()
    found = hunt(seeds, [asked.plot] if asked.plot else sorted(PLOTS), asked.j, tally)
    say = sys.stdout.write
    if found is not None:
        say(f"\nafter {tally.seeds} seeds, seed {found.result.seed} of the plot {found.plot}\n")
        _shorten(found.result.seed, found.plot)
        again = f"python -m simulation --plot {found.plot} --seed {found.result.seed}"
        say(f"play it again, in tests/: {again} -v\n")
        return 1
    say("".join(f"{line}\n" for line in tally.lines()))
    say("every promise was kept\n")
    return 0


def _story(result: Result, *, verbose: bool) -> int:
    lines = result.story if verbose else result.story[-60:]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"seed {result.seed}: {result.broken or 'every promise was kept'}\n")
    return 1 if result.broken else 0


def _shorten(seed: int, plot: str) -> int:
    if not run(seed, plot=PLOTS[plot]).broken:
        sys.stdout.write(f"seed {seed}: every promise was kept\n")
        return 0
    scenario, result = shortened(seed, PLOTS[plot])
    sys.stdout.write("".join(f"{line}\n" for line in result.story))
    for name in SHORTENED:
        for item in getattr(scenario, name):
            sys.stdout.write(f"{name}: {item}\n")
    sys.stdout.write(f"seed {seed}: {result.broken}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
