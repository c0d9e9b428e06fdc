"""Facts of the log as rows, in the words of `admit events`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from admittance.client.errors import sentence
from admittance.client.wording.facts import FactEffects, line_of
from admittance.events import codec, facts
from admittance.events.requests.history import LogEntry
from admittance.events.requests.replays import ReplayReply
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
) -> tuple[LogRow, ...]:
    """The rows of facts, which come in log order, the newest first. ``of``: the workload of the
    page as ``namespace/name``; facts about its variants are among them. ``open_fact``: the sequence
    of the row that is open at first; ``replayed``: decisions that were decided again."""
    effects = FactEffects()
    causes: dict[str, tuple[int, str]] = {}
    rows = []
    for entry in entries:
        line = line_of(entry, effects=effects)
        try:
            fact = codec.decode(entry.subject, bytes(entry.data))
        except codec.Undecodable:
            fact = None
        decides = isinstance(fact, facts.Decision)
        again = replayed.get(entry.sequence)
        row = LogRow(
            sequence=entry.sequence,
            time=clock_time(entry.time, now),
            what=line.what,
            about="" if line.subject == of else line.subject.rpartition("/")[2],
            text=sentence(line.reason, line.message),
            details=opened(entry, fact, causes.get(line.subject)),
            is_open=entry.sequence == open_fact,
            decides=decides and role in REPLAYS,
            again=again_of(again, now) if again is not None else None,
        )
        if not isinstance(fact, facts.CommitFact):
            causes[line.subject] = entry.sequence, line.what
        rows.append(row)
    return tuple(reversed(rows))


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
