"""The page of events: facts of the log, the newest first, and one fact with its data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from admittance.api.fields.names import name_error
from admittance.client.errors import sentence
from admittance.client.wording.facts import EventLine, FactEffects, is_bookkeeping, line_of
from admittance.events.fact_types import FACT_TYPES
from admittance.events.names import BadToken
from admittance.events.requests.history import LogEntry
from admittance.events.subjects import address_of, user_of
from admittance.web.paths import event_path, events_path, workload_path
from admittance.web.views.words import Link, clock_time

ROWS_MAX: Final = 200
"""The most rows of one page."""
AROUND: Final = 10
"""How many facts before and after a fact its page shows."""
DATA_MAX: Final = 20_000
"""The most characters of a fact's data on its page."""


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What the URL of the page chooses, as it was written; "": all."""

    namespace: str = ""
    workload: str = ""
    queue: str = ""
    type: str = ""
    since: str = ""
    until: str = ""

    def path(self, **place: str) -> str:
        """The page with these filters at this place of the log."""
        return events_path(**msgspec.structs.asdict(self), **place)


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """A fact. ``what``: its word, which leads to its page; ``about``: the workload with its page,
    or None for another object, which ``subject`` names; ``here``: whether the page is about it."""

    sequence: int
    time: str
    what: Link
    about: Link | None
    subject: str
    text: str
    here: bool = False


class EventsView(msgspec.Struct, frozen=True, kw_only=True):
    """``fixed``: the page shows a part of the log that does not change. ``pause``: this page as it
    is now, or, of a fixed page, the page with the newest facts. ``types``: what `Filters.type`
    may be."""

    title: str
    say: str
    filters: Filters
    types: tuple[str, ...]
    rows: tuple[EventRow, ...]
    fixed: bool
    pause: Link
    newer: Link | None
    older: Link | None


class EventsPart(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the log, the newest first. ``before``: the next older part ends before this
    sequence; 0: the log has none. ``after``: the part covers the log up to this sequence."""

    entries: tuple[LogEntry, ...]
    before: int = 0
    after: int = 0


def merged(parts: Sequence[EventsPart], limit: int) -> EventsPart:
    """The newest facts of several namespaces as one part: it ends where the first of them ends, so
    that no fact is left out."""
    end = max((part.before for part in parts), default=0)
    entries = [entry for part in parts for entry in part.entries if entry.sequence >= end]
    entries.sort(key=lambda entry: -entry.sequence)
    if len(entries) > limit:
        entries = entries[:limit]
        end = entries[-1].sequence
    after = max((part.after for part in parts), default=0)
    return EventsPart(entries=tuple(entries), before=end, after=after)


def build(
    part: EventsPart, filters: Filters, now: datetime, *, fixed: bool = False, newer: bool = False
) -> EventsView:
    """The view of a part of the log. ``newer``: whether a page with the next newer facts can be
    asked for."""
    rows = event_rows(part.entries, now)
    first, last = (rows[0], rows[-1]) if rows else (None, None)
    older = filters.path(before=str(part.before)) if part.before else ""
    resume, here = filters.path(), filters.path(before=str(part.after + 1))
    edge = max([part.after, *(entry.sequence for entry in part.entries[:1])])
    return EventsView(
        title=f"{first.what.text} {first.subject}".strip() + " · Events" if first else "Events",
        say=_say(first, last, len(rows), part.before),
        filters=filters,
        types=tuple(FACT_TYPES),
        rows=rows,
        fixed=fixed,
        pause=Link("Newest", resume) if fixed else Link("Pause", here),
        newer=Link("Newer", filters.path(after=str(edge))) if newer else None,
        older=Link("Older", older) if older else None,
    )


def _say(first: EventRow | None, last: EventRow | None, many: int, before: int) -> str:
    if first is None or last is None:
        if before:
            return (
                f"No event matches from sequence {before:,} of the log on. "
                "Older ones have not been looked at."
            )
        return "No event matches."
    if many == 1:
        return f"1 event, at {first.time}."
    return f"{many:,} events, from {first.time} back to {last.time}."


def event_rows(entries: Sequence[LogEntry], now: datetime, here: int = 0) -> tuple[EventRow, ...]:
    """The rows of facts, which come the newest first. Facts that only repeat what other facts have
    are left out, as in `admit events`. ``here``: the sequence of the fact that the page is
    about."""
    effects = FactEffects()
    rows = [
        _row(entry, line_of(entry, effects=effects), now, here)
        for entry in reversed(entries)
        if entry.sequence == here or not is_bookkeeping(entry)
    ]
    return tuple(reversed(rows))


def _row(entry: LogEntry, line: EventLine, now: datetime, here: int) -> EventRow:
    return EventRow(
        sequence=entry.sequence,
        time=clock_time(entry.time, now),
        what=Link(line.what, event_path(entry.sequence)),
        about=_workload_of(entry),
        subject=line.subject,
        text=sentence(line.reason, line.message),
        here=entry.sequence == here,
    )


def _workload_of(entry: LogEntry) -> Link | None:
    try:
        address = address_of(entry.subject)
    except BadToken:
        return None
    if name_error(address.name):
        return None
    path = workload_path(address.namespace, address.name)
    return Link(f"{address.namespace}/{address.name}", path)


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A line about a fact."""

    label: str
    text: str
    link: Link | None = None


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """One fact. ``data``: its JSON, of at most `DATA_MAX` characters; ``left_out``: how many
    further ones it has. ``rows``: the facts around it."""

    title: str
    say: str
    sequence: int
    lines: tuple[Said, ...]
    data: str
    left_out: int
    rows: tuple[EventRow, ...]


def build_one(entries: Sequence[LogEntry], sequence: int, now: datetime) -> EventView | None:
    """The view of the fact at this sequence with the facts around it, which come the newest first;
    None: it is not among them."""
    entry = next((entry for entry in entries if entry.sequence == sequence), None)
    if entry is None:
        return None
    rows = event_rows(entries, now, sequence)
    row = next(row for row in rows if row.here)
    data = msgspec.json.format(bytes(entry.data), indent=2).decode()
    lines = [
        Said(label="Time", text=f"{entry.time.isoformat()}"),
        Said(label="Sequence", text=f"{sequence:,}"),
        Said(label="Subject", text=entry.subject),
        Said(label="About", text=row.subject, link=row.about),
        Said(label="Caused by", text=user_of(entry.subject)),
        Said(label="Outcome", text=sentence(entry.outcome, sentence(entry.reason, entry.message))),
        Said(label="Trace", text=entry.trace),
    ]
    return EventView(
        title=f"{row.what.text} {row.subject}".strip(),
        say=row.text,
        sequence=sequence,
        lines=tuple(line for line in lines if line.text),
        data=data[:DATA_MAX],
        left_out=max(0, len(data) - DATA_MAX),
        rows=rows,
    )
