"""Facts of the log as rows, in the words of `admit events`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.client.errors import sentence
from admittance.client.wording.facts import FactEffects, line_of
from admittance.events import codec, facts
from admittance.events.requests.history import LogEntry
from admittance.events.requests.replays import ReplayReply
from admittance.events.subjects import OUTPUTS
from admittance.web.views.details.opened import opened
from admittance.web.views.words import Detail, clock_time

REPLAYS: Final = frozenset({"", "admin", "viewer", "user", "owner"})
"""The roles that may have a decision decided again; "": the server has no users."""


class Replayed(NamedTuple):
    """A decision that was decided again, and when."""

    reply: ReplayReply
    at: datetime


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a decision that was decided again. ``word``: the same, something else, or not
    possible; ``text``: from what and when, or why not; ``differences``: the fields that differ."""

    word: str
    text: str
    differences: tuple[str, ...] = ()


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """A fact. ``about``: the workload that it is about, "" if it is the one of the page;
    ``details``: what it opens to; ``is_open``: whether it is open at first; ``decides``: whether it
    can be decided again."""

    sequence: int
    time: str
    what: str
    about: str
    text: str
    details: tuple[Detail, ...] = ()
    is_open: bool = False
    decides: bool = False
    again: Again | None = None


NONE_REPLAYED: Final[Mapping[int, Replayed]] = {}


def log_rows(
    entries: Sequence[LogEntry],
    of: str,
    now: datetime,
    *,
    role: str = "",
    open_fact: int = 0,
    replayed: Mapping[int, Replayed] = NONE_REPLAYED,
    detailed: int | None = None,
) -> tuple[LogRow, ...]:
    """The rows of facts, which come in log order, the newest first. ``of``: the workload of the
    page as ``namespace/name``; facts about its variants are among them. ``open_fact``: the sequence
    of the row that is open at first; ``replayed``: decisions that were decided again;
    ``detailed``: only the newest so many have details, None: all."""
    effects = FactEffects()
    causes: dict[str, tuple[int, str]] = {}
    first = 0 if detailed is None else len(entries) - detailed
    rows = []
    for place, entry in enumerate(entries):
        line = line_of(entry, effects=effects)
        row = LogRow(
            sequence=entry.sequence,
            time=clock_time(entry.time, now),
            what=line.what,
            about="" if line.subject == of else line.subject.rpartition("/")[2],
            text=sentence(line.reason, line.message),
            is_open=entry.sequence == open_fact,
        )
        if place >= first or row.is_open:
            row = _in_full(row, entry, causes.get(line.subject), role, replayed, now)
        if entry.subject.split(".")[2] not in OUTPUTS:
            causes[line.subject] = entry.sequence, line.what
        rows.append(row)
    return tuple(reversed(rows))


def _in_full(
    row: LogRow,
    entry: LogEntry,
    follows: tuple[int, str] | None,
    role: str,
    replayed: Mapping[int, Replayed],
    now: datetime,
) -> LogRow:
    """The row with what it opens to. ``follows``: as for `opened`."""
    try:
        fact = codec.decode(entry.subject, bytes(entry.data))
    except codec.Undecodable:
        fact = None
    again = replayed.get(entry.sequence)
    return replace(
        row,
        details=opened(entry, fact, follows),
        decides=isinstance(fact, facts.Decision) and role in REPLAYS,
        again=again_of(again, now) if again is not None else None,
    )


def again_of(replayed: Replayed, now: datetime) -> Again:
    """The answer of a decision that was decided again, in words."""
    reply, inputs = replayed.reply, replayed.reply.inputs
    if reply.impossible:
        return Again(word="It can no longer be decided again.", text=f"{reply.impossible}.")
    begin = f"checkpoint {inputs.checkpoint}" if inputs.checkpoint else "the first fact"
    state = f"{inputs.workloads:,} workloads and {inputs.objects:,} objects"
    text = (
        f"Decided again at {clock_time(replayed.at, now)} from {begin} and "
        f"{inputs.facts:,} others: {state}, "
        f"{inputs.decisions_on_their_way:,} decisions on their way. Nothing was changed."
    )
    word = "The same comes out." if reply.same else "Something else comes out."
    return Again(word=word, text=text, differences=reply.differences)
