"""Writes checkpoints now and then, and throws away those that are not kept.

    1. parts   under the checkpoint's own subject; nobody looks for them yet
    2. made    one message: from here on the checkpoint is one
    3. purge   what is not kept any more: first the word, then the parts

A crash within 1 leaves parts that nobody looks for; they go when their time is over. A crash within
3 leaves parts without a word, or a word whose parts are counted, and found missing.
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

from admittance.events import subjects
from admittance.events.checkpoints import CheckpointMade, Row
from admittance.runtime import clock
from admittance.runtime.bus import Bus, Outgoing
from admittance.runtime.errors import Refused, Unavailable
from admittance.runtime.history import past
from admittance.workload_controller.checkpoint import Packer, Snapshot, rows, superfluous

SLICE: Final = 200
"""Rows packed at a time, in another thread: some milliseconds."""
FACTS_MAX: Final = 500_000
"""Facts after which a checkpoint is due whatever the time, so that no replay takes too long."""
LOOK_SECONDS: Final = 30.0

log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode
_made = msgspec.json.Decoder(CheckpointMade)


class Recorder:
    """Checkpoints of one leader. ``take``: the snapshot between two commits, under ``lock``;
    ``through``: how far the log is dealt with."""

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
        """Writes one whenever it is due; until cancelled. ``at_once``: the first one is."""
        due = at_once
        while True:
            try:
                if due or await self._is_due():
                    await self.write()
                    due = False
            except (Refused, Unavailable) as error:
                # Such as by a full disk: nothing that the facts should wait for.
                log.warning("checkpoint_failed", error=str(error))
            await asyncio.sleep(min(LOOK_SECONDS, self._every))

    async def _is_due(self) -> bool:
        made = await checkpoints(self._bus)
        newest = made[-1] if made else None
        facts = self._through() - (newest.through if newest is not None else 0)
        if facts <= 0:
            return False
        if facts >= FACTS_MAX:
            return True
        since = newest.time if newest is not None else await self._first()
        return since is not None and (clock.now() - since).total_seconds() >= self._every

    async def _first(self) -> datetime | None:
        """Since when there is anything to remember."""
        found = await past(self._bus, ["admit.>"], limit=1)
        return found[0].time if found else None

    async def write(self) -> CheckpointMade:
        """Writes a checkpoint. Raises Refused or Unavailable; then there is none."""
        began = clock.monotonic()
        async with self._lock:
            taken = self._take()
        identity = f"{taken.through}-{taken.revision}"
        packer = Packer()
        left = rows(taken)
        parts = 0
        while True:
            several: list[Row] = await asyncio.to_thread(lambda: list(islice(left, SLICE)))
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
            told=taken.told,
        )
        await self._bus.publish(Outgoing(f"{subjects.CHECKPOINT_MADE}{identity}", _encode(made)))
        seconds = round(clock.monotonic() - began, 3)
        log.info("checkpoint_made", id=identity, rows=made.rows, bytes=made.size, seconds=seconds)
        await self._purge()
        return made

    async def _purge(self) -> None:
        made = await checkpoints(self._bus)
        for identity in superfluous([(one.id, one.time) for one in made], clock.now()):
            for prefix in (subjects.CHECKPOINT_MADE, subjects.CHECKPOINT_PART):
                await self._bus.api(
                    f"STREAM.PURGE.{subjects.CHECKPOINTS}", {"filter": f"{prefix}{identity}"}
                )


async def checkpoints(bus: Bus) -> list[CheckpointMade]:
    """The checkpoints that there are, oldest first. Raises Refused or Unavailable."""
    filters = [f"{subjects.CHECKPOINT_MADE}*"]
    found = await past(bus, filters, stream=subjects.CHECKPOINTS)
    return [_made.decode(one.data) for one in found]
