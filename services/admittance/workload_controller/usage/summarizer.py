"""Folds the facts about released quota into summaries, some seconds after they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import structlog

from admittance.events.reader import SetAside, Unreadable
from admittance.events.requests.reading import UsageCheck
from admittance.events.subjects import RELEASES, STREAM
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import (
    StoredMessage,
    newest_sequence,
    next_from_leader,
    read_in_order,
)
from admittance.runtime.errors import AdmittanceError, BusRefused, BusUnavailable
from admittance.runtime.leader import lease_store
from admittance.runtime.telemetry.logger import LogThrottle, log_set_aside
from admittance.runtime.telemetry.object_faults import faults
from admittance.usage.fold import UsageFold
from admittance.usage.runs import Run, run_of
from admittance.usage.summary import Summary, SummaryKey
from admittance.workload_controller.usage.comparing import compared
from admittance.workload_controller.usage.summary_store import SummaryStore

SERVICE: Final = "workload-controller"
FOLD_SECONDS: Final = 10.0
"""How long facts are collected before they are folded: each fold writes the summaries of the day
and the month anew. A question about usage folds at once."""
AGAIN_SECONDS: Final = 5.0
"""Seconds before a fold is tried again, when the bus did not store it."""
FAULT_SECONDS: Final = 60.0
"""Seconds before a fold is tried again, when a bug ended it."""
LAG_SECONDS: Final = 10.0
"""How long a fold waits for a replica of the log that lags."""
LAG_PAUSE_SECONDS: Final = 0.05
PAGE: Final = 500
DIRTY_MAX: Final = 500
"""How many changed summaries are stored at once while many facts wait."""
KEPT_MAX: Final = 2_000
"""How many summaries stay in memory."""

log = structlog.get_logger()


class UsageSummarizer:
    """The fold of one leader. ``store``: the stream of summaries."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.store = SummaryStore(bus)
        self._fold: UsageFold | None = None
        self._end = 0
        self._news = asyncio.Event()
        self._news.set()
        self._lock = asyncio.Lock()
        self._throttle = LogThrottle()

    @property
    def folded(self) -> int:
        """Every run up to this sequence of the log is folded and stored."""
        return self.store.position.through

    @property
    def kept(self) -> Mapping[SummaryKey, Summary]:
        """The summaries in memory, which are as new as those of the stream's leader."""
        return self._fold.summaries if self._fold is not None else {}

    def wake(self) -> None:
        """Says that facts came."""
        self._news.set()

    async def run(self) -> None:
        """Folds facts until it is cancelled. An error ends no leader: the facts stay on the log."""
        pause = 0.0
        while True:
            await self._news.wait()
            await asyncio.sleep(pause)
            pause = FOLD_SECONDS
            self._news.clear()
            try:
                await self.fold_now()
            except (BusRefused, BusUnavailable) as error:
                if self._throttle.due(clock.monotonic()):
                    log.warning("usage_not_stored", reason=str(error))
                self._news.set()
                await asyncio.sleep(AGAIN_SECONDS)
            except AdmittanceError:
                raise
            except Exception as error:
                faults.record(SERVICE, "sum the usage", "usage summaries", error)
                self._news.set()
                await asyncio.sleep(FAULT_SECONDS)

    async def fold_now(self) -> None:
        """Folds and stores all facts that are on the log. Raises BusRefused, among others
        StaleRevision after another leader stored a summary, or BusUnavailable; then the next call
        begins with what is stored."""
        async with self._folding():
            pass

    async def counted(self, end: int) -> int:
        """Folds, and returns the sequence up to which no fact is needed for sums any more.
        ``end``: the sequence of a message of the log. Raises what `fold_now` raises."""
        async with self._folding() as fold:
            # The fold reads from any replica, which may lag.
            more = await next_from_leader(self._bus, STREAM, fold.position, RELEASES)
            return min(end if more is None else fold.position, fold.again(end))

    async def compacted(self, through: int, until: datetime) -> None:
        """Stores that the facts about workloads up to ``through`` are removed from the log, which
        was until that time. Raises what `fold_now` raises."""
        async with self._folding() as fold:
            await self.store.store_position(
                compacted=through, compacted_until=until, again=max(through, fold.again())
            )

    async def check(self) -> UsageCheck:
        """Compares the stored sums with the log, and corrects those that differ. Raises what
        `fold_now` raises."""
        async with self._folding() as fold:
            return await compared(
                self._bus, self.store, fold, self._runs_through(0, fold.position), self._end
            )

    @asynccontextmanager
    async def _folding(self) -> AsyncIterator[UsageFold]:
        """The fold, with all facts, for as long as no other task uses it."""
        async with self._lock:
            try:
                if self._fold is None:
                    self._fold = await self._begin()
                await self._fold_all(self._fold)
                yield self._fold
            except BaseException:
                self._fold = None
                raise

    async def _begin(self) -> UsageFold:
        """The fold as the last leader stored it."""
        position = await self.store.load_position()
        self._end = await lease_store.end_of_log(self._bus)
        if position.through > self._end:
            log.warning("usage_beyond_log", position=position.through, end=self._end)
        fold = UsageFold(min(position.through, self._end))
        async for runs in self._runs_through(position.again, fold.position):
            for run in runs:
                fold.recall(run)
        return fold

    async def _runs_through(self, after: int, through: int) -> AsyncIterator[list[Run]]:
        """The runs on the log after one sequence up to another, page by page."""
        give_up_at = clock.monotonic() + LAG_SECONDS
        while after < through:
            page, whole = await self._page(after)
            yield [run for run in _runs(page) if run.sequence <= through]
            if page:
                after, give_up_at = page[-1].sequence, clock.monotonic() + LAG_SECONDS
            if whole and after < through:
                # The pages come from any replica, and a second report of a run that is missing
                # would count twice.
                following = await next_from_leader(self._bus, STREAM, after, RELEASES)
                if following is None or following.sequence > through:
                    return
                if clock.monotonic() >= give_up_at:
                    raise BusUnavailable(f"a replica of the log lacks message {following.sequence}")
                await asyncio.sleep(LAG_PAUSE_SECONDS)

    async def _fold_all(self, fold: UsageFold) -> None:
        end = await newest_sequence(self._bus, [RELEASES])
        give_up_at, whole = clock.monotonic() + LAG_SECONDS, False
        while not whole:
            page, whole = await self._page(fold.position)
            runs = _runs(page)
            fold.summaries |= await self.store.load(fold.needed(runs), self._end)
            fold.fold(runs)
            if page:
                # An unreadable fact is set aside, and not read again.
                fold.position = max(fold.position, page[-1].sequence)
            if whole or len(fold.dirty) > DIRTY_MAX:
                await self.store.store(fold)
                fold.forget(KEPT_MAX)
            if whole and fold.position < end and clock.monotonic() < give_up_at:
                # The replica that answered lags.
                await asyncio.sleep(LAG_PAUSE_SECONDS)
                whole = False

    async def _page(self, after: int) -> tuple[list[StoredMessage], bool]:
        return await read_in_order(
            self._bus,
            [RELEASES],
            after=after,
            limit=PAGE,
            bytes_max=4 * self._bus.nc.max_payload,
        )


def _runs(page: Sequence[StoredMessage]) -> list[Run]:
    runs: list[Run] = []
    for message in page:
        try:
            runs.append(run_of(message.data, message.sequence))
        except Unreadable as error:
            log_set_aside(SetAside(STREAM, message.subject, message.sequence, str(error)))
    return runs
