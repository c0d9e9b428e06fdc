"""The sums of usage up to the end of the log, without storing any: the stored summaries, and the
facts about released quota that came after them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

import structlog

from admittance.events.reader import Reader, SetAside, Unreadable
from admittance.events.subjects import RELEASES, STREAM, SUMMARIES, SUMMARY, USAGE_POSITION
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import (
    StoredMessage,
    last,
    newest_sequence,
    next_from_leader,
    read_in_order,
)
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.leader import lease_store
from admittance.runtime.telemetry.logger import log_set_aside
from admittance.usage.fold import UsageFold
from admittance.usage.periods import Period
from admittance.usage.runs import Run, run_of
from admittance.usage.summary import (
    Summary,
    SummaryKey,
    UsagePosition,
    decode_summary,
    key_of,
)

PAGE: Final = 500
LAG_SECONDS: Final = 5.0
"""How long a replica of the log that lags is waited for."""
LAG_PAUSE_SECONDS: Final = 0.05
AGAIN_SECONDS: Final = 600.0
"""After so long the stored sums are read again: `admit usage --check` may have corrected them."""
NEVER: Final = 2**63
"""The position of a summary that is not needed, so that nothing is added to it."""

_position = Reader(UsagePosition)
log = structlog.get_logger()


class UsageRead(NamedTuple):
    """``summaries``: of the ``periods``, with all facts of the log. ``changed``: those that are
    other ones than in the last answer; None: all of them."""

    periods: frozenset[Period]
    summaries: Mapping[SummaryKey, Summary]
    changed: frozenset[SummaryKey] | None


class UsageReader:
    """Sums of some periods. ``on_run``: a function that gets each run that is read from the
    log."""

    def __init__(self, bus: Bus, on_run: Callable[[Run], None]) -> None:
        self._bus = bus
        self._on_run = on_run
        self._fold: UsageFold | None = None
        self._periods: frozenset[Period] = frozenset()
        self._again_at = 0.0

    async def read(self, periods: frozenset[Period]) -> UsageRead:
        """The summaries of at least these periods with all facts of the log. Raises BusUnavailable,
        also if a replica of the log lags, or BusRefused."""
        end = await newest_sequence(self._bus, [RELEASES])
        try:
            if clock.monotonic() >= self._again_at or not periods <= self._periods:
                self._fold = None
            anew = self._fold is None
            if self._fold is None:
                self._periods = periods
                self._again_at = clock.monotonic() + AGAIN_SECONDS
                self._fold = await self._begin(periods)
            changed = await self._read_on(self._fold, end)
        except BaseException:
            self._fold = None
            raise
        return UsageRead(self._periods, self._fold.summaries, None if anew else frozenset(changed))

    async def _begin(self, periods: Collection[Period]) -> UsageFold:
        """The sums as they are stored. Facts after the stored position may be in some of them, and
        are skipped for these."""
        message = await last(self._bus, USAGE_POSITION, stream=SUMMARIES)
        stored = UsagePosition()
        if message is not None:
            try:
                stored = _position(message.data)
            except Unreadable as error:
                _set_aside(SUMMARIES, message, error)
        end = await lease_store.end_of_log(self._bus)
        fold = UsageFold(min(stored.through, end))
        for period in sorted(periods):
            await self._load(fold, f"{SUMMARY}{period.span}.{period.name}.>", end)
        after = min(stored.again, fold.position)
        while after < fold.position:
            # A second report of these runs must not count twice.
            page, whole = await self._page(after)
            for run in _runs(page):
                if run.sequence <= fold.position:
                    fold.recall(run)
            if whole:
                break
            after = page[-1].sequence
        return fold

    async def _load(self, fold: UsageFold, pattern: str, end: int) -> None:
        after = 0
        while message := await next_from_leader(self._bus, SUMMARIES, after, pattern):
            after = message.sequence
            try:
                summary = decode_summary(message.data, message.sequence)
                summary.position = min(summary.position, end)
                fold.summaries[key_of(message.subject)] = summary
            except Unreadable as error:
                _set_aside(SUMMARIES, message, error)

    async def _read_on(self, fold: UsageFold, end: int) -> set[SummaryKey]:
        """Adds the facts up to the sequence ``end``, and those after it that are read with them;
        returns the summaries that changed."""
        changed: set[SummaryKey] = set()
        give_up_at = clock.monotonic() + LAG_SECONDS
        while fold.position < end:
            page, _ = await self._page(fold.position)
            if not page:
                if clock.monotonic() >= give_up_at:
                    raise BusUnavailable(f"a replica of the log lacks message {end}")
                await asyncio.sleep(LAG_PAUSE_SECONDS)
                continue
            runs = _runs(page)
            for about in fold.needed(runs):
                position = 0 if about.period in self._periods else NEVER
                fold.summaries[about] = Summary(position)
            fold.fold(runs)
            fold.position = max(fold.position, page[-1].sequence)
            for run in runs:
                self._on_run(run)
            for about in [key for key in fold.summaries if key.period not in self._periods]:
                del fold.summaries[about]
            changed |= fold.dirty & fold.summaries.keys()
            fold.dirty.clear()
            fold.again()
        return changed

    async def _page(self, after: int) -> tuple[list[StoredMessage], bool]:
        return await read_in_order(
            self._bus, [RELEASES], after=after, limit=PAGE, bytes_max=4 * self._bus.nc.max_payload
        )


def _runs(page: Sequence[StoredMessage]) -> list[Run]:
    runs: list[Run] = []
    for message in page:
        try:
            runs.append(run_of(message.data, message.sequence))
        except Unreadable as error:
            _set_aside(STREAM, message, error)
    return runs


def _set_aside(stream: str, message: StoredMessage, error: Unreadable) -> None:
    log_set_aside(SetAside(stream, message.subject, message.sequence, str(error)))
