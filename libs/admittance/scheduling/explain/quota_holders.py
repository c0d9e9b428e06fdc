"""Lists the workloads that hold most of a missing resource, and whether they may be preempted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from operator import itemgetter

from admittance.events.explanation import Holder
from admittance.quota.cell import UNLIMITED, Cell, FlavorResource, is_over
from admittance.scheduling.explain.preemption_blockers import QuotaNeed, protection_rule
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo

HOLDERS_MAX = 10
LOOKED_AT_MAX = 1_000

SORTED_MAX = 500
"""If more ClusterQueues than this number borrow, they are not sorted by how much they borrow."""

_Candidate = tuple[int, int, Key, FlavorResource, Cell, WorkloadInfo]
"""Sort key of a possible holder: negative amount, priority, name, flavor and resource; then the
cell and the holder."""


def holders(state: SchedulerState, needs: Mapping[FlavorResource, QuotaNeed]) -> tuple[Holder, ...]:
    """The workloads that hold most of the missing quota. Checks at most `LOOKED_AT_MAX` workloads:
    first those in the workload's own queue, then those in the queues that borrow most."""
    if not needs:
        return ()
    first = next(iter(needs.values()))
    best: list[_Candidate] = []
    # The limits start so that every holder is kept. After `_keep`, holders smaller than the kept
    # ones are skipped at once.
    least, last = 1, UNLIMITED
    for other in islice(_holding(first.queue, needs), LOOKED_AT_MAX):
        charge = other.charge
        if charge is None or other is first.workload:
            continue
        for cell, amount in charge.cells:
            if amount < least or (amount == least and other.priority > last):
                continue
            if cell.fr in needs:
                best.append((-amount, other.priority, other.key, cell.fr, cell, other))
        if len(best) > 4 * HOLDERS_MAX:
            least, last = _keep(best)
    _keep(best)
    return tuple(
        _holder(state, needs[fr], other, cell, -less) for less, _, _, fr, cell, other in best
    )


def _keep(best: list[_Candidate]) -> tuple[int, int]:
    """Removes all but the largest holders of quota from the list. Returns the amount and priority
    that another holder must reach to be listed."""
    best.sort(key=itemgetter(0, 1, 2, 3))
    del best[HOLDERS_MAX:]
    return (-best[-1][0], best[-1][1]) if len(best) == HOLDERS_MAX else (1, UNLIMITED)


def _holding(queue: Queue, needs: Mapping[FlavorResource, QuotaNeed]) -> Iterator[WorkloadInfo]:
    yield from queue.holding
    if queue.domain is None:
        return
    others = [one for one in queue.domain.queues if one is not queue and one.holding]
    if 1 < len(others) <= SORTED_MAX:
        others.sort(key=lambda one: (-_over(one, needs), one.name))
    for one in others:
        yield from one.holding


def _over(queue: Queue, needs: Mapping[FlavorResource, QuotaNeed]) -> int:
    if queue.node is None:
        return 0
    cells = (queue.node.cells.get(fr) for fr in needs)
    return sum(max(0, cell.usage - cell.nominal) for cell in cells if cell is not None)


def _holder(
    state: SchedulerState, need: QuotaNeed, other: WorkloadInfo, cell: Cell, amount: int
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
        spared_by="" if other.is_leaving else protection_rule(state, need, other),
    )
