"""Heartbeats: published periodically, and at once after a change in any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from admittance.runtime.bus.bus import Bus
from admittance.runtime.tasks import set_within
from admittance.sdk.limits import clipped

PAUSE_SECONDS: Final = 1.0
"""Shortest pause between two heartbeats."""
MESSAGE_MAX: Final = 1024
"""Characters of a message that receivers keep."""


class ChangeSignal:
    """Tells event loops about a change. `tell` may be called in any thread, also without
    listeners."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def tell(self) -> None:
        """Signals a change."""
        with self._lock:
            for loop, changed in self._heard:
                # RuntimeError: the loop has ended, so its listener is gone.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(changed.set)

    @contextmanager
    def heard(self) -> Iterator[asyncio.Event]:
        """An event of the running loop that each change sets."""
        listener = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._heard.append(listener)
        try:
            yield listener[1]
        finally:
            with self._lock:
                self._heard.remove(listener)


async def beat(
    bus: Bus, changes: ChangeSignal, heartbeat: Callable[[], tuple[str, bytes]], *, seconds: float
) -> None:
    """Publishes ``heartbeat()``, a subject and a payload, every ``seconds`` and after each change,
    until cancelled."""
    pause = min(PAUSE_SECONDS, seconds / 2)
    with changes.heard() as changed:
        while True:
            changed.clear()
            if bus.nc.is_connected:
                await bus.tell(heartbeat())
            await asyncio.sleep(pause)
            await set_within(changed, seconds - pause)


def shortened(message: str) -> str:
    """A message cut for a heartbeat: one too long would close the connection."""
    return clipped(message, MESSAGE_MAX)
