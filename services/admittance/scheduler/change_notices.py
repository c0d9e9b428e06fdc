"""Says on the bus in which domains quota or queues changed. Facts about workloads reach only users
of their namespace, but their quota is part of the numbers that other users see."""

from __future__ import annotations

import asyncio
from typing import Final

from admittance.events.names import token
from admittance.events.subjects import CHANGED
from admittance.runtime.bus.bus import Bus
from admittance.scheduling.scheduler import Scheduler

PAUSE_SECONDS: Final = 0.25
"""Time between two messages about one domain."""


class ChangeNotices:
    """Publishes an empty message for each changed domain of the core. A message that is lost with
    the connection is not repeated: the next change has its own."""

    def __init__(self, bus: Bus, core: Scheduler) -> None:
        self._bus = bus
        self._core = core
        self._changed = asyncio.Event()

    def look(self) -> None:
        """Lets `run` publish, if the core has changed domains."""
        if self._core.has_changed_domains:
            self._changed.set()

    async def run(self) -> None:
        """Publishes until it is cancelled, at most four messages a second about each domain."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            names = self._core.changed_domains()
            if names:
                await self._bus.publish_unacknowledged(
                    *((f"{CHANGED}{token(name)}", b"") for name in names)
                )
                await asyncio.sleep(PAUSE_SECONDS)
