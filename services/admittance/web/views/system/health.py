"""The page of health: what is to look at, checks, services, leaders, consumers, streams and dead
letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Final

import msgspec

from admittance.client.health_report import DeadLetterRow, HealthReport, HealthRow
from admittance.events.requests.services import HealthReply, Series
from admittance.runtime.telemetry.findings import NOTE, OK, WRONG
from admittance.web.views.words import Word, between, clock_time

WORDS: Final = {
    OK: Word("ok", "ok"),
    NOTE: Word("note", "pending"),
    WRONG: Word("wrong", "rejected"),
}
SHOWN_BYTES: Final = 600
"""How much of a dead letter's message the page shows."""
WIDTH: Final = 600
HEIGHT: Final = 56
PARTS: Final = (
    ("checks", "Checks", ("checks",)),
    ("services", "Services", ("services", "machines", "timers")),
    ("bus", "Bus", ("bus", "history", "values")),
)
"""The tables with all findings: the id of each, its title, and what its findings are about."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a table. ``todo``: what to do; ``since``: since when."""

    word: Word
    what: str
    found: str
    todo: str = ""
    since: str = ""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table of findings."""

    id: str
    title: str
    rows: tuple[Row, ...]


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer, or an instance of a service, with its numbers."""

    name: str
    found: str
    behind: str


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in the last hour. ``line``: the path of its line in 600 by 56 units; ``now``
    and ``highest``: with their units; ``since``: what stands at its left end."""

    title: str
    line: str
    now: str
    highest: str
    since: str


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter. ``text``: its message, as text if all of it can be printed, else as the dump
    of its bytes in hexadecimal digits."""

    id: str
    at: str
    service: str
    subject: str
    reason: str
    text: str
    is_cut: bool


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """``look``: what is not as it should be, errors first; ``letters_more``: how many further dead
    letters the log has."""

    title: str
    word: Word
    say: str
    charts: tuple[Chart, ...]
    look: tuple[Row, ...]
    parts: tuple[Table, ...]
    leaders: tuple[Row, ...]
    consumers: tuple[Numbers, ...]
    letters: tuple[Letter, ...]
    letters_more: int
    trouble: bool


def build(report: HealthReport, now: datetime) -> HealthView:
    """The view of a report."""
    wrong = [row for row in report.rows if row.severity == WRONG]
    notes = [row for row in report.rows if row.severity == NOTE]
    known = sum(report.dead_letter_count.values())
    return HealthView(
        title=f"Health: {len(wrong)} wrong" if wrong else "Health",
        word=_word(len(wrong), len(notes)),
        say=_say(wrong, notes, report.instances),
        charts=charts([each.series for each in report.instances if each.series is not None]),
        look=tuple(_row(row, now) for row in [*wrong, *notes]),
        parts=tuple(_parts(report.rows, now)),
        leaders=tuple(
            Row(
                word=WORDS[OK],
                what=leader.domain,
                found=f"{leader.owner}, epoch {leader.epoch}",
                since=_since(leader.since, now),
            )
            for leader in report.leaders
        ),
        consumers=tuple(
            Numbers(
                name=consumer.name,
                found=f"{consumer.unacknowledged:,} not acknowledged"
                + (f", active {_ago(consumer.active, now)}" if consumer.active else ""),
                behind=f"{consumer.unread:,}",
            )
            for consumer in report.consumers
        ),
        letters=tuple(_letter(letter, now) for letter in report.dead_letters),
        letters_more=max(0, known - len(report.dead_letters)),
        trouble=bool(wrong),
    )


def charts(series: Sequence[Series]) -> tuple[Chart, ...]:
    """The charts of all instances together; () if none makes decisions. Instances that began later
    have fewer minutes."""
    if not series:
        return ()
    decisions = _together((each.decisions for each in series), sum)
    slowest = _together((each.p99_ms for each in series), max)
    waiting = _together((each.waiting for each in series), sum)
    return (
        _chart("Decisions a minute", decisions, _count),
        _chart("Time of a decision, 99th percentile", slowest, _milliseconds),
        _chart("Workloads waiting", waiting, _count),
    )


def _together(
    rows: Iterable[Sequence[float]], add: Callable[[Iterable[float]], float]
) -> list[float]:
    """The numbers of several instances by minute; all rows end now."""
    columns = zip_longest(*(reversed(row) for row in rows), fillvalue=0)
    return [add(column) for column in columns][::-1]


def _chart(title: str, points: Sequence[float], text: Callable[[float], str]) -> Chart:
    most = max(points, default=0)
    step = WIDTH / max(1, len(points) - 1)
    # A line at the edge of the picture would be cut.
    at = [
        f"{i * step:.0f} {HEIGHT - 1 - (HEIGHT - 12) * (point / most if most else 0):.1f}"
        for i, point in enumerate([*points, *points] if len(points) == 1 else points)
    ]
    minutes = len(points) - 1
    return Chart(
        title=title,
        line=f"M{' '.join(at)}",
        now=text(points[-1]),
        highest=text(most),
        since="an hour ago" if minutes >= 59 else f"{minutes} min ago" if minutes else "now",
    )


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _milliseconds(number: float) -> str:
    return f"{number:.3g} ms" if number else "none"


def _word(wrong: int, notes: int) -> Word:
    if wrong:
        return Word(f"{wrong} wrong", "rejected")
    return Word(f"{notes} to look at", "warn") if notes else Word("all well", "ok")


def _say(wrong: list[HealthRow], notes: list[HealthRow], instances: Iterable[HealthReply]) -> str:
    services = len({reply.service for reply in instances})
    answer = "1 service answers" if services == 1 else f"{services} services answer"
    if wrong:
        first = wrong[0]
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        return f"{first.what} is wrong{more}: {first.found}."
    if notes:
        things = "one thing" if len(notes) == 1 else f"{len(notes)} things"
        return f"Nothing is wrong, and {answer}; {things} may be on purpose."
    return f"Nothing is wrong, and {answer}."


def _parts(rows: Iterable[HealthRow], now: datetime) -> Iterable[Table]:
    rows = list(rows)
    for name, title, about in PARTS:
        of_part = tuple(_row(row, now) for row in rows if row.about in about)
        if of_part:
            yield Table(id=name, title=title, rows=of_part)


def _row(row: HealthRow, now: datetime) -> Row:
    return Row(
        word=WORDS.get(row.severity, Word(row.severity, "pending")),
        what=row.what,
        found=row.found,
        todo=row.todo,
        since=_since(row.since, now),
    )


def _since(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else f"since {clock_time(moment, now)}"


def _ago(moment: datetime, now: datetime) -> str:
    return f"{between(moment, now)} ago"


def _letter(letter: DeadLetterRow, now: datetime) -> Letter:
    text, is_cut = shown(letter.data)
    return Letter(
        id=str(letter.sequence),
        at=clock_time(letter.time, now),
        service=letter.service,
        subject=letter.subject,
        reason=letter.reason,
        text=text,
        is_cut=is_cut or letter.is_cut,
    )


def shown(data: bytes) -> tuple[str, bool]:
    """The first bytes as text, or in hexadecimal digits if they cannot be printed; and whether
    there were more."""
    is_cut = len(data) > SHOWN_BYTES
    first = data[:SHOWN_BYTES]
    try:
        # The cut may lie within a character.
        text = first.decode() if not is_cut else first.decode(errors="ignore")
        if is_cut:
            data.decode()
    except UnicodeDecodeError:
        return first.hex(" "), is_cut
    if all(each.isprintable() or each in "\n\t" for each in text):
        return text, is_cut
    return first.hex(" "), is_cut
