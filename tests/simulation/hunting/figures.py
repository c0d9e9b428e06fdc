"""The figures of a hunt, and the file from which an interrupted hunt goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from simulation.run import Result


class Figures(msgspec.Struct):
    """``plot``: the only one, or "". ``first``: the first seed of the hunt; ``next``: the first
    that is not played yet. ``seconds``: how long it has hunted, without pauses."""

    plot: str = ""
    first: int = 0
    next: int = 0
    seeds: int = 0
    seconds: float = 0.0
    steps: int = 0
    finished: int = 0
    faults: dict[str, int] = {}
    moves: set[tuple[str, str]] = set()

    def add(self, other: Result | Figures) -> None:
        """Adds the figures of one story, or of another hunt."""
        if isinstance(other, Figures):
            self.seeds += other.seeds
            self.seconds += other.seconds
        else:
            self.seeds += 1
        self.steps += other.steps
        self.finished += other.finished
        self.faults = dict(Counter(self.faults) + Counter(other.faults))
        self.moves |= other.moves

    def lines(self) -> Iterator[str]:
        """The figures as text."""
        rate = self.seeds / self.seconds if self.seconds else 0.0
        yield f"{self.seeds} seeds in {self.seconds:.0f} s, {rate:.1f} a second"
        yield f"{self.steps} callbacks, {self.finished} workloads finished"
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        yield f"{sum(self.faults.values())} faults: {faults}"
        moves = ", ".join(f"{a or 'none'} to {b or 'gone'}" for a, b in sorted(self.moves))
        yield f"{len(self.moves)} moves: {moves}"


class Tally:
    """The figures of a hunt that is under way. ``file``: where they are stored."""

    def __init__(self, figures: Figures | None = None, file: Path | None = None) -> None:
        self.figures = figures or Figures()
        self._file = file
        self._earlier = self.figures.seconds
        self._began = time.monotonic()

    def add(self, results: Iterable[Result]) -> None:
        """Adds the figures of these stories."""
        for result in results:
            self.figures.add(result)
        self.figures.seconds = self._earlier + time.monotonic() - self._began

    def played(self, following: int) -> None:
        """Stores the figures: all seeds before ``following`` are played."""
        self.figures.next = following
        self.store()

    def store(self) -> None:
        """Writes the file, if there is one. Raises OSError if that is impossible."""
        if self._file is not None:
            new = self._file.with_suffix(".new")
            new.write_bytes(msgspec.json.format(_encode(self.figures)) + b"\n")
            new.replace(self._file)


def figures_of(file: Path) -> Figures:
    """The figures in the file. Raises ValueError if it has none."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Figures)
    except (OSError, msgspec.MsgspecError) as error:
        raise ValueError(f"{file} has no figures of a hunt: {error}") from None


def begun(seeds: range, plot: str, file: Path | None) -> Figures:
    """The figures of a hunt for these seeds that was interrupted; new ones if there is none, or if
    it was finished."""
    if file is not None and file.exists():
        figures = figures_of(file)
        same = (figures.first, figures.plot) == (seeds.start, plot)
        if same and figures.next < seeds.stop:
            return figures
    return Figures(plot=plot, first=seeds.start, next=seeds.start)


_encode: Final = msgspec.json.Encoder(order="sorted").encode
