"""Folds runs, in the order of the log, into summaries.

A summary skips what it has: the facts up to its own position. So a fold that ended between two
writes is repeated from the last position, and its result is the same.

The workload-controller may report one admission twice: after a crash the next leader publishes
again what it cannot know to be published. Both reports have the same cause, a fact that was not
acknowledged when the leader crashed, so the second report is at most `WINDOW` messages of the log
behind. The fold keeps the runs of this window, and replaces the first report by the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admittance.usage.runs import Run
from admittance.usage.summary import Share, Summary, SummaryKey, shares_of

WINDOW: Final = 20_000
"""How many messages of the log a second report of one admission may be behind its cause: more than
the facts that a leader of the workload-controller has read but not acknowledged."""


class UsageFold:
    """The state of the fold. ``position``: every run up to this sequence of the log is folded.
    ``dirty``: the summaries that changed since they were stored."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.summaries: dict[SummaryKey, Summary] = {}
        self.dirty: set[SummaryKey] = set()
        self._recent: dict[tuple[str, int], Run] = {}
        """In the order of the log."""
        self._newest = 0
        self._shares: dict[int, list[Share]] = {}
        """The shares of the runs that are folded next, by sequence."""

    def recall(self, run: Run) -> None:
        """Notes a run that is folded already, so that a second report of it is recognised. The
        runs must be in the order of the log."""
        key = run.key
        self._recent.pop(key, None)
        self._recent[key] = run
        self._newest = run.sequence

    def needed(self, runs: Iterable[Run]) -> set[SummaryKey]:
        """The summaries that must be loaded before these runs are folded."""
        keys: set[SummaryKey] = set()
        for run in runs:
            shares = self._shares[run.sequence] = shares_of(run)
            earlier = self._recent.get(run.key)
            if earlier is not None:
                shares = [*shares, *shares_of(earlier)]
            keys.update([share.about for share in shares])
        return keys - self.summaries.keys()

    def fold(self, runs: Iterable[Run]) -> None:
        """Adds the runs to the summaries. The runs must be in the order of the log; those up to
        `position` are skipped."""
        for run in runs:
            if run.sequence <= self.position:
                continue
            earlier = self._recent.get(run.key)
            if earlier is None:
                self._add(run, 1, run.sequence)
            elif _content(earlier) != _content(run):
                self._add(earlier, -1, run.sequence)
                self._add(run, 1, run.sequence)
            self.recall(run)
            self.position = run.sequence
        self._shares.clear()

    def _add(self, run: Run, sign: int, sequence: int) -> None:
        for about, rows in self._shares.get(run.sequence) or shares_of(run):
            summary = self.summaries[about]
            if sequence > summary.position:
                for row, counts in rows:
                    summary.add(row, counts, sign)
                self.dirty.add(about)

    def stored(self, about: SummaryKey, revision: int) -> None:
        """Records that a summary is stored with everything up to `position`."""
        summary = self.summaries[about]
        summary.position, summary.revision = self.position, revision
        self.dirty.discard(about)

    def forget(self, most: int) -> None:
        """Forgets stored summaries above ``most``, those that were loaded first."""
        for about in list(self.summaries):
            if len(self.summaries) <= most:
                return
            if about not in self.dirty:
                del self.summaries[about]

    def again(self, end: int = 0) -> int:
        """Forgets the runs that no second report can follow, and returns the sequence after which
        the log must be read again by the next fold, to recall the others. ``end``: the newest
        sequence of the log, if it is known."""
        oldest = max(self._newest, end) - WINDOW
        while self._recent:
            key, run = next(iter(self._recent.items()))
            if run.cause > oldest:
                return run.sequence - 1
            del self._recent[key]
        return self.position


def _content(run: Run) -> Run:
    return run._replace(sequence=0, cause=0)
