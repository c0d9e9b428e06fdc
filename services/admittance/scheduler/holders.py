"""Who holds what is short: the largest holders, and whether preemption could reach them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nsmallest
from itertools import islice

from admittance.events.why import Holder
from admittance.quota.cell import Cell, FlavorResource, is_over
from admittance.scheduler.picture import Member
from admittance.scheduler.queue import Queue
from admittance.scheduler.spared import Ask, spared_by
from admittance.scheduler.world import World

HOLDERS_MAX = 10
LOOKED_AT_MAX = 1_000


def holders(world: World, asks: Mapping[FlavorResource, Ask]) -> tuple[Holder, ...]:
    """The largest holders of what is asked for and short. Looks at so many workloads at most, the
    asker's queue first, then queues that borrow most."""
    if not asks:
        return ()
    asker = next(iter(asks.values()))
    found = (
        (-amount, other.priority, other.key, cell.fr, cell, other)
        for other in islice(_everybody(asker.queue, asks), LOOKED_AT_MAX)
        if other.charge is not None and other is not asker.member
        for cell, amount in other.charge.cells
        if amount > 0 and cell.fr in asks
    )
    return tuple(
        _holder(world, asks[fr], other, cell, -less)
        for less, _, _, fr, cell, other in nsmallest(HOLDERS_MAX, found, key=lambda one: one[:4])
    )


def _everybody(queue: Queue, asks: Mapping[FlavorResource, Ask]) -> Iterator[Member]:
    yield from queue.holding
    if queue.domain is None:
        return
    others = [one for one in queue.domain.queues if one is not queue and one.holding]
    if len(others) > 1:
        others.sort(key=lambda one: (-_over(one, asks), one.name))
    for one in others:
        yield from one.holding


def _over(queue: Queue, asks: Mapping[FlavorResource, Ask]) -> int:
    if queue.node is None:
        return 0
    cells = (queue.node.cells.get(fr) for fr in asks)
    return sum(max(0, cell.usage - cell.nominal) for cell in cells if cell is not None)


def _holder(world: World, ask: Ask, other: Member, cell: Cell, amount: int) -> Holder:
    assert other.charge is not None
    return Holder(
        namespace=other.key[0],
        name=other.key[1],
        cluster_queue=other.charge.queue.name,
        flavor=cell.fr[0],
        resource=cell.fr[1],
        amount=amount,
        priority=other.priority,
        borrowed=is_over(cell),
        leaving=other.is_leaving,
        spared_by="" if other.is_leaving else spared_by(world, ask, other),
    )
