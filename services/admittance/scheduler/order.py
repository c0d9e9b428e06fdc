"""Who comes when among all that wait in a ClusterQueue, parked or not. Source: SCHEDULING 3.2."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from typing import TYPE_CHECKING, Final

from admittance.scheduler.lanes import Lanes
from admittance.scheduler.picture import Key, Member

if TYPE_CHECKING:
    from admittance.scheduler.queue import Queue

Place = tuple[datetime, str, Key]
FIRST: Final = float("-inf")
"""As a priority, negated: before all others."""


def place(member: Member) -> Place:
    """Its order among those of equal priority."""
    assert member.stamp is not None
    return member.stamp, member.uid, member.key


def stands(queue: Queue, member: Member) -> tuple[float, float, Place]:
    """Sorts members of one queue into their order: by usage, where that counts, by priority and
    age; but for whom others were told to go."""
    usage = _usage(queue.lanes, member)
    if not queue.is_first(member):
        return usage, -member.priority, place(member)
    if queue.lanes is None or queue.lanes.keeps_place:
        usage = FIRST
    return usage, FIRST, place(member)


def in_order(queue: Queue) -> Iterator[Member]:
    """Everybody who waits there. Costs a look at each class, and at what is taken of it."""
    first = queue.preemptor
    sticky = first if first is not None and queue.is_first(first) else None
    rows: dict[tuple[float, float], list[Iterator[Member]]] = {}
    lanes = queue.lanes
    for key, cls in queue.classes.items():
        usage = lanes.usage_of(key[2]) if lanes is not None else 0.0
        rows.setdefault((usage, -key[0]), []).append(cls.waiting())
    for member in sorted(queue.asides, key=place):
        rows.setdefault((_usage(lanes, member), -member.priority), []).append(iter((member,)))
    if sticky is not None:
        rows[stands(queue, sticky)[:2]] = [iter((sticky,))]
    for row in sorted(rows):
        found = merge(*rows[row], key=place)
        yield from (one for one in found if one is not sticky or row[1] == FIRST)


def position(queue: Queue, member: Member) -> int:
    """The member's place among all that wait, from 1. Costs a bisection for each class that it is
    not apart from by usage or priority, and a look at those set aside."""
    lanes = queue.lanes
    mine = stands(queue, member)
    ahead = 1
    first = queue.preemptor
    if first is not None and first is not member and queue.is_first(first):
        by_itself = (_usage(lanes, first), -first.priority, place(first))
        # Where it would be ahead without its kept place it is counted below.
        ahead += stands(queue, first) < mine < by_itself
    _, rank, at = mine
    for key, cls in queue.classes.items():
        if lanes is None:
            # As below, at less cost: a queue may have very many classes.
            if -key[0] < rank:
                ahead += len(cls.members) - cls.start
            elif key[0] == -rank:
                ahead += bisect_left(cls.members, at, cls.start) - cls.start
            continue
        other = lanes.usage_of(key[2]), -key[0]
        if other < mine[:2]:
            ahead += cls.live
        elif other == mine[:2]:
            ahead += cls.before(at)
    for one in queue.asides:
        ahead += (_usage(lanes, one), -one.priority, place(one)) < mine
    return ahead


def _usage(lanes: Lanes | None, member: Member) -> float:
    return lanes.usage_of(member.local) if lanes is not None else 0.0
