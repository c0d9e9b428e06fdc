"""What a leader keeps for later: its journal, and checkpoints. None of it is ever waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from admittance.events.checkpoints import Adopted
from admittance.runtime.bus import Bus
from admittance.runtime.errors import Refused, Unavailable
from admittance.workload_controller.checkpoint import Snapshot, snapshot
from admittance.workload_controller.decide import Controller
from admittance.workload_controller.journal import ADOPTED_MAX, PREFIX, Journal, Told
from admittance.workload_controller.recording import Recorder

CLOSE_SECONDS: Final = 2.0

log = structlog.get_logger()


class Found(NamedTuple):
    """How the bucket was found by a new leader. ``told``: the newest revision that any leader told
    of, and where. ``adopted``: what was written since. ``newest``: the newest revision of all."""

    told: Told
    adopted: list[Adopted]
    newest: int


class Memory:
    """Journal and checkpoints of one leader. ``lock`` is held while something is committed."""

    def __init__(
        self,
        bus: Bus,
        lock: asyncio.Lock,
        controller: Controller,
        found: Found,
        *,
        epoch: int,
        every_seconds: float,
    ) -> None:
        self._controller = controller
        some = bool(len(controller.workloads) or controller.workloads.finished())
        self.journal = Journal(
            bus,
            epoch,
            controller.manifests_floor,
            found.newest,
            begins=not found.told.newest and not some and not controller.read,
        )
        self.journal.told = found.told.sequence
        self.journal.through = controller.read
        self.recorder = Recorder(bus, lock, lambda: self.journal.through, self._take, every_seconds)
        # What was written before anybody told of it can be had from a checkpoint only.
        self._at_once = not found.told.newest and some
        self._adopted = found.adopted if found.told.newest else []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, now: datetime) -> None:
        """Tells what a predecessor could not, and goes on from there."""
        for start in range(0, len(self._adopted), ADOPTED_MAX):
            part = self._adopted[start : start + ADOPTED_MAX]
            self.journal.note(self.journal.through, now, (), part, unsure=True)
        work = {
            "journal": self.journal.run(),
            "checkpoints": self.recorder.run(at_once=self._at_once),
        }
        self._tasks = [asyncio.create_task(one, name=name) for name, one in work.items()]
        for task in self._tasks:
            task.add_done_callback(_told)

    def note(
        self, through: int, now: datetime, written: Sequence[tuple[str, int]], unsure: Sequence[str]
    ) -> None:
        """A commit went through, but for what is unsure and was read anew."""
        adopted = []
        for key in unsure:
            known = self._controller.workloads.get(key)
            if known.revision:
                name = key[len(PREFIX) :]
                adopted.append(Adopted(key=name, revision=known.revision, fact=known.fact))
        self.journal.note(through, now, written, adopted, unsure=bool(unsure))

    async def close(self) -> None:
        """Tells what is left to tell, if the bus takes it at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(Refused, Unavailable, TimeoutError):
            await asyncio.wait_for(self.journal.flush(), CLOSE_SECONDS)

    def _take(self) -> Snapshot:
        journal = self.journal
        return snapshot(self._controller, journal.through, journal.newest, journal.told)


def _told(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        # The facts matter more: the leader goes on, without.
        log.error("memory_lost", what=task.get_name(), error=repr(task.exception()))
