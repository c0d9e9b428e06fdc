"""``python -m admittance.simulation --seed N``: plays a seed again and tells its story."""

from __future__ import annotations

import argparse
import sys

from admittance.simulation.run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m admittance.simulation")
    parser.add_argument("--seed", type=int, help="play this seed, and tell its story")
    parser.add_argument("--seeds", help="play seeds A..B, and name those that break something")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell whole stories")
    asked = parser.parse_args()
    if asked.seed is not None:
        seeds = range(asked.seed, asked.seed + 1)
    else:
        first, _, last = (asked.seeds or "0..99").partition("..")
        seeds = range(int(first), int(last or first) + 1)
    failed = 0
    for seed in seeds:
        result = run(seed, keep=asked.seed is not None or asked.verbose)
        lines = result.story if asked.verbose else result.story[-60:]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        if result.broken:
            failed += 1
            sys.stdout.write(f"seed {seed}: {result.broken}\n")
    sys.stdout.write(f"{len(seeds)} seeds, {failed} broken\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
