"""Reads the runs of the last weeks from the log, the newest first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from admittance.events.reader import Unreadable
from admittance.events.subjects import RELEASES
from admittance.forecast.past_runs import PastRun, past_run
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import StoredMessage, read_in_order

SPANS: Final = tuple(timedelta(hours=hours) for hours in (1, 6, 24, 48, 96, 168, 336))
"""How far back the spans reach that are read one after another: new runs count more than old ones,
and a forecast need not wait for the oldest."""
RELEASES_MAX: Final = 100_000
"""How many facts about released quota are read."""
PAGE: Final = 500
PAGE_BYTES: Final = 4 << 20

Take: TypeAlias = Callable[[Sequence[PastRun]], Awaitable[None]]


async def read_past_runs(bus: Bus, now: datetime, take: Take) -> int:
    """Passes the runs that ended before ``now`` to ``take``, page by page, and returns how many
    facts it read. Facts that cannot be read are left out: the leader of the workload-controller
    reports them. Raises BusUnavailable or BusRefused."""
    count, until = 0, now
    for span in SPANS:
        count += await _read_span(bus, now - span, until, RELEASES_MAX - count, take)
        if count >= RELEASES_MAX:
            break
        until = now - span
    return count


async def _read_span(bus: Bus, since: datetime, until: datetime, most: int, take: Take) -> int:
    """Reads the facts that the server stored in this span, at most so many, and returns their
    number."""
    count = after = 0
    whole = False
    while not whole and count < most:
        page, whole = await read_in_order(
            bus,
            (RELEASES,),
            after=after,
            since=since,
            limit=min(PAGE, most - count),
            bytes_max=PAGE_BYTES,
        )
        inside = [message for message in page if message.time < until]
        whole = whole or len(inside) < len(page)
        count += len(inside)
        after = page[-1].sequence if page else after
        await take(_runs(inside))
    return count


def _runs(page: Sequence[StoredMessage]) -> list[PastRun]:
    runs: list[PastRun] = []
    for message in page:
        try:
            run = past_run(message.data)
        except Unreadable:
            continue
        if run is not None:
            runs.append(run)
    return runs
