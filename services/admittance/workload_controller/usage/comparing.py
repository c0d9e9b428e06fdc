"""Compares stored sums with the log, and stores those that differ anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import date
from typing import Final

import structlog

from admittance.events.reader import Unreadable
from admittance.events.requests.reading import UsageCheck
from admittance.events.subjects import SUMMARIES, SUMMARY
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import read_messages
from admittance.usage.comparison import (
    compared_sums,
    days_ahead,
    difference_text,
    first_whole_day,
)
from admittance.usage.fold import UsageFold
from admittance.usage.periods import day_of
from admittance.usage.runs import Run
from admittance.usage.summary import Summary, SummaryKey, key_of
from admittance.workload_controller.usage.summary_store import SummaryStore

PAGE: Final = 500
TEXTS_MAX: Final = 50
"""How many differences an answer describes."""

log = structlog.get_logger()


async def compared(
    bus: Bus, store: SummaryStore, fold: UsageFold, runs: AsyncIterator[Sequence[Run]], end: int
) -> UsageCheck:
    """Compares the sums with the runs of the log, and stores those that differ anew. ``fold``: with
    every run of the log, and stored. ``end``: as for `SummaryStore.load`. Raises BusRefused or
    BusUnavailable."""
    oldest = await read_messages(bus, [">"], limit=1)
    if not oldest:
        return UsageCheck()
    removed = store.position.compacted_until
    first = first_whole_day(oldest[0].time if removed is None else max(oldest[0].time, removed))
    anew, count = await _anew(runs)
    known = await _stored_from(bus, first)
    fold.summaries |= await store.load({*known, *anew} - fold.summaries.keys(), end)
    wrong = compared_sums({key: fold.summaries[key] for key in known}, anew, first)
    texts: list[str] = []
    for key, computed in wrong.items():
        stored = fold.summaries[key]
        texts.append(difference_text(key, stored, computed))
        stored.rows = computed.rows
        fold.dirty.add(key)
    if texts:
        log.warning("usage_corrected", sums=len(texts), first=texts[0])
        await store.store(fold)
    return UsageCheck(
        since=first.isoformat(),
        runs=count,
        corrected=len(texts),
        differences=tuple(texts[:TEXTS_MAX]),
        ahead=days_ahead(known, day_of(clock.now())),
    )


async def _anew(
    runs: AsyncIterator[Sequence[Run]],
) -> tuple[dict[SummaryKey, Summary], int]:
    """The sums of all runs, and their number."""
    fold, count = UsageFold(), 0
    async for page in runs:
        fold.summaries |= {about: Summary() for about in fold.needed(page)}
        fold.fold(page)
        fold.again()
        count += len(page)
        await asyncio.sleep(0)
    return fold.summaries, count


async def _stored_from(bus: Bus, first: date) -> list[SummaryKey]:
    """The stored sums of the first day's month, and of later months and their days."""
    keys: list[SummaryKey] = []
    after = 0
    while page := await read_messages(
        bus, [f"{SUMMARY}>"], after=after, limit=PAGE, stream=SUMMARIES
    ):
        after = page[-1].sequence
        for message in page:
            with suppress(Unreadable):
                keys.append(key_of(message.subject))
        await asyncio.sleep(0)
    return [key for key in keys if key.period.name >= first.isoformat()[:7]]
