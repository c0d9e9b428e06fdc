"""The forecasts that a process keeps: which tree is played next, and how long a forecast counts.

Trees are played on request only, one after the other, and with pauses, so that plays take
a small part of one processor whatever waits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from admittance.forecast.rows import Holding, Key
from admittance.forecast.run_times import RunTimes
from admittance.forecast.widening import Interval
from admittance.forecast.words import why_not_found

ASKED_SECONDS: Final = 90.0
"""A tree is played until so long after the last question about it."""
FRESH_SECONDS: Final = 15.0
"""A forecast is not made again before it is so old."""
PAUSE_FACTOR: Final = 12.0
"""The next play begins so many times the CPU time of the last one after its end: plays take at most
a thirteenth of one processor."""
AGE_MAX: Final = 600.0
"""An older forecast is not given."""


@dataclass(slots=True)
class Forecasts:
    """The forecast of one tree, made at ``made_at``: the interval of each start from then on.
    ``after``: the workloads that free the quota for the start, where these are known. ``holding``:
    what held quota then. ``broken``: workloads that are left out, because their data raise an
    exception; ``failed``: the whole tree has no forecast for such a reason. ``played``: what was
    played beside quota, in words. ``words``: the basis, by ClusterQueue and namespace, filled when
    it is asked for."""

    made_at: float
    starts: Mapping[Key, Interval]
    holding: Sequence[Holding]
    after: Mapping[Key, tuple[Key, ...]] = field(default_factory=dict)
    broken: Collection[Key] = ()
    failed: bool = False
    played: str = ""
    words: dict[tuple[str, str], str] = field(default_factory=dict)
    _why_not_found: str | None = None

    def why_not_found(self, run_times: RunTimes) -> str:
        """Why it has no start of a workload that could start: `words.why_not_found`, computed for
        the first such workload only, since it reads all that holds quota."""
        if self._why_not_found is None:
            self._why_not_found = why_not_found(self.holding, run_times)
        return self._why_not_found


class Turn(NamedTuple):
    """``tree``: the tree to play now; None: none before the time ``at``, which is infinite if only
    a question makes the next play due."""

    tree: str | None
    at: float


class Answers:
    """Questions and forecasts by tree. All times are seconds since the epoch."""

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}
        self._made: dict[str, Forecasts] = {}
        self._rest_until = -inf

    def ask(self, tree: str, now: float) -> None:
        """Notes a question about a workload of the tree."""
        self._asked[tree] = now

    def turn(self, now: float) -> Turn:
        """Which tree is played next: the one with the oldest forecast, of those that are asked
        about."""
        # A clock that was set back must not stop the plays.
        if self._rest_until > now + AGE_MAX:
            self._rest_until = now
        for tree, at in list(self._asked.items()):
            if not now - ASKED_SECONDS <= at <= now:
                del self._asked[tree]
        due = min(((self._due(tree, now), tree) for tree in self._asked), default=None)
        if due is None:
            return Turn(None, inf)
        at = max(due[0], self._rest_until)
        return Turn(due[1], now) if at <= now else Turn(None, at)

    def _due(self, tree: str, now: float) -> float:
        made = self._made.get(tree)
        return -inf if made is None or made.made_at > now else made.made_at + FRESH_SECONDS

    def made(self, tree: str, found: Forecasts, cpu_seconds: float, now: float) -> None:
        """Keeps a forecast, which took so much CPU time until now."""
        self._made[tree] = found
        self._rest_until = now + PAUSE_FACTOR * cpu_seconds
        self._drop_old(now)

    def get(self, tree: str, now: float) -> Forecasts | None:
        """The forecast of a tree; None: it is too old, or there is none yet."""
        self._drop_old(now)
        return self._made.get(tree)

    def _drop_old(self, now: float) -> None:
        for tree, made in list(self._made.items()):
            if not now - AGE_MAX <= made.made_at <= now:
                del self._made[tree]

    def oldest(self, now: float) -> float:
        """The age in seconds of the oldest forecast that would be given; 0: there is none."""
        self._drop_old(now)
        return max((now - made.made_at for made in self._made.values()), default=0.0)
