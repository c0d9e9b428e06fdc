"""Time and random numbers for all that is not a service: users, admins, checks, jobs,
invariants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import TypeAlias

from simulation.virtual_time.loop import START, VirtualLoop

Call: TypeAlias = Callable[[], None]


class Kernel:
    """Events on a `VirtualLoop`, outside of all processes. ``now`` counts seconds from `START`.

    ``pending`` counts events that are to come. ``at_rest`` returns in the end whether nothing will
    happen any more, since services never rest. ``max_steps``: callbacks in which all must end.
    """

    def __init__(self, rng: Random, loop: VirtualLoop) -> None:
        self.rng = rng
        self.loop = loop
        self.pending = 0
        self.at_rest: Callable[[], bool] = lambda: False
        self.max_steps = 10_000_000

    @property
    def now(self) -> float:
        return self.loop.now

    def at(self, when: float, call: Call) -> None:
        """Schedules the call for that time; calls for the same time run in the order of
        scheduling."""
        self.pending += 1
        self.loop.at(when, self._call, call)

    def after(self, delay: float, call: Call) -> None:
        """Schedules the call after delay seconds."""
        self.at(self.now + delay, call)

    def _call(self, call: Call) -> None:
        self.pending -= 1
        call()

    def run(self, until: float) -> bool:
        """Runs events up to that time, or until none is left. Returns False if events were left at
        that time."""
        steps = self.max_steps - self.loop.steps
        return self.loop.play(until, self.at_rest, max_steps=steps)

    def time(self) -> datetime:
        """The time of an exact clock."""
        return START + timedelta(seconds=self.now)
