"""The puts of a commit on the bucket: one by one, or those of a group in one atomic batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final, TypeAlias

import structlog

from admittance.events.base import HEADER_TRACE
from admittance.runtime import bucket
from admittance.runtime.bus import BATCH_MAX, Bus, Outgoing
from admittance.runtime.errors import Refused, Unavailable
from admittance.workload.conditions import Type, is_true
from admittance.workload_controller.commit import Put
from admittance.workload_controller.decide import HEADER_FACT
from admittance.workload_controller.joint import packed, parted

MARKER_SECONDS: Final = 7 * 86_400.0
"""A delete marker outlives any pause of a stale writer, but not everything."""

Outcome: TypeAlias = int | Refused | None
"""The revision of a put, why it was refused, or None: that is unknown."""

log = structlog.get_logger()


class Puts:
    """Writes workloads. ``finished_seconds``: for how long one that has finished is kept."""

    def __init__(self, bus: Bus, *, finished_seconds: float) -> None:
        self._bus = bus
        self._finished_seconds = finished_seconds

    async def write(self, puts: Sequence[Put]) -> list[tuple[Put, Outcome]]:
        """What became of each: first of those that go alone, then group by group."""
        alone, groups = parted(puts)
        outcomes = await self._alone(alone)
        for batch in packed(groups, BATCH_MAX):
            outcomes += await self.together(batch)
        return list(zip([*alone, *chain.from_iterable(groups)], outcomes, strict=True))

    async def _alone(self, puts: list[Put]) -> list[Outcome]:
        """The revision of each, why it was refused, or None: that is unknown."""
        try:
            return list(await self._bus.publish_all([self._message(put) for put in puts]))
        except Unavailable as error:
            log.warning("commit_unknown", error=str(error), puts=len(puts))
            return [None] * len(puts)

    async def together(self, groups: list[list[Put]]) -> list[Outcome]:
        """Likewise of groups, each of which is written as a whole or not at all. They share a
        batch; if that is refused each goes alone: the server does not say which key was stale."""
        puts = list(chain.from_iterable(groups))
        try:
            last = await self._bus.atomic([self._message(put) for put in puts])
        except Unavailable as error:
            log.warning("commit_unknown", error=str(error), puts=len(puts))
            return [None] * len(puts)
        except Refused as refused:
            if len(groups) == 1:
                return [refused] * len(puts)
            return [one for group in groups for one in await self.together([group])]
        return list(range(last - len(puts) + 1, last + 1))

    def _message(self, put: Put) -> Outgoing:
        headers = {HEADER_TRACE: put.trace} if put.trace else {}
        if put.workload is None or put.value is None:
            headers[HEADER_FACT] = str(put.fact)
            return bucket.delete_message(
                put.key, expected=put.expected, headers=headers, ttl_seconds=MARKER_SECONDS
            )
        keep = self._finished_seconds if is_true(put.workload, Type.FINISHED) else None
        return bucket.put_message(
            put.key, put.value, expected=put.expected, headers=headers, ttl_seconds=keep
        )
