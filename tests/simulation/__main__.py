"""``python -m simulation``: plays a seed again and tells its story, or hunts for a broken one.

``--seed N`` plays one seed, ``--shorten`` leaves out what its story does not need. ``--seeds N``
plays the first N, ``--seeds A..B`` those from A to B, up to a broken one, in ``-j`` processes.
``--figures FILE`` stores the figures, and goes on where an interrupted hunt ended; ``--sum FILE …``
adds the figures of several hunts.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from simulation.hunting.figures import Figures, Tally, begun, figures_of
from simulation.hunting.hunt import SHORTENED, hunt, shortened
from simulation.plots.catalog import PLOTS
from simulation.run import Result, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation")
    parser.add_argument("--seed", type=int, help="play this seed, and tell its story")
    parser.add_argument("--shorten", action="store_true", help="find a shorter story of the seed")
    parser.add_argument(
        "--seeds", type=_seeds, default="100", help="play N seeds, or those of A..B"
    )
    parser.add_argument("--plot", choices=sorted(PLOTS), help="what about (default: all in turn)")
    parser.add_argument("-j", type=_processes, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell whole stories")
    parser.add_argument("--figures", type=Path, help="store the figures of the hunt in this file")
    parser.add_argument("--sum", type=Path, nargs="+", metavar="FILE", help="add these figures")
    asked = parser.parse_args()
    if asked.sum:
        try:
            return _add(asked.sum)
        except ValueError as error:
            parser.error(str(error))
    if asked.seed is not None:
        plot = asked.plot or "scenario"
        if asked.shorten:
            return _shorten(asked.seed, plot)
        return _story(run(asked.seed, plot=PLOTS[plot], keep=True), verbose=asked.verbose)
    seeds = asked.seeds
    try:
        tally = Tally(begun(seeds, asked.plot or "", asked.figures), asked.figures)
        tally.store()
    except OSError as error:
        parser.error(f"{asked.figures} cannot be written: {error.strerror}")
    except ValueError as error:
        parser.error(str(error))
    figures = tally.figures
    if figures.seeds:
        sys.stdout.write(f"{figures.seeds} seeds are played: the hunt goes on at {figures.next}\n")
        sys.stdout.flush()
    interrupted: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: interrupted.append(number))
    plots = [asked.plot] if asked.plot else sorted(PLOTS)
    again = ": the same command goes on" if asked.figures else ""
    try:
        result = hunt(seeds, plots, asked.j, tally, ends=lambda: bool(interrupted))
    except BrokenProcessPool as error:
        return _told(figures, f"\n{error}{again}") or 1
    if result is not None:
        sys.stdout.write(
            f"\nafter {figures.seeds} seeds, seed {result.result.seed} of the plot {result.plot}\n"
        )
        _shorten(result.result.seed, result.plot)
        command = f"python -m simulation --plot {result.plot} --seed {result.result.seed}"
        sys.stdout.write(f"play it again, in tests/: {command} -v\n")
        return 1
    if interrupted:
        return _told(figures, f"\ninterrupted{again}") or 130
    return _told(figures, "every promise was kept")


def _seeds(text: str) -> range:
    """The seeds that ``N`` or ``A..B`` names. Raises ArgumentTypeError if it names none."""
    first, dots, last = text.partition("..")
    numbers = (first, last) if dots else (first,)
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor two, as in 500..999")
    seeds = range(int(first), int(last) + 1) if dots else range(int(first))
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} has no seeds")
    return seeds


def _processes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes")
    return int(text)


def _told(figures: Figures, last: str) -> int:
    sys.stdout.write("".join(f"{line}\n" for line in (*figures.lines(), last)))
    return 0


def _add(files: list[Path]) -> int:
    total = Figures()
    for file in files:
        total.add(figures_of(file))
    return _told(total, f"{len(files)} hunts")


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
