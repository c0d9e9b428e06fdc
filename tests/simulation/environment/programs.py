"""Programs of authors, written with the helpers that ship: what all their replicas share."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import set_within
from simulation.virtual_time.loop import Process, VirtualLoop


class Replica:
    """One life of a program. ``settled`` is set in the end: from then on the program is well, and
    waits for nothing."""

    def __init__(self, program: Program, bus: Bus) -> None:
        self.bus = bus
        self.rng = program.rng
        self.settled = asyncio.Event()
        if program.calm:
            self.settled.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def pause(self, seconds: float | None = None) -> bool:
        """Waits so long, or until it is settled; whether it is."""
        return await set_within(self.settled, seconds)

    def later(self, delay: float, speak: Callable[[], Awaitable[object]]) -> None:
        """Publishes the answer after a delay, if the program still runs then."""
        task = asyncio.ensure_future(_speak(delay, speak))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Program(ABC):
    """A program with replicas that come and go."""

    SERVICE: str

    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self.loop = loop
        self.rng = rng
        self.calm = False
        self.replicas: list[tuple[Process, Replica]] = []

    def settle(self) -> None:
        """Ends the faults of all replicas; the replicas then answer all open requests."""
        self.calm = True
        for process, replica in self.replicas:
            self.loop.post(process, replica.settled.set)

    def join(self, replica: Replica) -> None:
        """Records a replica that has started in the current process."""
        assert self.loop.current is not None
        self.replicas.append((self.loop.current, replica))

    @abstractmethod
    async def run(self, bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
        """Works until stop is set."""


async def _speak(delay: float, speak: Callable[[], Awaitable[object]]) -> None:
    await asyncio.sleep(delay)
    with suppress(AdmittanceError):
        await speak()
