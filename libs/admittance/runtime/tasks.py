"""asyncio tasks: groups of tasks that end together, the owner of tasks in the background, ending
tasks within a time limit, waits for events, and calls that are repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar

from admittance.backoff import Backoff
from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.telemetry.logger import logger

T = TypeVar("T")


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Runs a group of tasks until all have ended; if one task fails, all end. Raises an
    AdmittanceError of a task alone, not as a group, so that the caller can distinguish a lost
    bucket from a bug by its type.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        # `except*` of Python 3.11.2 would raise the error in a group again.
        expected, others = group.split(AdmittanceError)
        if expected is None or others is not None:
            raise
        raise expected.exceptions[0] from None


GRACE_SECONDS: Final = 2.0
"""Seconds that the orderly shutdown of a service may take: far more than a shutdown needs while the
bus answers.
"""
CANCEL_SECONDS: Final = 1.0
"""Longest wait for the end of a cancelled task; then the task is abandoned."""
PROCESS_SECONDS: Final = 4.0
"""Most seconds from the stop signal to the end of the process."""

log = logger()


async def cancel_and_wait(task: asyncio.Task[Any], *, again_seconds: float = 0.5) -> None:
    """Cancels a task, again every ``again_seconds``, until it has ended. Raises the exception of
    the task, if it ended with one.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=again_seconds)
    if not task.cancelled():
        task.result()


def raise_if_cancelled() -> None:
    """Raises CancelledError if the current task was cancelled but the cancellation was lost:
    nats-py loses a cancellation while it flushes. Loops that end only by cancellation, such as
    readers, call this function.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


@contextmanager
def cancellation_kept() -> Iterator[None]:
    """Raises CancelledError at the end of the block if the current task was cancelled in the block
    and the block lost the cancellation. `asyncio.wait_for` of Python 3.11, which nats-py uses,
    loses a cancellation that comes together with the answer.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


async def run_with_grace(
    stop: asyncio.Event,
    work: Coroutine[Any, Any, None],
    *,
    grace_seconds: float | None = GRACE_SECONDS,
) -> None:
    """Runs ``work``, which ends in order once ``stop`` is set, and cancels it ``grace_seconds``
    after that. With ``grace_seconds`` None the work may take any time after ``stop``: a runner
    waits for the grace periods of its jobs.

    Raises what the work raises, except an AdmittanceError after ``stop``: a bus that is not
    available at the end is no reason for exit status 1.
    """
    task = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait([task], timeout=grace_seconds)
            if not task.done():
                log.warning("end_timed_out", seconds=grace_seconds)
                await _cancelled(task)
                return
    finally:
        stopping.cancel()
        if not task.done():
            await _cancelled(task)
    try:
        task.result()
    except AdmittanceError as error:
        if not stop.is_set():
            raise
        log.warning("end_failed", reason=str(error))


async def _cancelled(task: asyncio.Task[Any]) -> None:
    """Cancels a task and waits up to `CANCEL_SECONDS` for its end."""
    with contextlib.suppress(TimeoutError, Exception):
        async with asyncio.timeout(CANCEL_SECONDS):
            await cancel_and_wait(task, again_seconds=0.2)


def process_ends_within(seconds: float = PROCESS_SECONDS) -> None:
    """Ends the process with status 0 after ``seconds``, even if tasks still run. Call
    `process_ends_within` when the process is asked to end.
    """

    def force() -> None:
        log.warning("ended_by_force", seconds=seconds)
        os._exit(0)

    timer = threading.Timer(seconds, force)
    timer.daemon = True
    timer.start()


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether the event is set now or within ``seconds``; None waits without limit."""
    if seconds is None or event.is_set():
        return await event.wait()
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def first_of(*tasks: asyncio.Task[Any], event: asyncio.Event) -> None:
    """Waits until one of the tasks has ended or the event is set. Use `first_of` for events that
    one of the tasks sets: a wait for the event alone would never end once that task has failed.
    """
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def set_before(event: asyncio.Event, when: datetime | None) -> bool:
    """Whether the event is set now or before ``when``; None waits without limit."""
    seconds = None if when is None else max(0.0, (when - clock.now()).total_seconds())
    return await set_within(event, seconds)


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancels the tasks, and waits until they have ended. Their errors are not raised."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _log_failure(task: asyncio.Task[Any], error: BaseException) -> None:
    log.error("task_failed", task=task.get_name(), exc_info=error)


class BackgroundTasks:
    """Owns tasks that no caller awaits: keeps each until it has ended, since the event loop does
    not, reports each error, and ends all.

    ``failed``: called with each task that ended with an error, and the error; without it the error
    is logged.
    """

    def __init__(
        self, failed: Callable[[asyncio.Task[Any], BaseException], object] = _log_failure
    ) -> None:
        self._failed = failed
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """The tasks that have not ended."""
        return iter(list(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._tasks

    def get(self, key: Hashable) -> asyncio.Task[Any] | None:
        """The task that was started with the key; None if it has ended."""
        return self._tasks.get(key)

    def start(
        self, work: Coroutine[Any, Any, T], *, name: str | None = None, key: Hashable = None
    ) -> asyncio.Task[T]:
        """Runs the work as a task. ``key``: finds the task while it runs; one task has it."""
        task = asyncio.create_task(work, name=name)
        held = task if key is None else key
        self._tasks[held] = task
        task.add_done_callback(lambda ended: self._ended(held, ended))
        return task

    def _ended(self, held: Hashable, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(held) is task:
            del self._tasks[held]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(task, error)

    async def settled(self, timeout: float | None = None) -> None:
        """Waits until the present tasks have ended, at most ``timeout`` seconds."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=timeout)

    def cancel(self) -> None:
        """Cancels all tasks, and does not wait for their end."""
        for task in self:
            task.cancel()

    async def end(self) -> None:
        """Cancels all tasks, and waits until they have ended."""
        await end_tasks(*self)


async def until_returned(
    call: Callable[[], Awaitable[T]],
    backoff: Backoff,
    failed: Callable[[Any, float], object],
    *,
    on: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> T:
    """Repeats the call, with the pauses of ``backoff``, until one call returns; returns its result.
    ``failed`` is called with each error and the seconds until the next call; what it raises ends
    the repeating. ``on``: the errors after which the call is repeated; others are raised.
    """
    while True:
        raise_if_cancelled()
        try:
            return await call()
        except on as error:
            pause = backoff.next()
            failed(error, pause)
        await asyncio.sleep(pause)
