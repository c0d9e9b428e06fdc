"""Which sibling's preemption gate opens: only one sibling preempts at a time, since all are for one
job.

Source: docs/spec/lifecycle.md#4.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

PREEMPTION_TIMEOUT: Final = timedelta(minutes=5)
"""Time after an opening when the next gate may open, unless workloads were preempted for the
holder."""


class Sibling(NamedTuple):
    """An active variant. ``evaluated``: in this attempt the scheduler reserved quota for it or
    refused it. ``blocked``: it needs preemption and its gate is closed. ``took``: workloads were
    preempted for its reservation."""

    name: str
    place: int
    evaluated: bool
    blocked: bool = False
    open: bool = False
    took: bool = False


class Opening(NamedTuple):
    """The variant with the open gate of a family, and since when."""

    holder: str
    since: datetime


def holder_of(
    siblings: Iterable[Sibling], held: Opening | None, now: datetime
) -> tuple[Sibling | None, bool]:
    """The sibling with the open gate, and whether all other gates stay closed: workloads were
    preempted for its reservation, or its time is not over."""
    if held is None:
        return None, False
    holder = next((one for one in siblings if one.name == held.holder and one.open), None)
    if holder is None:
        return None, False
    return holder, holder.took or now < held.since + PREEMPTION_TIMEOUT


def to_open(siblings: Iterable[Sibling], held: Opening | None, now: datetime) -> str:
    """Name of the sibling that gets an open gate now; "": none.

    ``siblings``: the active ones. A holder that is not among them (deleted, deactivated, evicted or
    rejected) holds nothing; an eviction closes its gate, so ``open`` is False. A sibling that is
    not evaluated yet ends the search, since it may need no preemption. After a holder's time is
    over the search continues behind it, so that every sibling gets a turn.
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
    """The last place in the order of preference that may be tried: that sibling needs preemption
    and has not had its turn yet. None: all may be tried.

    ``waits_for_victims``: names of holders with victims that still stop.
    """
    known = tuple(siblings)
    stopping = set(waits_for_victims)
    any_open = any(one.open for one in known)
    ahead = [
        one.place
        for one in known
        if one.name in stopping or (one.blocked and not one.open and not any_open)
    ]
    return min(ahead, default=None)
