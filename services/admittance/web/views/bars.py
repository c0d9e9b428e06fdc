"""Quota bars: what a flavor has, what is used of it, and how much of what is asked fits.

Positions are percent of the width of the chart. The upper track goes from 0 to the most that the
queue may use; the lower track begins where the use ends, and has what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from admittance.events.requests.explanation import FlavorVerdict, Room
from admittance.web.views.words import Word, amount, number, unit

OWN_SCALE: Final = 8
"""If the largest of the bars is over so many times the smallest, each has a scale of its own."""
NEAR: Final = 12.0
"""Ticks closer than so many percent have their words on different sides."""


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A mark on the upper track. ``anchor``: where its text lies: start, middle or end."""

    x: float
    text: str
    anchor: str


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """The widths of the parts: ``own`` and ``borrowed`` use, ``others``: used by other queues, at
    the end of the track of the width ``most``; ``fits`` and ``short``: of what is asked."""

    resource: str
    own: float
    borrowed: float
    others: float
    most: float
    fits: float
    short: float
    ticks: tuple[Tick, ...]
    title: str
    desc: str

    @property
    def used(self) -> float:
        """Where the use ends."""
        return round(self.own + self.borrowed, 2)


class FlavorRow(msgspec.Struct, frozen=True, kw_only=True):
    """A flavor with the bar of one resource. ``short`` "": what is asked fits."""

    id: str
    name: str
    under: str
    word: Word
    bar: Bar
    asked: str
    free: str
    fits: str
    short: str
    why: str


class Rooms(msgspec.Struct, frozen=True, kw_only=True):
    """The flavors of a workload. ``unit``: of the resource that is shown; ``others``: a sentence
    about the resources that fit everywhere, "" without one; ``own_scales``: each bar has its own
    scale."""

    unit: str
    others: str
    own_scales: bool
    rows: tuple[FlavorRow, ...]


def extent(room: Room) -> int:
    """What the bar of the room must show."""
    return max(room.potential, room.nominal, room.usage + room.taken + room.requested, 1)


def bars(rooms: Sequence[Room]) -> tuple[tuple[Bar, ...], bool]:
    """The bars of one resource in several flavors, and whether each has a scale of its own."""
    extents = [extent(room) for room in rooms]
    largest = max(extents, default=1)
    each = largest > OWN_SCALE * min(extents, default=1)
    return tuple(
        _bar(room, own if each else largest) for room, own in zip(rooms, extents, strict=True)
    ), each


def _bar(room: Room, scale: int) -> Bar:
    def x(much: int) -> float:
        return round(100 * max(0, much) / scale, 2)

    most = max(room.potential, room.nominal, room.usage)
    own = min(room.usage, room.nominal)
    asked = room.taken + room.requested
    fits = max(0, min(asked, asked - room.short))
    others = max(0, most - room.usage - room.available)
    return Bar(
        resource=room.resource,
        own=x(own),
        borrowed=x(room.usage - own),
        others=x(others),
        most=x(most),
        fits=x(fits),
        short=x(asked - fits),
        ticks=_ticks(room, most, x(room.nominal), x(most)),
        title=f"{unit(room.resource)} of the queue",
        desc=_desc(room, asked, fits),
    )


def _ticks(room: Room, most: int, nominal_at: float, most_at: float) -> tuple[Tick, ...]:
    nominal = f"nominal {number(room.resource, room.nominal)}"
    if room.nominal == most:
        text = nominal if room.borrowing_limit != 0 else f"{nominal}, no borrowing"
        return (Tick(x=nominal_at, text=text, anchor=_anchor(nominal_at)),)
    near = most_at - nominal_at < NEAR
    return (
        Tick(x=nominal_at, text=nominal, anchor="end" if near else _anchor(nominal_at)),
        Tick(
            x=most_at,
            text=f"at most {number(room.resource, most)}",
            anchor="start" if near and most_at < 100 - NEAR else _anchor(most_at),
        ),
    )


def _anchor(x: float) -> str:
    return "start" if x < NEAR else "end" if x > 100 - NEAR else "middle"


def _desc(room: Room, asked: int, fits: int) -> str:
    name = room.resource
    own = min(room.usage, room.nominal)
    used = f"The queue uses {number(name, own)} of its own {number(name, room.nominal)}"
    if room.usage > own:
        used += f" and {number(name, room.usage - own)} borrowed"
    free = f"{number(name, room.available)} are free"
    if fits == asked:
        return f"{used}; {free}. The {amount(name, asked)} asked fit."
    left = number(name, asked - fits)
    return f"{used}; {free}. Asked: {amount(name, asked)}, of which {left} are short."


def rooms_of(verdicts: Sequence[FlavorVerdict], words: Sequence[Word]) -> Rooms | None:
    """The flavors with the resource that is most often short; None: no flavor has numbers.
    ``words``: the state of each flavor."""
    counted: dict[str, int] = {}
    for verdict in verdicts:
        for room in verdict.rooms:
            counted[room.resource] = counted.get(room.resource, 0) + (room.short > 0)
    if not counted:
        return None
    shown = max(counted, key=lambda name: (counted[name], "/" in name, name == "cpu"))
    pairs = [
        (verdict, word, room)
        for verdict, word in zip(verdicts, words, strict=True)
        for room in verdict.rooms
        if room.resource == shown
    ]
    drawn, own_scales = bars([room for _, _, room in pairs])
    several = len({verdict.pod_set for verdict, _, _ in pairs}) > 1
    rows = tuple(
        FlavorRow(
            id=f"{verdict.pod_set}-{verdict.flavor}",
            name=verdict.flavor,
            under=f"pod set {verdict.pod_set}" if several else "",
            word=word,
            bar=bar,
            asked=number(shown, room.taken + room.requested),
            free=number(shown, room.available),
            fits=number(shown, room.taken + room.requested - room.short),
            short=number(shown, room.short) if room.short else "",
            why=_why(verdict),
        )
        for (verdict, word, room), bar in zip(pairs, drawn, strict=True)
    )
    return Rooms(
        unit=unit(shown), others=_others(verdicts, shown), own_scales=own_scales, rows=rows
    )


def _why(verdict: FlavorVerdict) -> str:
    """The sentences about the flavor beside its numbers."""
    said = [barrier.message for barrier in verdict.barriers if barrier.message]
    if not said:
        said = [verdict.message] if verdict.message else []
    if verdict.fits and not said:
        return "There is room."
    return " ".join(f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in dict.fromkeys(said))


def _others(verdicts: Sequence[FlavorVerdict], shown: str) -> str:
    """A sentence about each other resource: it fits in all flavors, or where it is short."""
    names = dict.fromkeys(
        room.resource for verdict in verdicts for room in verdict.rooms if room.resource != shown
    )
    said = []
    for name in names:
        of = [(v.flavor, room) for v in verdicts for room in v.rooms if room.resource == name]
        asked = amount(name, max(room.taken + room.requested for _, room in of))
        short = [
            f"{number(name, room.short)} short in {flavor}" for flavor, room in of if room.short
        ]
        fits = "fit" if len(of) == 1 else f"fit in all {len(of)}"
        said.append(f"The {asked}: {', '.join(short)}." if short else f"The {asked} {fits}.")
    return " ".join(said)
