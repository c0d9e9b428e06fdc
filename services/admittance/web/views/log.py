"""Facts of the log as rows, in the words of `admit events`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from admittance.client.errors import sentence
from admittance.client.wording.facts import FactEffects, line_of
from admittance.events.requests.history import LogEntry
from admittance.web.views.words import clock_time


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """A fact. ``about``: the workload that it is about, "" if it is the one of the page."""

    sequence: int
    time: str
    what: str
    about: str
    text: str


def log_rows(entries: Sequence[LogEntry], of: str, now: datetime) -> tuple[LogRow, ...]:
    """The rows of facts, which come in log order, the newest first. ``of``: the workload of the
    page as ``namespace/name``; facts about its variants are among them."""
    effects = FactEffects()
    return tuple(reversed([_row(entry, of, now, effects) for entry in entries]))


def _row(entry: LogEntry, of: str, now: datetime, effects: FactEffects) -> LogRow:
    line = line_of(entry, effects=effects)
    return LogRow(
        sequence=entry.sequence,
        time=clock_time(entry.time, now),
        what=line.what,
        about="" if line.subject == of else line.subject.rpartition("/")[2],
        text=sentence(line.reason, line.message),
    )
