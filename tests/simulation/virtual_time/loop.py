"""Virtual time for asyncio: one event loop for many processes that are killed, paused and skewed.

The clock jumps to the next timer, so a story of minutes takes milliseconds. There is no selector
and no thread: nothing comes from outside, and with chance from a seed a story repeats itself.

Each callback belongs to a `Process`, or to none: the server, users and faults. What a callback
schedules belongs to the same process. So a process is killed between any two callbacks: none of its
callbacks runs any more, neither do its ``finally`` clauses.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, TypeVar

T = TypeVar("T")

START: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
"""The wall clock at the virtual time 0."""
CALLBACK_SECONDS: Final = 0.00001
"""Virtual time that each callback takes, so that the clock also advances in code that only
yields."""
RUN_SECONDS: Final = 3600.0
"""Longest virtual time that `run_until_complete` plays."""
THREAD_SECONDS: Final = 0.001
"""Virtual time until the result of a thread is available."""


class NoRest(Exception):
    """A story took more callbacks than its limit."""


class VirtualTask(asyncio.Task[T]):
    """A task of a process. Its hash is its number: sets of tasks, such as in a TaskGroup, have the
    same order in every run."""

    number: int
    process: Process | None

    def __hash__(self) -> int:
        return self.number


class VirtualHandle(asyncio.TimerHandle):
    """A callback that waits for its turn. ``due``: its time; 0 for one without a timer."""

    __slots__ = ("args", "callback", "context", "due", "process")

    def __init__(
        self,
        callback: Any,
        args: tuple[Any, ...],
        context: Any,
        process: Process | None,
        due: float,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.process = process
        self.due = due

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.due

    def __repr__(self) -> str:
        return f"<VirtualHandle {self.callback} at {self.due}>"


class Process:
    """A simulated process: callbacks that are killed, paused and resumed together.

    ``skew``: seconds by which its wall clock is ahead. ``on_kill`` are called at its end;
    ``on_end`` when its main coroutine ends by itself, with its error.
    """

    def __init__(self, loop: VirtualLoop, name: str, *, skew: float = 0.0) -> None:
        self.name = name
        self.skew = skew
        self.alive = True
        self.paused = False
        self.context = contextvars.Context()
        self.on_kill: list[Callable[[], None]] = []
        self.on_end: Callable[[BaseException | None], None] = lambda _: None
        self.held: list[VirtualHandle] = []
        """Callbacks that became due while the process was paused."""
        self._loop = loop

    def start(self, main: Coroutine[Any, Any, Any]) -> None:
        """Runs ``main`` as the process. The process ends when this task ends."""

        def begin() -> None:
            task = self._loop.create_task(main, name=self.name)
            task.add_done_callback(ended)

        def ended(task: asyncio.Task[Any]) -> None:
            error = None if task.cancelled() else task.exception()
            self._loop.outside(self.kill)
            self._loop.outside(self.on_end, error)

        self._loop.post(self, begin)

    def kill(self) -> None:
        """Kills the process: none of its callbacks runs any more."""
        if not self.alive:
            return
        self.alive = False
        # Kept to the end of the story: the garbage collector would run `finally` clauses of the
        # dead process while another one is running.
        self._loop.kept.append(self.held)
        self._loop.kept.extend(task for task in self._loop.tasks() if task.process is self)
        for callback in self.on_kill:
            callback()

    def pause(self) -> None:
        """Stops the process as SIGSTOP does: its timers and messages wait."""
        self.paused = True

    def resume(self, rng: Random) -> None:
        """Goes on. Messages that came during the pause are handled either before or after the
        timers that were due in it."""
        self.paused = False
        held, self.held = self.held, []
        timers_first = rng.random() < 0.5
        held.sort(key=lambda handle: (handle.due > 0) != timers_first)
        self._loop.ready.extend(held)


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop; its time is a number.

    ``current``: the process of the callback that runs. ``steps``: callbacks so far. ``complaints``:
    what a real loop would log, such as exceptions that no task retrieved.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self.ready: deque[VirtualHandle] = deque()
        self.current: Process | None = None
        self.complaints: list[str] = []
        self.kept: list[Any] = []
        self._timers: list[tuple[float, int, VirtualHandle]] = []
        self._over = False
        self._thread = threading.get_ident()
        self._strikes: dict[int, Callable[[], None]] = {}
        self._timers_made = 0
        self._tasks_made = 0
        self._tasks: list[weakref.ref[VirtualTask[Any]]] = []
        self._tasks_full = 1000

    # What asyncio asks of a loop. ---------------------------------------------------------

    def time(self) -> float:
        return self.now

    get_debug = bool  # False, and each future asks for it

    def is_running(self) -> bool:
        return True

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> VirtualHandle:
        if context is None:
            context = contextvars.copy_context()
        handle = VirtualHandle(callback, args, context, self.current, 0.0)
        if not self._over:
            self.ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> VirtualHandle:
        """Like `call_soon`. Raises RuntimeError in another thread: virtual time does not wait for
        threads, so a story with one would not repeat itself.
        """
        if threading.get_ident() != self._thread:
            raise RuntimeError(f"{threading.current_thread().name} is a thread beside virtual time")
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> VirtualHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> VirtualHandle:
        if context is None:
            context = contextvars.copy_context()
        return self._timer(VirtualHandle(callback, args, context, self.current, when))

    def is_closed(self) -> bool:
        return self._over

    def set_debug(self, enabled: bool) -> None:
        """Has no effect: there is no debug mode."""

    async def shutdown_asyncgens(self) -> None:
        """Has no effect: `close` closes what is left."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Has no effect: there are no threads."""

    def run_until_complete(self, future: Any) -> Any:
        """Runs the loop until a future is done, as `asyncio.Runner` requires; at most for
        `RUN_SECONDS`."""
        waited = asyncio.ensure_future(future, loop=self)
        self._play(self.now + RUN_SECONDS, waited.done, 10_000_000)
        if not waited.done():
            raise TimeoutError(f"not done within {RUN_SECONDS} virtual seconds")
        return waited.result()

    def close(self) -> None:
        """Ends the story: closes what is left of all processes, and runs nothing of it any more."""
        self._over = True
        asyncio._set_running_loop(self)
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with warnings.catch_warnings():
                # What a process had not awaited when it ended.
                warnings.simplefilter("ignore", RuntimeWarning)
                self._close_all()
        finally:
            sys.unraisablehook = hook
            asyncio._set_running_loop(None)

    def _close_all(self) -> None:
        self.ready.clear()
        self._timers.clear()
        for task in self.tasks():
            # Not "destroyed but pending": that is what happened to its process.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()
        self.kept.clear()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Any = None, **_: Any
    ) -> VirtualTask[Any]:
        if self._over:
            # It will never run, and says so with a warning unless it is closed.
            coro.close()
        task: VirtualTask[Any] = VirtualTask.__new__(VirtualTask)
        self._tasks_made += 1
        # The name too is ours: the counter of asyncio goes on from one story to the next.
        task.number = self._tasks_made
        task.process = self.current
        name = name or f"Task-{self._tasks_made}"
        task.__init__(coro, loop=self, name=name, context=context)  # type: ignore[misc]
        self._tasks.append(weakref.ref(task))
        if len(self._tasks) > self._tasks_full:
            self._tasks = [weakref.ref(task) for task in self.tasks()]
            self._tasks_full = 2 * len(self._tasks) + 1000
        return task

    def tasks(self) -> list[VirtualTask[Any]]:
        """The tasks that have not ended, in the order in which they were made."""
        tasks = (task() for task in self._tasks)
        return [task for task in tasks if task is not None and not task.done()]

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Calls the function after `THREAD_SECONDS` of virtual time, in the loop itself instead of
        a thread, and sets the future's result."""
        done = self.create_future()

        def work() -> None:
            if done.done():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:
                done.set_exception(error)

        self.call_later(THREAD_SECONDS, work)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._over:
            process = self.current.name if self.current is not None else "outside"
            error = context.get("exception")
            self.complaints.append(f"{self.now:.3f} {process}: {context.get('message')} {error!r}")

    default_exception_handler = call_exception_handler

    # Beside processes. --------------------------------------------------------------------

    def wall(self) -> datetime:
        """The time on the wall clock of the current process."""
        skew = self.current.skew if self.current is not None else 0.0
        return START + timedelta(seconds=self.now + skew)

    def post(self, process: Process | None, callback: Any, *args: Any) -> None:
        """Has ``process`` call back soon."""
        context = process.context if process is not None else _OUTSIDE
        self.ready.append(VirtualHandle(callback, args, context, process, 0.0))

    def enter(self, process: Process, callback: Callable[..., None], *args: Any) -> None:
        """Has ``process`` call back at once, or when it goes on after a pause. Called outside of
        all processes."""
        if process.paused:
            process.held.append(VirtualHandle(callback, args, process.context, process, 0.0))
        elif process.alive:
            self.current = process
            try:
                process.context.run(callback, *args)
            except Exception as error:
                self.call_exception_handler({"message": f"in {callback}", "exception": error})
            finally:
                self.current = None

    def at(self, when: float, callback: Any, *args: Any) -> VirtualHandle:
        """Calls back at a time, outside of all processes."""
        return self._timer(VirtualHandle(callback, args, _OUTSIDE, None, when))

    def after(self, delay: float, callback: Any, *args: Any) -> VirtualHandle:
        """Calls back after a delay, outside of all processes."""
        return self.at(self.now + delay, callback, *args)

    def at_step(self, step: int, callback: Callable[[], None]) -> None:
        """Calls back outside of all processes once so many callbacks have run."""
        self._strikes[step] = callback

    def outside(self, callback: Callable[..., None], *args: Any) -> None:
        """Calls back now, outside of all processes."""
        before, self.current = self.current, None
        try:
            callback(*args)
        finally:
            self.current = before

    # Playing. -----------------------------------------------------------------------------

    def play(
        self, until: float, done: Callable[[], bool] | None = None, *, max_steps: int = 10_000_000
    ) -> bool:
        """Plays up to a time, or until ``done`` before a jump of the clock. True if it was done.
        Raises NoRest after ``max_steps`` callbacks, and what fails outside of all processes."""
        with _unregistered():
            return self._play(until, done, max_steps)

    def _play(self, until: float, done: Callable[[], bool] | None, max_steps: int) -> bool:
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._on_lost_generator)
        asyncio._set_running_loop(self)
        limit = self.steps + max_steps
        try:
            while True:
                self._run_ready(limit)
                if done is not None and done():
                    return True
                if not self._timers or self._timers[0][0] > until:
                    self.now = max(self.now, until)
                    return False
                self.now = max(self.now, self._timers[0][0])
                self._wake_timers()
        finally:
            self.current = None
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _run_ready(self, limit: int) -> None:
        ready, timers, strikes = self.ready, self._timers, self._strikes
        while ready:
            handle = ready.popleft()
            callback, process = handle.callback, handle.process
            if callback is None:
                continue
            if process is not None:
                if not process.alive:
                    self.kept.append(handle)
                    continue
                if process.paused:
                    process.held.append(handle)
                    continue
            self.current = process
            self.steps += 1
            self.now += CALLBACK_SECONDS
            try:
                handle.context.run(callback, *handle.args)
            except Exception as error:
                if process is None:
                    raise
                self.call_exception_handler({"message": f"in {callback}", "exception": error})
            if timers and timers[0][0] <= self.now:
                self._wake_timers()
            if strikes and self.steps in strikes:
                self.outside(strikes.pop(self.steps))
            if self.steps > limit:
                raise NoRest(f"{limit} callbacks, and no end")
        self.current = None

    def _timer(self, handle: VirtualHandle) -> VirtualHandle:
        if not self._over:
            self._timers_made += 1
            heappush(self._timers, (handle.due, self._timers_made, handle))
        return handle

    def _wake_timers(self) -> None:
        timers, now = self._timers, self.now
        while timers and timers[0][0] <= now:
            self.ready.append(heappop(timers)[2])

    def _on_lost_generator(self, generator: Any) -> None:
        # Dropped before its end. One of a dead process is kept, one of a living process is closed
        # soon, as asyncio does.
        if self._over or self.current is None or not self.current.alive:
            self.kept.append(generator)
        else:
            self.create_task(generator.aclose())


@contextmanager
def _unregistered() -> Iterator[None]:
    """Has asyncio keep no set of all tasks, which costs a twentieth of a story: the loop has its
    own."""
    # Named like this up to Python 3.11, and afterwards.
    tasks: Any = getattr(asyncio.tasks, "_all_tasks", None)
    if tasks is None:
        tasks = asyncio.tasks._scheduled_tasks  # type: ignore[attr-defined]
    tasks.add = lambda _: None
    try:
        yield
    finally:
        del tasks.add


_OUTSIDE: Final = contextvars.Context()
