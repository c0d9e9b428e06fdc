"""Calls the functions that the author of a check or provider wrote, and calls them again after a
failure. Plain functions run in threads, which block neither the event loop nor the end of the
process.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from admittance.backoff import Backoff

PAUSE_MIN: Final = 1.0
PAUSE_MAX: Final = 60.0
"""The shortest and the longest pause, in seconds, between two calls of a function that raises."""

T = TypeVar("T")


class Threads:
    """Runs calls in up to ``most`` daemon threads, created as needed. Python's own thread pool
    would wait for a hanging call and so keep the process from ending.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._made = 0
        self._idle = 0
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    async def outcome(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls the function, a coroutine function in the event loop and a plain function in a
        thread, and returns or raises what the function returns or raises.
        """
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        answer = await self.call(function, *arguments)
        # The function may return a coroutine without being a coroutine function.
        return await answer if inspect.isawaitable(answer) else answer

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Runs the function in a thread, and returns or raises what the function returns or raises.
        After a first cancellation the caller still waits for the function, because nothing ends a
        thread; after a second cancellation the caller does not wait.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def settle(done: Callable[..., None], value: Any) -> None:
            if not outcome.done():
                done(value)

        def work() -> None:
            try:
                answer = context.run(function, *arguments)
            except BaseException as error:
                told: tuple[Callable[..., None], Any] = (outcome.set_exception, _shown(error))
            else:
                told = (outcome.set_result, answer)
            # ``call_soon_threadsafe`` raises RuntimeError if the event loop has ended; then no
            # caller waits for the outcome.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, *told)

        self._take(work)
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            if not outcome.done():
                await asyncio.wait([outcome])
            if outcome.done() and not outcome.cancelled():
                outcome.exception()
            raise

    def _take(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._made < self._most:
                self._made += 1
                threading.Thread(target=self._run, name="call", daemon=True).start()
        self._calls.put(work)

    def _run(self) -> None:
        while True:
            self._calls.get()()
            with self._lock:
                # A call that was queued while no thread was idle reserved none, so the count of
                # idle threads is limited to the threads that were started.
                self._idle = min(self._idle + 1, self._made)


def author_backoff() -> Backoff:
    """The pauses between failed calls of an author's function: 1, 2, 4, … 60 seconds."""
    return Backoff(PAUSE_MIN, PAUSE_MAX)


async def run_to_completion(call: Awaitable[T]) -> T:
    """Runs a call to completion even if the caller is cancelled: an abandoned call might still
    create something, after the release that should free it."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        raise


def from_thread(call: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None) -> T:
    """Runs a coroutine in the event loop and waits for its end in this thread. Raises RuntimeError
    if the loop does not run, and if called in the loop's own thread, which would wait for itself.
    """
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is not None and here is loop:
        call.close()
        raise RuntimeError(
            "the call blocks the event loop that must run it: await the call instead"
        )
    if loop is None or loop.is_closed():
        call.close()
        raise RuntimeError("the program is not running")
    return asyncio.run_coroutine_threadsafe(call, loop).result()


def _shown(error: BaseException) -> BaseException:
    # An asyncio future refuses StopIteration as its exception, and a SystemExit or
    # KeyboardInterrupt of the function must not end the event loop.
    if isinstance(error, StopIteration | KeyboardInterrupt | SystemExit):
        return RuntimeError(f"the function raised {error!r}")
    return error
