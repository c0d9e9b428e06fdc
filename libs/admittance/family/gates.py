"""Whose gate on preemption opens: one sibling preempts at a time, not several for one job.

Source: LIFECYCLE 4.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

PREEMPTION_TIMEOUT: Final = timedelta(minutes=5)
"""After the last opening the next gate opens, unless victims have gone for the holder already."""


class Sibling(NamedTuple):
    """An active variant. ``evaluated``: in this attempt the scheduler has reserved for it, or said
    why not. ``blocked``: it would preempt, and its gate is closed. ``took``: it holds a reservation
    for which others have gone."""

    name: str
    place: int
    evaluated: bool
    blocked: bool = False
    open: bool = False
    took: bool = False


class Opening(NamedTuple):
    """Who holds the open gate of a family, and since when."""

    holder: str
    since: datetime


def holder_of(
    siblings: Iterable[Sibling], held: Opening | None, now: datetime
) -> tuple[Sibling | None, bool]:
    """Who holds the open gate of those siblings, and whether nobody else's may open yet: others
    have gone for what it has reserved, or its time is not over."""
    if held is None:
        return None, False
    holder = next((one for one in siblings if one.name == held.holder and one.open), None)
    if holder is None:
        return None, False
    return holder, holder.took or now < held.since + PREEMPTION_TIMEOUT


def to_open(siblings: Iterable[Sibling], held: Opening | None, now: datetime) -> str:
    """The sibling whose gate opens now; "": none.

    ``siblings``: the active ones. A holder that is not among them any more (deleted, deactivated,
    evicted, rejected) holds nothing; who is evicted has its gate closed, which is ``open`` False.
    One that nobody has evaluated yet stops the walk: it may turn out to need no victims. Behind a
    holder whose time is over the walk goes on where it was, so that everybody has a turn although
    its gate closes again.
    """
    ordered = sorted(siblings, key=lambda one: one.place)
    holder, keeps = holder_of(ordered, held, now)
    if keeps:
        return ""
    turned = holder.place if holder is not None else -1
    first = ""
    for one in ordered:
        if one.open:
            continue
        if not one.evaluated:
            break
        if one.blocked and one.place > turned:
            return one.name
        if one.blocked:
            first = first or one.name
    return first


def first_choice(siblings: Iterable[Sibling], waits_for_victims: Iterable[str]) -> int | None:
    """The place behind which nobody may be tried: a better sibling needs victims, and has not had
    its chance yet. None: everybody may.

    ``waits_for_victims``: holders whose victims are still stopping.
    """
    known = tuple(siblings)
    stopping = set(waits_for_victims)
    anybody_open = any(one.open for one in known)
    ahead = [
        one.place
        for one in known
        if one.name in stopping or (one.blocked and not one.open and not anybody_open)
    ]
    return min(ahead, default=None)
