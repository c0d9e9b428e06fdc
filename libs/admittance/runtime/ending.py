"""Ends tasks in time: those that lose a cancellation, and those that wait for a bus that is away.

`asyncio.wait_for` of Python 3.11 drops a cancellation that comes in the same turn as the answer it
waits for; what waits for such a task after one `cancel` may wait without end.

A service that is asked to end says goodbye and acknowledges what it has done. All of that saves
time for its successor, and none of it is needed: a service may be killed at any moment. So a
service gets a few seconds to end in order, is cancelled after them, and the process ends even where
a task or a thread does not let go. A container engine sends SIGKILL after 10 s unless told
otherwise, and an upgrade waits for each service in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final

from admittance.runtime.errors import AdmittanceError
from admittance.runtime.logger import logger

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
