"""Virtual time: a heap of events, and processes that can be killed and paused between any two.

A task is a generator. It yields how long it sleeps (seconds), a `Signal` it waits for, or a pair
of a signal and a time after which it goes on anyway. Nothing here reads a clock, and all chance is
the ``rng`` handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from random import Random
from types import GeneratorType
from typing import Any, Final, TypeAlias

START: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)

Wait: TypeAlias = "float | Signal | tuple[Signal, float | None]"
Task: TypeAlias = "GeneratorType[Any, Any, Any]"
"""What it yields is a `Wait`. Any: mypy cannot follow ``yield from`` through unions otherwise."""
Call: TypeAlias = Callable[[], None]


class Killed(Exception):
    """A process ends itself: what it met cannot be handled while it runs."""


class Kernel:
    """Time and events. ``now`` counts seconds from `START`."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = 0.0
        self.steps = 0
        self._number = 0
        self._events: list[tuple[float, int, Call]] = []

    def at(self, when: float, call: Call) -> None:
        """Have call done at that time; of equal times, in the order of asking."""
        self._number += 1
        heappush(self._events, (when, self._number, call))

    def after(self, delay: float, call: Call) -> None:
        """Have call done after delay seconds."""
        self.at(self.now + delay, call)

    def run(self, until: float) -> bool:
        """Everything up to that time. False: events were left over."""
        events = self._events
        while events:
            when = events[0][0]
            if when > until:
                self.now = until
                return False
            _, _, call = heappop(events)
            self.now = max(self.now, when)
            self.steps += 1
            call()
        return True

    def time(self, skew: float = 0.0) -> datetime:
        """What a clock shows that is ``skew`` seconds ahead."""
        return START + timedelta(seconds=self.now + skew)


class Signal:
    """Like an event of asyncio: set until it is cleared."""

    __slots__ = ("is_set", "waiting")

    def __init__(self) -> None:
        self.is_set = False
        self.waiting: list[Call] = []

    def set(self) -> None:
        """Wakes all waiting tasks."""
        self.is_set = True
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()

    def clear(self) -> None:
        self.is_set = False


class Future:
    """An answer that comes once."""

    __slots__ = ("signal", "value")

    def __init__(self) -> None:
        self.signal = Signal()
        self.value: Any = None

    def settle(self, value: Any) -> None:
        """The answer is there; a second one is dropped."""
        if not self.signal.is_set:
            self.value = value
            self.signal.set()


class Process:
    """Some tasks that live, pause and die together, as those of a real process do.

    ``skew``: how far its clock is ahead. ``on_end`` is called when it died, with why.
    """

    def __init__(self, kernel: Kernel, name: str, *, skew: float = 0.0) -> None:
        self.kernel = kernel
        self.name = name
        self.skew = skew
        self.alive = True
        self.paused = False
        self.on_end: Callable[[str], None] = lambda _: None
        self._heard: list[Call] = []
        self._due: list[Call] = []
        self._tasks: list[Task] = []

    def now(self) -> datetime:
        """What its clock shows."""
        return self.kernel.time(self.skew)

    def start(self, task: Task) -> None:
        """One more task."""
        self._tasks.append(task)
        self.kernel.after(0.0, lambda: self._go(task, None))

    def kill(self, why: str = "killed") -> None:
        """Everything ends where it stands."""
        if not self.alive:
            return
        self.alive = False
        self._heard.clear()
        self._due.clear()
        for task in self._tasks:
            if not task.gi_running:
                task.close()
        self._tasks.clear()
        self.on_end(why)

    def pause(self) -> None:
        """Stands still, as after SIGSTOP."""
        self.paused = True

    def resume(self) -> None:
        """Goes on: hears what it missed, in order, before or after it does what was due."""
        self.paused = False
        (heard, due), self._heard, self._due = (self._heard, self._due), [], []
        for call in heard + due if self.kernel.rng.random() < 0.5 else due + heard:
            self.kernel.after(0.0, call)

    def do(self, call: Call) -> None:
        """Has call done by the process: never after its death, and not while it is paused."""
        if not self.alive:
            return
        if self.paused:
            self._heard.append(lambda: self.do(call))
        else:
            call()

    def _go(self, task: Task, value: Any) -> None:
        if not self.alive:
            return
        if self.paused:
            self._due.append(lambda: self._go(task, value))
            return
        try:
            wanted = task.send(value)
        except StopIteration:
            self._tasks.remove(task)
            return
        except Killed as error:
            self.kill(str(error))
            return
        if not self.alive:
            return
        if isinstance(wanted, Signal):
            self._wait(task, wanted, None)
        elif isinstance(wanted, tuple):
            self._wait(task, *wanted)
        else:
            self.kernel.after(wanted, lambda: self._go(task, True))

    def _wait(self, task: Task, signal: Signal, timeout: float | None) -> None:
        """The task goes on with True when the signal is set, with False when time is over."""
        if signal.is_set:
            self.kernel.after(0.0, lambda: self._go(task, True))
            return
        done = False

        def go(value: bool) -> None:
            nonlocal done
            if not done:
                done = True
                self._go(task, value)

        signal.waiting.append(lambda: self.kernel.after(0.0, lambda: go(True)))
        if timeout is not None:
            self.kernel.after(timeout, lambda: go(False))
