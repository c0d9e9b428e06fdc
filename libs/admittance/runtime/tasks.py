"""Several tasks that are one work: they begin together, and when one of them fails all end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.telemetry.logger import logger


@asynccontextmanager
async def parts() -> AsyncIterator[asyncio.TaskGroup]:
    """Goes on until all tasks of the group have ended. Raises what one of them raised: an
    AdmittanceError alone, so that whoever began tells a lost bucket from a bug by its type."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except* AdmittanceError as group:
        raise group.exceptions[0] from None


GRACE_SECONDS: Final = 2.0
"""For ending in order. Far more than it takes while the bus answers."""
CANCEL_SECONDS: Final = 1.0
"""For a cancelled task, after which it is left behind."""
PROCESS_SECONDS: Final = 4.0
"""From the signal to the end of the process, whatever still runs in it."""

log = logger()


async def end(task: asyncio.Task[Any], *, again_seconds: float = 0.5) -> None:
    """Cancels task until it has ended. What it raised instead is raised here."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=again_seconds)
    if not task.cancelled():
        task.result()


def go_on() -> None:
    """Raises CancelledError where the current task was cancelled and has lost that: also the client
    of the bus drops a cancellation, while it flushes. For loops that nothing else ends."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def in_time(
    stop: asyncio.Event,
    work: Coroutine[Any, Any, None],
    *,
    grace_seconds: float | None = GRACE_SECONDS,
) -> None:
    """Runs work, which ends in order once stop is set; it is cancelled grace_seconds after that.
    None: it has its own limit, as a runner whose jobs have their grace periods.

    What work raises is raised; but not the trouble of a bus that is away at the end, which is no
    reason for an exit status of 1.
    """
    task = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait([task], timeout=grace_seconds)
            if not task.done():
                log.warning("does_not_end_in_order", seconds=grace_seconds)
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
        log.warning("ended_with_trouble", reason=str(error))


async def _cancelled(task: asyncio.Task[Any]) -> None:
    """Cancels task, and waits for it so long that nothing but a bug keeps it."""
    with contextlib.suppress(TimeoutError, Exception):
        async with asyncio.timeout(CANCEL_SECONDS):
            await end(task, again_seconds=0.2)


def process_ends_within(seconds: float = PROCESS_SECONDS) -> None:
    """From now on the process has so long; then it ends with status 0, whatever still runs in it.
    For the moment in which it is asked to end."""

    def force() -> None:
        log.warning("ended_by_force", seconds=seconds)
        os._exit(0)

    timer = threading.Timer(seconds, force)
    timer.daemon = True
    timer.start()


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether the event is set, now or within so long; None: waits for as long as it takes."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def first_of(*tasks: asyncio.Task[Any], event: asyncio.Event) -> None:
    """Waits until one of the tasks has ended, or the event is set. For events that one of the tasks
    sets: waiting for the event alone would wait forever once that task has failed."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def set_before(event: asyncio.Event, when: datetime | None) -> bool:
    """Whether the event is set, now or before that time; None: waits for as long as it takes."""
    seconds = None if when is None else max(0.0, (when - clock.now()).total_seconds())
    return await set_within(event, seconds)
