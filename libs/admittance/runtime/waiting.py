"""Waits for an event that may not come.

`asyncio.wait_for` of Python 3.11 drops a cancellation that comes in the same turn as the event;
here none is lost.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from admittance.runtime import clock


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
