"""Who holds what is short: the largest holders, and whether preemption could reach them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from operator import itemgetter

from admittance.events.why import Holder
from admittance.quota.amounts import UNLIMITED
from admittance.quota.cell import Cell, FlavorResource, is_over
from admittance.scheduling.explain.preemption_blockers import Ask, spared_by
from admittance.scheduling.state.queue import Queue
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Key, WorkloadInfo

HOLDERS_MAX = 10
LOOKED_AT_MAX = 1_000

SORTED_MAX = 500
"""Of more queues it is not asked which of them borrow most."""

Place = tuple[int, int, Key, FlavorResource, Cell, WorkloadInfo]
"""The amount, negated, priority and name: the order; then what and whose it is."""


def holders(state: SchedulerState, asks: Mapping[FlavorResource, Ask]) -> tuple[Holder, ...]:
    """The largest holders of what is asked for and short. Looks at so many workloads at most, the
    asker's queue first, then queues that borrow most."""
    if not asks:
        return ()
    asker = next(iter(asks.values()))
    best: list[Place] = []
    least, last = 1, UNLIMITED  # Who would not be among the best is passed over at once.
    for other in islice(_everybody(asker.queue, asks), LOOKED_AT_MAX):
        charge = other.charge
        if charge is None or other is asker.workload:
            continue
        for cell, amount in charge.cells:
            if amount < least or (amount == least and other.priority > last):
                continue
            if cell.fr in asks:
                best.append((-amount, other.priority, other.key, cell.fr, cell, other))
        if len(best) > 4 * HOLDERS_MAX:
            least, last = _keep(best)
    _keep(best)
    return tuple(
        _holder(state, asks[fr], other, cell, -less) for less, _, _, fr, cell, other in best
    )


def _keep(best: list[Place]) -> tuple[int, int]:
    """Drops all but the best. Returns the least amount, and the highest priority with it, of those
    who might still be among them."""
    best.sort(key=itemgetter(0, 1, 2, 3))
    del best[HOLDERS_MAX:]
    return (-best[-1][0], best[-1][1]) if len(best) == HOLDERS_MAX else (1, UNLIMITED)


def _everybody(queue: Queue, asks: Mapping[FlavorResource, Ask]) -> Iterator[WorkloadInfo]:
    yield from queue.holding
    if queue.domain is None:
        return
    others = [one for one in queue.domain.queues if one is not queue and one.holding]
    if 1 < len(others) <= SORTED_MAX:
        others.sort(key=lambda one: (-_over(one, asks), one.name))
    for one in others:
        yield from one.holding


def _over(queue: Queue, asks: Mapping[FlavorResource, Ask]) -> int:
    if queue.node is None:
        return 0
    cells = (queue.node.cells.get(fr) for fr in asks)
    return sum(max(0, cell.usage - cell.nominal) for cell in cells if cell is not None)


def _holder(
    state: SchedulerState, ask: Ask, other: WorkloadInfo, cell: Cell, amount: int
) -> Holder:
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
        spared_by="" if other.is_leaving else spared_by(state, ask, other),
    )
