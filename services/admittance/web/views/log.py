"""Facts of the log as rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from admittance.events import codec
from admittance.events.requests.history import LogEntry
from admittance.events.subjects import user_of
from admittance.web.views.words import clock_time


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """A fact. ``who``: the user that published it, or the workload if it is another one."""

    sequence: int
    time: str
    what: str
    who: str
    text: str


def log_rows(entries: Sequence[LogEntry], now: datetime) -> tuple[LogRow, ...]:
    """The rows of facts, the newest first."""
    return tuple(_row(entry, now) for entry in reversed(entries))


def _row(entry: LogEntry, now: datetime) -> LogRow:
    try:
        fact = codec.decode(entry.subject, bytes(entry.data))
    except codec.Undecodable:
        fact = None
    parts = entry.subject.split(".")
    what = (parts[3] if parts[1] == "user" else parts[2]).replace("_", " ")
    reason = entry.reason or str(getattr(fact, "reason", "") or "")
    message = entry.message or str(getattr(fact, "message", "") or "")
    return LogRow(
        sequence=entry.sequence,
        time=clock_time(entry.time, now),
        what=what,
        who=user_of(entry.subject) or "",
        text=": ".join(filter(None, (reason, message))),
    )
