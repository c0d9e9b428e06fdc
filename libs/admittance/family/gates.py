"""Selects the variant of a family that gets an open preemption gate.

All variants are for one job, so only one of them may preempt at a time.
Source: docs/spec/lifecycle.md#4.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

PREEMPTION_TIMEOUT: Final = timedelta(minutes=5)
"""How long a gate stays the only open one of its family, if no workload is preempted for the
variant of that gate."""


class Sibling(NamedTuple):
    """An active variant of a family. ``place``: the variant's place in the order of preference, 0
    is the best. ``evaluated``: in the present attempt the scheduler reserved quota for the variant
    or refused it. ``blocked``: the variant needs preemption and its gate is closed. ``took``:
    workloads were preempted for the variant's reservation."""

    name: str
    place: int
    evaluated: bool
    blocked: bool = False
    open: bool = False
    took: bool = False


class GateOpening(NamedTuple):
    """The variant of a family with an open gate, and when the gate opened."""

    holder: str
    since: datetime


def holder_of(
    siblings: Iterable[Sibling], held: GateOpening | None, now: datetime
) -> tuple[Sibling | None, bool]:
    """The sibling with the open gate, and whether all other gates stay closed. All other gates of
    the family stay closed if workloads were preempted for the reservation of the sibling with the
    open gate, and until PREEMPTION_TIMEOUT is over."""
    if held is None:
        return None, False
    holder = next((one for one in siblings if one.name == held.holder and one.open), None)
    if holder is None:
        return None, False
    return holder, holder.took or now < held.since + PREEMPTION_TIMEOUT


def to_open(siblings: Iterable[Sibling], held: GateOpening | None, now: datetime) -> str:
    """The name of the sibling that gets an open gate now; "": no gate opens.

    ``siblings``: all active variants of the family. A holder of the gate that is not among
    ``siblings`` (deleted, deactivated or rejected) does not count; an eviction closes the gate, so
    ``open`` is False. The search stops at a sibling that is not evaluated yet, because that sibling
    may need no preemption. After the holder's time is over the search continues behind the holder,
    so that every sibling gets a turn.
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
    """Returns the last place in the order of preference at which a variant may be tried; None: all
    variants may be tried.

    The sibling at that place waits for its gate to open, or is in ``waits_for_victims``, the names
    of siblings with victims that are still stopping.
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
