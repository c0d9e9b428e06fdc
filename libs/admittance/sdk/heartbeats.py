"""Heartbeats of a program: published periodically, and at once after a change in any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from admittance.runtime.bus.bus import Bus
from admittance.runtime.tasks import set_within
from admittance.sdk.limits import clipped_message

PAUSE_SECONDS: Final = 1.0
"""Shortest time between two heartbeats."""
MESSAGE_MAX: Final = 1024
"""The most characters of a heartbeat's message that receivers keep."""


class ChangeSignal:
    """Signals a change to event loops, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def send(self) -> None:
        """Sets the events of all listeners, if there are any."""
        with self._lock:
            for loop, changed in self._listeners:
                # RuntimeError: the event loop has ended, so its listener does not exist any more.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(changed.set)

    @contextmanager
    def listener(self) -> Iterator[asyncio.Event]:
        """Returns an event of the running loop that each change sets."""
        listener = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._listeners.append(listener)
        try:
            yield listener[1]
        finally:
            with self._lock:
                self._listeners.remove(listener)


async def beat(
    bus: Bus, changes: ChangeSignal, heartbeat: Callable[[], tuple[str, bytes]], *, seconds: float
) -> None:
    """Publishes ``heartbeat()``, a subject and a payload, every ``seconds`` and after each change,
    until cancelled."""
    pause = min(PAUSE_SECONDS, seconds / 2)
    with changes.listener() as changed:
        while True:
            changed.clear()
            if bus.nc.is_connected:
                await bus.publish_unacknowledged(heartbeat())
            await asyncio.sleep(pause)
            await set_within(changed, seconds - pause)


def heartbeat_message(message: str) -> str:
    """A message cut to the length that a heartbeat may have."""
    return clipped_message(message, MESSAGE_MAX)
