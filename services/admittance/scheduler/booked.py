"""What is shown as booked: of a family as much as it holds together, once; and nothing that is
merely kept for a variant until its sibling's job has stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from admittance.quota.cell import Cell
from admittance.scheduler.facts import PROMISED
from admittance.scheduler.picture import Member
from admittance.scheduler.queue import Queue
from admittance.scheduler.victims import put_back, take_out


def is_kept(member: Member) -> bool:
    """Its quota is only kept for it, or is about to be."""
    family = member.family
    if family is None:
        return False
    return member.state == PROMISED or (family.moving is not None and family.moving[0] is member)


def shown(member: Member) -> Iterable[tuple[Cell, int]]:
    """What it holds; of a family all of it, told with the one that counts for it."""
    overlap = member.overlap
    if overlap is None:
        return member.charge.cells if member.charge is not None else ()
    return overlap.amounts() if overlap.counts is member else ()


def kept(queues: Iterable[Queue]) -> list[Member]:
    """For whom quota is kept in these queues. Costs a look at those that hold quota in the queues
    that have families."""
    return [
        one for queue in queues if queue.rules is not None for one in queue.holding if is_kept(one)
    ]


@contextmanager
def without(members: Iterable[Member]) -> Iterator[None]:
    """As if they held nothing."""
    gone = list(members)
    for one in gone:
        take_out(one)
    yield
    for one in reversed(gone):
        put_back(one)
