"""Writes checkpoints periodically, and deletes old ones.

1. The parts of a new checkpoint are published under the checkpoint's own subject; no reader uses
   them yet.
2. One message completes the checkpoint.
3. Old checkpoints are purged: first their message, then their parts.

A crash within step 1 leaves parts without a message; these parts expire. A crash within step 3
leaves parts without a message, or a message with missing parts, which the reader detects by the
number of parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from itertools import islice
from typing import Final

import msgspec
import structlog

from admittance.control.checkpoint import Packer, Snapshot, rows, superfluous
from admittance.events import subjects
from admittance.events.stored.checkpoints import CheckpointMade, CheckpointRow
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.checkpoints import checkpoints
from admittance.runtime.bus.history import read_messages
from admittance.runtime.errors import BusRefused, BusUnavailable

SLICE: Final = 200
"""The number of rows of a checkpoint that another thread packs in one step; a step takes some
milliseconds."""
FACTS_MAX: Final = 500_000
"""The number of facts after which a checkpoint is due before its time, so that no replay takes too
long.
"""
LOOK_SECONDS: Final = 30.0

log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class CheckpointWriter:
    """Writes the checkpoints of one leader. ``take``: a function that makes a snapshot of the
    workloads; called while ``lock`` is held. ``through``: a function that returns the sequence of
    the last applied fact.
    """

    def __init__(
        self,
        bus: Bus,
        lock: AbstractAsyncContextManager[None],
        through: Callable[[], int],
        take: Callable[[], Snapshot],
        every_seconds: float,
    ) -> None:
        self._bus = bus
        self._lock = lock
        self._through = through
        self._take = take
        self._every = every_seconds

    async def run(self, *, at_once: bool = False) -> None:
        """Writes a checkpoint whenever one is due, until cancelled. ``at_once``: whether the first
        checkpoint is due now.
        """
        due = at_once
        while True:
            try:
                if due or await self._is_due():
                    await self.write()
                    due = False
            except (BusRefused, BusUnavailable) as error:
                # A checkpoint may fail because of a full disk; facts do not wait for checkpoints.
                log.warning("checkpoint_failed", error=str(error))
            await asyncio.sleep(min(LOOK_SECONDS, self._every))

    async def _is_due(self) -> bool:
        # A checkpoint beyond the last applied fact is not valid: the log ends before it, as after a
        # restore from a backup.
        made = [
            checkpoint
            for checkpoint in await checkpoints(self._bus)
            if checkpoint.through <= self._through()
        ]
        newest = made[-1] if made else None
        facts = self._through() - (newest.through if newest is not None else 0)
        if facts <= 0:
            return False
        if facts >= FACTS_MAX:
            return True
        since = newest.time if newest is not None else await self._first()
        return since is not None and (clock.now() - since).total_seconds() >= self._every

    async def _first(self) -> datetime | None:
        """The time of the first message on the log."""
        first = await read_messages(self._bus, ["admit.>"], limit=1)
        return first[0].time if first else None

    async def write(self) -> CheckpointMade:
        """Writes a checkpoint. Raises BusRefused or BusUnavailable if the checkpoint could not be
        completed.
        """
        began = clock.monotonic()
        async with self._lock:
            taken = self._take()
        identity = f"{taken.through}-{taken.revision}"
        packer = Packer()
        left = rows(taken)
        parts = 0
        while True:
            several: list[CheckpointRow] = await asyncio.to_thread(
                lambda: list(islice(left, SLICE))
            )
            more = await asyncio.to_thread(packer.add, several) if several else packer.end()
            for part in more:
                await self._bus.publish(Outgoing(f"{subjects.CHECKPOINT_PART}{identity}", part))
                parts += 1
            if not several:
                break
        made = CheckpointMade(
            id=identity,
            time=clock.now(),
            through=taken.through,
            revision=taken.revision,
            floor=taken.floor,
            rows=packer.rows,
            parts=parts,
            size=packer.size,
            digest=packer.digest(),
            told=taken.journaled,
        )
        await self._bus.publish(Outgoing(f"{subjects.CHECKPOINT_MADE}{identity}", _encode(made)))
        seconds = round(clock.monotonic() - began, 3)
        log.info("checkpoint_made", id=identity, rows=made.rows, bytes=made.size, seconds=seconds)
        await self._purge()
        return made

    async def _purge(self) -> None:
        made = await checkpoints(self._bus)
        for identity in superfluous(
            [(checkpoint.id, checkpoint.time) for checkpoint in made], clock.now()
        ):
            for prefix in (subjects.CHECKPOINT_MADE, subjects.CHECKPOINT_PART):
                await self._bus.api(
                    f"STREAM.PURGE.{subjects.CHECKPOINTS}", {"filter": f"{prefix}{identity}"}
                )
