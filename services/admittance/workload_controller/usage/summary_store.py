"""The stream of summaries: what one leader stores, the next one loads.

Every write expects the revision that its leader has loaded, so of two leaders only one can store a
summary or the position. The position is stored after the summaries: a leader that ends between two
writes leaves summaries that are ahead of the position, and the next leader skips, for each of them,
the facts that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from admittance.events.reader import Reader, SetAside, Unreadable
from admittance.events.subjects import SUMMARIES, USAGE_POSITION
from admittance.runtime.bus.bus import EXPECTED, Bus, Outgoing
from admittance.runtime.bus.history import StoredMessage, last
from admittance.runtime.errors import BusRefused
from admittance.runtime.telemetry.logger import log_set_aside
from admittance.usage.fold import UsageFold
from admittance.usage.summary import (
    Summary,
    SummaryKey,
    UsagePosition,
    decode_summary,
    encode_summary,
)

LOADED_AT_ONCE: Final = 200

_position = Reader(UsagePosition)
_encode = msgspec.json.Encoder().encode


class SummaryStore:
    """Loads and stores summaries. ``position``: the stored position."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._revision = 0
        self.position = UsagePosition()

    async def load_position(self) -> UsagePosition:
        """Loads the position. An unreadable one counts as absent: then the log is read from its
        begin, and each summary skips the facts that it has."""
        message = await last(self._bus, USAGE_POSITION, stream=SUMMARIES)
        self._revision = 0 if message is None else message.sequence
        self.position = UsagePosition()
        if message is not None:
            try:
                self.position = _position(message.data)
            except Unreadable as error:
                _set_aside(message, error)
        return self.position

    async def load(self, wanted: Collection[SummaryKey], end: int) -> dict[SummaryKey, Summary]:
        """The stored summaries, empty ones for those that are not stored. ``end``: the end of the
        log when this leader began; a summary is not beyond it."""
        summaries: dict[SummaryKey, Summary] = {}
        every = list(wanted)
        for start in range(0, len(every), LOADED_AT_ONCE):
            part = every[start : start + LOADED_AT_ONCE]
            messages = await asyncio.gather(
                *(last(self._bus, about.subject, stream=SUMMARIES) for about in part)
            )
            for about, message in zip(part, messages, strict=True):
                summaries[about] = _summary(message, end)
        return summaries

    async def store(self, fold: UsageFold) -> None:
        """Stores the changed summaries, then the position. Raises StaleRevision if another leader
        has stored one of them."""
        changed = sorted(fold.dirty)
        if changed:
            puts = [
                Outgoing(
                    about.subject,
                    encode_summary(fold.summaries[about], fold.position),
                    {EXPECTED: str(fold.summaries[about].revision)},
                )
                for about in changed
            ]
            for about, revision in zip(changed, await self._publish(puts), strict=True):
                fold.stored(about, revision)
        if fold.position != self.position.through:
            await self.store_position(through=fold.position, again=fold.again())

    async def store_position(self, **fields: object) -> None:
        """Stores the position with some fields replaced."""
        position = msgspec.structs.replace(self.position, **fields)
        put = Outgoing(USAGE_POSITION, _encode(position), {EXPECTED: str(self._revision)})
        [self._revision] = await self._publish([put])
        self.position = position

    async def _publish(self, puts: Sequence[Outgoing]) -> list[int]:
        revisions: list[int] = []
        for outcome in await self._bus.publish_all(puts):
            if isinstance(outcome, BusRefused):
                raise outcome
            revisions.append(outcome)
        return revisions


def _summary(message: StoredMessage | None, end: int) -> Summary:
    if message is None:
        return Summary()
    try:
        summary = decode_summary(message.data, message.sequence)
    except Unreadable as error:
        _set_aside(message, error)
        return Summary(revision=message.sequence)
    summary.position = min(summary.position, end)
    return summary


def _set_aside(message: StoredMessage, error: Unreadable) -> None:
    log_set_aside(SetAside(SUMMARIES, message.subject, message.sequence, str(error)))
