"""Calls of somebody's functions: plain ones each in a thread, which holds up neither the event loop
nor the end of the process."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """Up to ``most`` threads, made as they are needed. They are daemons: a call that hangs would
    keep Python's own pool, and with it the process, from ending."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made = 0
        self._idle = 0
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    async def outcome(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What somebody's function answers, or raises: one that is a coroutine in the event loop, a
        plain one in a thread."""
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        answer = await self.call(function, *arguments)
        # A callable that makes a coroutine without looking like one.
        return await answer if inspect.isawaitable(answer) else answer

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """What function answers, or raises. Cancelled, it waits for the function all the same,
        since nothing ends a thread; cancelled twice, it does not."""
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
            # Where the loop has ended, nobody waits any more.
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
                # Calls that wait are taken without having been promised an idle thread.
                self._idle = min(self._idle + 1, self._made)


def from_thread(call: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None) -> T:
    """What a call in the event loop answers, waited for by a thread. Raises RuntimeError where that
    loop does not run, and in the loop's own thread, which would wait for itself."""
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is not None and here is loop:
        call.close()
        raise RuntimeError("this is the event loop, and no thread: await the call instead")
    if loop is None or loop.is_closed():
        call.close()
        raise RuntimeError("the program is not running")
    return asyncio.run_coroutine_threadsafe(call, loop).result()


def _shown(error: BaseException) -> BaseException:
    # A future takes no StopIteration, and an exit is not the loop's.
    if isinstance(error, StopIteration | KeyboardInterrupt | SystemExit):
        return RuntimeError(f"the function raised {error!r}")
    return error
