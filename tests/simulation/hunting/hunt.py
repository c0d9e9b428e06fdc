"""Plays many seeds of all plots, and makes the story of a broken one shorter."""

from __future__ import annotations

import fcntl
import gc
import math
import multiprocessing
import os
import re
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import gettempdir
from typing import Final, NamedTuple, TextIO

from simulation.hunting.figures import Tally
from simulation.plots.catalog import PLOTS
from simulation.plots.scenario import Plot, Scenario
from simulation.run import Result, run
from simulation.world import World, collector_off, freeze_modules

PART: Final = 10
"""Seeds that a process plays at once."""
NICE: Final = 5
"""The niceness of the processes that play seeds."""
LOOK_SECONDS: Final = 0.02
"""How often the first part that waits looks for a core."""
AHEAD: Final = 4
"""Parts for each process that are begun before the first of them is done."""
SUITE: Final = int(os.environ.get("ADMIT_SEEDS", "500"))
"""How many seeds the suite plays."""
SHARES: Final = {
    "arrays": 4,
    "backfilled": 3,
    "budgeted": 1,
    "checked": 12,
    "contested": 9,
    "exclusive": 5,
    "families": 9,
    "held": 1,
    "limited": 4,
    "placed": 1,
    "planned": 9,
    "preempting": 9,
    "provided": 14,
    "reconfigured": 9,
    "scenario": 10,
}
"""How many hundredths of the suite's seeds belong to each plot: all plots get about the same time
(`placed` takes 350 ms a seed, `exclusive` 260, `checked` 120)."""
SHORTENED: Final = ("faults", "admin_changes", "user_facts")
"""The parts of a scenario of which something can be left out."""


class Part(NamedTuple):
    """Some seeds of one plot. ``before``: with this part and those ahead of it all seeds before
    this one are played; 0: some are not."""

    plot: str
    seeds: range
    before: int = 0

    def __str__(self) -> str:
        return f"{self.plot}-{self.seeds[0]}"


class Found(NamedTuple):
    """A broken seed."""

    plot: str
    result: Result


def parts_of(seeds: range, plots: Sequence[str]) -> Iterator[Part]:
    """Shares the seeds among the plots: seed n is played with plot n modulo their number."""
    count = len(plots)
    for at in range(0, len(seeds), PART * count):
        some = seeds[at : at + PART * count]
        shares = [some[(number - some.start) % count :: count] for number in range(count)]
        parts = [Part(*part) for part in zip(plots, shares, strict=True) if part[1]]
        yield from parts[:-1]
        yield parts[-1]._replace(before=some.stop)


def play(part: Part) -> list[Result]:
    """The results of its seeds, up to the first broken one."""
    seeds = []
    with collector_off():
        for seed in part.seeds:
            seeds.append(run(seed, plot=PLOTS[part.plot]))
            if seeds[-1].broken:
                break
    return seeds


def play_apart(part: Part) -> list[Result]:
    """The results as `play` returns them, of a process of their own. Its memory is given back as a
    whole, so nothing is spent on finding what earlier stories left behind: a sixth of the time.
    Raises BrokenProcessPool if the process was killed."""
    freeze_modules()
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_play_into, args=(sending, part))
    with receiving, warnings.catch_warnings():
        # Python 3.12 warns of threads beside a fork. The child uses nothing of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
        sending.close()
        try:
            results: list[Result] = receiving.recv()
        except EOFError:
            process.join()
            what = f"the process of {part} was killed: {process.exitcode}"
            raise BrokenProcessPool(what) from None
        finally:
            process.kill()
            process.join()
    return results


def _play_into(sending: Connection, part: Part) -> None:
    gc.disable()
    # Stories take the time that is left beside tests that wait for processes.
    os.nice(NICE)
    sending.send(play(part))


def parts_of_suite(*plots: str) -> list[Part]:
    """The parts of the suite's seeds that belong to these plots."""
    return [
        part
        for plot in plots
        for part in parts_of(range(math.ceil(SUITE * SHARES[plot] / 100)), [plot])
    ]


@contextmanager
def a_core() -> Iterator[None]:
    """Waits in turn until this user's test runs play stories on fewer cores than there are.
    Stories do nothing but compute: with more of them at once each finds its caches filled by
    another, which takes a tenth more time."""
    with ExitStack() as files:
        # The first of those that wait looks for a core, the others wait for it in turn. Without
        # that, a process that plays one part after the other would keep its core.
        with _lock_file("first") as first:
            fcntl.flock(first, fcntl.LOCK_EX)
            cores = [files.enter_context(_lock_file(core)) for core in range(os.cpu_count() or 1)]
            while not any(_is_locked_now(core) for core in cores):
                time.sleep(LOOK_SECONDS)
        yield


def _lock_file(name: object) -> TextIO:
    """A file in the folder of temporary files; closing it ends its lock."""
    return Path(gettempdir(), f"admit-stories-{os.getuid()}-{name}").open("w")


def _is_locked_now(file: TextIO) -> bool:
    """Locks the file until it is closed; False if another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def check(part: Part) -> None:
    """Raises AssertionError with the story of the first broken seed of the part."""
    with a_core():
        last = play_apart(part)[-1]
    if last.broken:
        story = run(last.seed, plot=PLOTS[part.plot], keep=True).story
        story_text = "\n".join(story[-40:])
        raise AssertionError(
            f"{story_text}\nseed {last.seed} of {part.plot}: {last.broken}\n"
            f"play it again: python -m simulation --plot {part.plot} --seed {last.seed} -v"
        )


def play_all(
    parts: Iterator[Part], processes: int
) -> Generator[tuple[Part, list[Result]], None, None]:
    """The results, in the order of the parts."""
    if processes <= 1:
        for part in parts:
            yield part, play(part)
        return
    with ProcessPoolExecutor(processes, initializer=_ignore_interrupts) as pool:
        running: deque[tuple[Part, Future[list[Result]]]] = deque()
        try:
            while True:
                for part in islice(parts, AHEAD * processes - len(running)):
                    running.append((part, pool.submit(play_apart, part)))
                if not running:
                    return
                part, future = running.popleft()
                yield part, future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    """The process that hunts ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def hunt(
    seeds: range,
    plots: Sequence[str],
    processes: int,
    tally: Tally,
    said: TextIO = sys.stderr,
    ends: Callable[[], bool] = lambda: False,
) -> Found | None:
    """Plays seeds up to one that breaks a promise, or until ``ends``, and reports its progress.
    None: no seed broke one. Seeds that the tally has are not played again."""
    figures = tally.figures
    left = range(max(seeds.start, figures.next), seeds.stop)
    earlier, began = figures.seeds, time.monotonic()
    with closing(play_all(parts_of(left, plots), processes)) as played:
        for part, results in played:
            tally.add(results)
            if results[-1].broken:
                return Found(part.plot, results[-1])
            if part.before:
                tally.played(part.before)
            rate = (figures.seeds - earlier) / (time.monotonic() - began)
            said.write(f"\r{figures.seeds} of {len(seeds)} seeds, {rate:.1f} a second ")
            said.flush()
            if ends():
                return None
    said.write("\n")
    return None


def shortened(seed: int, plot: Plot, world: type[World] = World) -> tuple[Scenario, Result]:
    """The shortest scenario found that still breaks the same promise with this seed, and its
    result. What users and admins do, and faults, are left out in ever smaller parts."""

    def played(scenario: Scenario, *, keep: bool = False) -> Result:
        def draw(rng: Random) -> Scenario:
            plot(rng)  # So that what is drawn afterwards stays as it was.
            return scenario

        return run(seed, plot=draw, keep=keep, world_of=world)

    drawn = plot(Random(seed))
    wanted = kind_of(played(drawn).broken)
    for name in SHORTENED:
        size = len(getattr(drawn, name))
        while size:
            at = 0
            while at < len(getattr(drawn, name)):
                items = getattr(drawn, name)
                shorter = drawn._replace(**{name: items[:at] + items[at + size :]})
                if kind_of(played(shorter).broken) == wanted:
                    drawn = shorter
                else:
                    at += size
            size //= 2
    return drawn, played(drawn, keep=True)


def kind_of(broken: str) -> str:
    """The broken promise without the names and numbers in it."""
    return re.sub(r"\S*[\d.:/]\S*", "…", broken)
