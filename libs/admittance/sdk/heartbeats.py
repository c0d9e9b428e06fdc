"""Heartbeats: said so often, and at once where something changed, in whatever thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from admittance.runtime.bus.bus import Bus
from admittance.runtime.tasks import set_within
from admittance.sdk.bounds import sayable

PAUSE_SECONDS: Final = 1.0
"""However often something changes, once a second is enough."""
MESSAGE_MAX: Final = 1024
"""Characters; of a longer message no more is kept by whoever hears it."""


class Changes:
    """Tells event loops that something changed. `tell` may be called in any thread, also while
    nobody listens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def tell(self) -> None:
        """Something changed."""
        with self._lock:
            for loop, changed in self._heard:
                # Where the loop has ended, nobody listens any more.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(changed.set)

    @contextmanager
    def heard(self) -> Iterator[asyncio.Event]:
        """An event of the running loop, set by each change."""
        listener = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._heard.append(listener)
        try:
            yield listener[1]
        finally:
            with self._lock:
                self._heard.remove(listener)


async def beat(
    bus: Bus, subject: str, changes: Changes, now: Callable[[], bytes], *, seconds: float
) -> None:
    """Says ``now()`` on subject every so many seconds, and where something changed; for ever."""
    pause = min(PAUSE_SECONDS, seconds / 2)
    with changes.heard() as changed:
        while True:
            changed.clear()
            if bus.nc.is_connected:
                await bus.tell((subject, now()))
            await asyncio.sleep(pause)
            await set_within(changed, seconds - pause)


def shortened(message: str) -> str:
    """A message as a heartbeat takes it: of any length it would close the connection."""
    return sayable(message, MESSAGE_MAX)
