"""The courses of jobs: duration, result, the time when pods are ready, and whether a job stops when
asked."""

from __future__ import annotations

from random import Random
from typing import NamedTuple


class Course(NamedTuple):
    """One job. ``ready``: seconds until its pods are ready; ``flaps``: seconds after which they are
    not, any more, and ready again. ``ignores_stop``: the job ignores a stop and runs to its own
    end. ``hangs``: the job stops when asked, but its shim hangs."""

    seconds: float
    succeeds: bool = True
    ready: float = 0.0
    flaps: tuple[float, float] | None = None
    ignores_stop: bool = False
    hangs: bool = False


class Courses(NamedTuple):
    """Chances of the jobs of a run, and lengths (seconds) to choose from."""

    lengths: tuple[float, ...] = (0.2, 2.0, 15.0)
    slow: float = 0.0
    """Its pods are ready late, perhaps too late."""
    flapping: float = 0.0
    ignores_stop: float = 0.0
    hangs: float = 0.0
    fails: float = 0.1
    """The job ends as failed."""
    unprepared: float = 0.0
    """The prolog of the machine fails."""

    def draw(self, rng: Random, *, calm: bool) -> Course:
        """The next job's. ``calm``: it does what is asked of it."""
        course = Course(
            rng.choice(self.lengths) * (0.5 + rng.random()), rng.random() < 1.0 - self.fails
        )
        if calm:
            return course
        if rng.random() < self.slow:
            course = course._replace(ready=rng.random() * 20.0)
        if rng.random() < self.flapping:
            first = rng.random() * 4.0
            course = course._replace(flaps=(first, first + rng.random() * 12.0))
        return course._replace(
            ignores_stop=rng.random() < self.ignores_stop, hangs=rng.random() < self.hangs
        )
