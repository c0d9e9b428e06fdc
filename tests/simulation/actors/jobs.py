"""What outlives a runner: its folder, and jobs that run on under their shims."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from admittance.runner.decide import Run
from simulation.courses import Course
from simulation.kernel import Kernel

if TYPE_CHECKING:
    from simulation.actors.runner import Runner

TTL: Final = 30.0
LEASE_STOP: Final = 0.8 * TTL


class Job:
    """What a shim keeps: its journal is there for whichever runner comes."""

    def __init__(self, kernel: Kernel, key: str, on_news: Callable[[Job], None]) -> None:
        self.key = key
        self.up = False
        self.ready = False
        self.flaps = 0
        """How often its pods have become ready, or not ready any more, after the first time."""
        self.started = False
        self.is_silent = False
        """It ended, and nothing of it tells so."""
        self.deaf = False
        self.mute = False
        self.told = ""
        """As what it ends since it was told to."""
        self.outcome: tuple[str, str] | None = None
        self._kernel = kernel
        self._on_news = on_news

    def start(self, course: Course) -> None:
        kernel = self._kernel
        self.started = True
        self.deaf = course.deaf
        self.mute = course.mute
        came_up = 0.01 + kernel.rng.random() * 0.1

        def up() -> None:
            if self.outcome is None:
                self.up = True
                self.ready = self.ready or not course.ready
                self._on_news(self)

        def turn(ready: bool, flaps: int) -> None:
            if self.outcome is None:
                self.ready = ready
                self.flaps = flaps
                self._on_news(self)

        kernel.after(came_up, up)
        came_up += course.ready
        if course.ready:
            kernel.after(came_up, lambda: turn(True, 0))
        if course.flaps is not None:
            gone, back = course.flaps
            kernel.after(came_up + gone, lambda: turn(False, 1))
            kernel.after(came_up + back, lambda: turn(True, 2))
        ending = "succeeded" if course.succeeds else "failed"
        kernel.after(course.seconds, lambda: self.end(ending))

    def stop(self, kind: str) -> None:
        """Told to end; it takes its time. Whatever its exit code says from now on is no result."""
        if self.deaf:
            return
        self.told = self.told or kind

        def end() -> None:
            self.is_silent = self.mute and self.outcome is None
            self.end(kind)

        self._kernel.after(self._kernel.rng.random() * 3.0, end)

    def end(self, kind: str) -> None:
        if self.outcome is None:
            self.outcome = (self.told or kind, "")
            self._on_news(self)


class Folder:
    """The data folder: jobs, notes of why they were to stop, and what is closed."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.jobs: dict[str, Job] = {}
        self.closed: set[str] = set()
        self.held: dict[str, int] = {}
        self.silences = 0
        self.service: Runner | None = None


def silence(kernel: Kernel, runner: Runner) -> None:
    """The runner renews nothing any more: its jobs end before its claims do. Whoever lets it go
    on counts ``silences`` up."""
    folder, claims = runner.folder, runner.server.claims
    since = kernel.rng.random() * TTL / 3
    number = folder.silences
    held = {key: claims.last[key].sequence for key in folder.held if key in claims.last}

    def stop() -> None:
        if folder.silences == number:
            for job in folder.jobs.values():
                job.end("lost")

    def expire() -> None:
        if folder.silences == number:
            for key, sequence in held.items():
                claims.expire(key, sequence)

    kernel.after(max(0.0, LEASE_STOP - since), stop)
    kernel.after(TTL - since, expire)
