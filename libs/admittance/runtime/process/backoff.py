"""Pauses between tries of what ends soon after it begins: each twice as long as the one before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

CALM_SECONDS: Final = 10.0
"""What lasted so long did not end at once, and is tried again without a pause."""
PAUSE_MIN: Final = 0.1
PAUSE_MAX: Final = 5.0


class Backoff:
    """``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._pause = 0.0

    def begun(self) -> None:
        """It is tried now."""
        self._began = self._clock()

    def next(self) -> float:
        """It has ended: seconds until it should be tried again."""
        if self._clock() - self._began >= CALM_SECONDS:
            self._pause = 0.0
        pause = self._pause
        self._pause = min(max(PAUSE_MIN, 2 * pause), PAUSE_MAX)
        return pause

    async def pause(self, stopping: asyncio.Task[Any]) -> None:
        """Waits so long, or until ``stopping`` is done."""
        seconds = self.next()
        if seconds:
            await asyncio.wait([stopping], timeout=seconds)
