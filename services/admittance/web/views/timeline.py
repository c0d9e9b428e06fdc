"""The timeline of a workload: lanes of stretches on one axis, from the spans of its trace.

Positions are percent of the width. A stretch of time without any change, longer than a fifth of the
whole, is folded; the one that holds the present is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from admittance.traces.spans import Span
from admittance.web.views.words import between, clock_time

FOLD_SHARE: Final = 0.2
FOLD_WIDTH: Final = 6.0
MERGE: Final = 2.0
"""Rings closer than so many percent become one."""
LEAST_WIDTH: Final = 0.5
CHARACTER: Final = 0.85
"""About how many percent of the width a character takes."""
LINE: Final = 28
"""The height of a lane, in pixels; the axis begins at `TOP`."""
TOP: Final = 24
GRID_MAX: Final = 8
MOMENT: Final = timedelta(milliseconds=1)
STEPS: Final = tuple(
    timedelta(seconds=seconds)
    for seconds in (
        *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
        *(86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000),
    )
)


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """Time that is folded. ``took``: how long it is."""

    x: float
    width: float
    took: str

    @property
    def middle(self) -> float:
        """The middle of the fold."""
        return round(self.x + self.width / 2, 2)

    @property
    def end(self) -> float:
        """The end of the fold."""
        return round(self.x + self.width, 2)


class _Piece(NamedTuple):
    start: datetime
    end: datetime
    x: float
    width: float
    folded: bool


class Axis:
    """Where times lie. ``changes``: when something changed. ``now``: the present, if it is on the
    axis; a clock that went back counts as the end."""

    def __init__(
        self, start: datetime, end: datetime, now: datetime | None, changes: Iterable[datetime]
    ) -> None:
        self.start, self.end = start, max(end, start + MOMENT)
        self.now = None if now is None else min(max(now, start), self.end)
        ends = {start, self.end, *(at for at in changes if start < at < self.end)}
        stretches = list(pairwise(sorted(ends)))
        whole = self.end - start
        folded = [
            b - a > whole * FOLD_SHARE and not (self.now is not None and a <= self.now <= b)
            for a, b in stretches
        ]
        if all(folded):
            folded = [False] * len(folded)
        shown = sum(
            ((b - a) for (a, b), is_folded in zip(stretches, folded, strict=True) if not is_folded),
            timedelta(0),
        )
        scale = (100 - FOLD_WIDTH * sum(folded)) / max(shown, MOMENT).total_seconds()
        self._pieces: list[_Piece] = []
        x = 0.0
        for (a, b), is_folded in zip(stretches, folded, strict=True):
            width = FOLD_WIDTH if is_folded else (b - a).total_seconds() * scale
            self._pieces.append(_Piece(a, b, x, width, is_folded))
            x += width

    def x(self, at: datetime) -> float:
        """The position of a time; before the axis 0, after it 100."""
        for piece in self._pieces:
            if at <= piece.end:
                share = (at - piece.start) / (piece.end - piece.start)
                return round(piece.x + piece.width * max(0.0, share), 2)
        return 100.0

    @property
    def folds(self) -> tuple[Fold, ...]:
        """The folded stretches."""
        return tuple(
            Fold(x=round(p.x, 2), width=round(p.width, 2), took=between(p.start, p.end))
            for p in self._pieces
            if p.folded
        )

    def grid(self) -> tuple[Grid, ...]:
        """Lines at round times where nothing is folded."""
        shown = [piece for piece in self._pieces if not piece.folded]
        length = sum(((piece.end - piece.start) for piece in shown), timedelta(0))
        step = next((step for step in STEPS if length / step <= GRID_MAX), STEPS[-1])
        seconds = step >= timedelta(minutes=1)
        lines: list[Grid] = []
        for piece in shown:
            epoch = datetime.fromtimestamp(0, tz=piece.start.tzinfo)
            at = epoch + step * -(-(piece.start - epoch) // step)
            while at <= piece.end and len(lines) <= 2 * GRID_MAX:
                x = self.x(at)
                if not lines or x - lines[-1].x >= 5:
                    text = clock_time(at, self.end, seconds=not seconds)
                    lines.append(Grid(x=x, text=text, roomy=len(lines) % 2 == 1))
                at += step
        return tuple(line for line in lines if 3 <= line.x <= 97)


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A line at a round time. ``roomy``: its text is left out where there is little room."""

    x: float
    text: str
    roomy: bool


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A bar of a lane. ``phase``: its class; ``label``: words that fit into it, else ""."""

    x: float
    width: float
    phase: str
    label: str
    title: str


class Ring(msgspec.Struct, frozen=True, kw_only=True):
    """A time at which a check was asked: its number, or those of several."""

    x: float
    text: str
    title: str

    @property
    def width(self) -> int:
        """In pixels."""
        return 16 if len(self.text) == 1 else 10 + 6 * len(self.text)


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """A lane. ``under``: it belongs to the lane above it; ``top``: its upper edge, in pixels."""

    name: str
    under: bool
    top: int
    bars: tuple[Stretch, ...] = ()
    rings: tuple[Ring, ...] = ()


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """``now``: the position of the present; None: the workload has ended. ``due``: when it is tried
    again. ``height``: of the chart, in pixels."""

    begins: str
    lanes: tuple[Lane, ...]
    folds: tuple[Fold, ...]
    grid: tuple[Grid, ...]
    now: float | None
    due: float | None
    due_text: str
    height: int
    title: str
    desc: str


PHASES: Final = {
    "queue": ("Queued", "pending"),
    "reservation": ("Reserved", "reserved"),
    "requeue": ("Backoff", "backoff"),
    "inactive": ("Stopped", "pending"),
    "admission": ("Admitted", "reserved"),
    "run": ("Running", "running"),
    "eviction": ("Evicting", "evicting"),
}
"""The lanes of the job, by the names of spans, with the classes of their bars."""


def build(
    spans: Sequence[Span], now: datetime, due: datetime | None = None, *, past: bool = False
) -> Timeline | None:
    """The timeline of the spans of one trace; None without spans. ``due``: when the workload is
    tried again. ``past``: ``now`` is a past moment."""
    roots = [span for span in spans if not any(span.parent_id == o.span_id for o in spans)]
    if not roots:
        return None
    start = min(span.start for span in spans)
    last = max(span.end or max(now, span.start) for span in spans)
    is_open = any(span.end is None for span in spans)
    end = last
    if is_open:
        after = (last - start) * 0.08
        end = due if due is not None and now < due <= now + (last - start) else now + after
    present = now if is_open else None
    changes = [at for span in spans for at in (span.start, span.end) if at is not None]
    if due is not None and due <= end:
        changes.append(due)
    axis = Axis(start, end, present, [*changes, *([now] if is_open else [])])
    lanes = _lanes(spans, axis, last, now)
    name = str(roots[0].attributes.get("admittance.workload", ""))
    shown_due = due if due is not None and is_open and now < due <= end else None
    return Timeline(
        begins=clock_time(start, now, seconds=False),
        lanes=lanes,
        folds=axis.folds,
        grid=axis.grid(),
        now=None if present is None else axis.x(present),
        due=None if shown_due is None else axis.x(shown_due),
        due_text="" if shown_due is None else clock_time(shown_due, now, seconds=False),
        height=TOP + LINE * len(lanes) + 22,
        title=f"Timeline of {name}, {clock_time(start, now)} to {clock_time(last, now)}",
        desc=_desc(spans, now, "until then" if past else "until now"),
    )


def _lanes(spans: Sequence[Span], axis: Axis, last: datetime, now: datetime) -> tuple[Lane, ...]:
    lanes: list[Lane] = []

    def add(name: str, of: Sequence[Span], phase: str = "", *, under: bool = False) -> None:
        bars = tuple(
            _stretch(span, phase or PHASES[span.name][1], axis, last, now)
            for span in sorted(of, key=lambda span: span.start)
        )
        top = TOP + LINE * len(lanes)
        rings = _rings(of, axis, now) if under else ()
        lanes.append(Lane(name=name, under=under, top=top, bars=() if rings else bars, rings=rings))

    by_name: dict[str, list[Span]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    for kind, (name, phase) in PHASES.items():
        if kind == "admission" and "run" in by_name:
            continue
        if of := [span for span in by_name.get(kind, ()) if not _is_moment(span)]:
            add(name, of, phase)
        if kind == "reservation":
            for check in sorted(name for name in by_name if name.startswith("check ")):
                add(check.removeprefix("check "), by_name[check], "reserved", under=True)
    for variant in sorted(name for name in by_name if name.startswith("variant ")):
        ids = {span.span_id for span in by_name[variant]}
        inside: list[Span] = []
        for span in sorted(spans, key=lambda span: span.start):
            if span.parent_id in ids:
                ids.add(span.span_id)
                if span.name in PHASES and span.name != "admission":
                    inside.append(span)
        add(variant.removeprefix("variant "), inside)
    return tuple(lanes)


def _is_moment(span: Span) -> bool:
    """Whether the span is a requeue that ended at once, which is no backoff."""
    took = None if span.end is None else span.end - span.start
    return span.name == "requeue" and took is not None and took < timedelta(milliseconds=50)


def _stretch(span: Span, phase: str, axis: Axis, last: datetime, now: datetime) -> Stretch:
    end = span.end or last
    x = min(axis.x(span.start), 100 - LEAST_WIDTH)
    width = round(max(axis.x(end) - x, LEAST_WIDTH), 2)
    took = between(span.start, end)
    to = "still open" if span.end is None else f"to {clock_time(end, now)}"
    return Stretch(
        x=x,
        width=width,
        phase=phase,
        label=took if len(took) * CHARACTER < width - 1 else "",
        title=f"{span.name}, {clock_time(span.start, now)} {to}: {took}",
    )


def _rings(spans: Sequence[Span], axis: Axis, now: datetime) -> tuple[Ring, ...]:
    """The times at which a check was asked, with those merged that are close."""
    groups: list[list[tuple[int, Span, float]]] = []
    for place, span in enumerate(sorted(spans, key=lambda span: span.start), 1):
        x = axis.x(span.start)
        if groups and x - groups[-1][-1][2] < MERGE:
            groups[-1].append((place, span, x))
        else:
            groups.append([(place, span, x)])
    rings = []
    for group in groups:
        first, final = group[0], group[-1]
        several = len(group) > 1
        text = f"{first[0]}\u2013{final[0]}" if several else str(first[0])
        said = final[1].attributes.get("admittance.state", "")
        when = clock_time(first[1].start, now)
        title = f"Attempt {text}, {when}" + (f": {said}" if said else "")
        rings.append(Ring(x=first[2], text=text, title=title))
    return tuple(rings)


def _desc(spans: Sequence[Span], now: datetime, still: str) -> str:
    """The same as text. ``still``: the end of a stretch that has not ended."""
    said = []
    for span in sorted(spans, key=lambda span: span.start):
        if span.name in PHASES:
            since = clock_time(span.start, now)
            to = f"to {clock_time(span.end, now)}" if span.end is not None else still
            said.append(f"{PHASES[span.name][0]} from {since} {to}.")
    shown = said[:DESCRIBED_MAX]
    left = len(said) - len(shown)
    return " ".join([*shown, *([f"And {left} more stretches."] if left else [])])


DESCRIBED_MAX: Final = 40
"""The most stretches in the text of a timeline."""
