"""Ends tasks, also those that lose a cancellation.

`asyncio.wait_for` of Python 3.11 drops a cancellation that comes in the same turn as the answer it
waits for; whoever waits for such a task after one `cancel` may wait for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any


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
