"""Decides whether a preemptor fits into quota, and which victims found by a search are needed.

Source: `docs/spec/scheduling.md#6.3`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from admittance.quota.cell import Cell, FlavorResource, available, is_over, minus, plus
from admittance.scheduling.state.held.shared_quota import exclude, include
from admittance.scheduling.state.workload_info import CandidateEntry, Victim

Need = Mapping[Cell, int]
"""The amount of quota that a preemptor needs of each cell of its queue."""


RemovedVictim = tuple[Victim, Sequence[tuple[Cell, int]]]
"""A victim, and the amounts of usage that a search has subtracted from the scheduler's state for
it."""


def fits(need: Need, *, borrowing: bool) -> bool:
    """Whether all amounts in ``need`` fit into the available quota now. ``borrowing`` False: the
    amounts must also fit into the nominal quota of the queue."""
    for cell, amount in need.items():
        if not borrowing and cell.nominal < cell.usage + amount:
            return False
        if amount:
            free = available(cell)
            if amount > (free if free > 0 else 0):
                return False
    return True


def shortfalls(need: Need) -> dict[FlavorResource, int]:
    """Returns the flavors and resources of ``need`` with too little available quota, each with the
    missing amount. Enough victims hold at least the missing amounts together, because a victim
    frees at most what it holds."""
    lack: dict[FlavorResource, int] = {}
    for cell, amount in need.items():
        short = amount - max(0, available(cell))
        if short > 0:
            lack[cell.fr] = short
    return lack


def above_nominal(need: Need) -> dict[FlavorResource, int]:
    """Returns the flavors and resources of ``need`` that would exceed the nominal quota of the
    preemptor's queue, and by how much."""
    return {
        cell.fr: more
        for cell, amount in need.items()
        if (more := cell.usage + amount - cell.nominal) > 0
    }


def affects_no_other(cell: Cell, amount: int) -> bool:
    """Whether the amount fits into the available quota of the cell's node, and no node from there
    up to the root would borrow for it.

    A search for victims for other resources may then ignore the amount: no entitlement and no share
    depends on it, and it fits whichever workloads are preempted."""
    if amount > available(cell):
        return False
    here, rest = cell, amount
    while not is_over(here, rest):
        if here.parent is None:
            return True
        rest = max(0, rest - here.local_free())
        here = here.parent
    return False


def can_free(candidates: Sequence[CandidateEntry], short: Mapping[FlavorResource, int]) -> bool:
    """Whether the candidates together hold all amounts in ``short``."""
    return all(_hold_together(candidates, fr, amount) for fr, amount in short.items())


def fill_back(taken: list[RemovedVictim], need: Need, *, borrowing: bool) -> list[Victim]:
    """Returns the victims in ``taken`` that the preemptor needs. Goes through the victims in
    reverse order, without the last one, which is always needed: restores the usage of each, and
    drops the victim if the preemptor still fits. At the end the usage of all victims is restored.
    """
    spare = _spare_quota(need)
    shared: dict[Cell, bool] = {}
    index = len(taken) - 2
    many = index + 1
    while index >= 0:
        victim, amounts = taken[index]
        if not victim.workload.shared_quotas and _cannot_stay(amounts, spare, shared):
            index -= 1
            continue
        # Several victims are restored at once, because usually either nearly all victims are needed
        # or only few.
        many = min(many, index + 1)
        some = taken[index - many + 1 : index + 1]
        total = _total(some)
        for cell, amount in total.items():
            cell.charge(amount)
        for victim, _ in some:
            if victim.workload.shared_quotas:
                include(victim.workload)
        if fits(need, borrowing=borrowing):
            for at in range(index, index - many, -1):
                taken[at] = taken[-1]
                taken.pop()
            index -= many
            many *= 2
            spare = _spare_quota(need)
        else:
            for cell, amount in total.items():
                cell.charge(-amount)
            for victim, _ in some:
                if victim.workload.shared_quotas:
                    exclude(victim.workload)
            if many == 1:
                index -= 1
            else:
                many //= 2
    for removed in taken:
        restore_victim(removed)
    return [victim for victim, _ in taken]


def remove_victim(taken: RemovedVictim) -> None:
    """Subtracts the usage of the victim from the scheduler's state."""
    victim, amounts = taken
    for cell, amount in amounts:
        cell.charge(-amount)
    if victim.workload.shared_quotas:
        exclude(victim.workload)


def restore_victim(taken: RemovedVictim) -> None:
    """Undoes `remove_victim`: charges the usage of the victim again."""
    victim, amounts = taken
    for cell, amount in amounts:
        cell.charge(amount)
    if victim.workload.shared_quotas:
        include(victim.workload)


def _total(taken: Iterable[RemovedVictim]) -> dict[Cell, int]:
    """Returns the sum of the amounts that were subtracted for the given victims, per cell. Charging
    is additive, so the sum can be charged in one step."""
    total: dict[Cell, int] = {}
    for _, amounts in taken:
        for cell, amount in amounts:
            total[cell] = total.get(cell, 0) + amount
    return total


def _spare_quota(need: Need) -> dict[FlavorResource, int]:
    """Returns an upper bound of the quota that stays free if ``need`` is charged: the free quota at
    the root, plus the unused quota that nodes on the way to the root do not lend."""
    spare: dict[FlavorResource, int] = {}
    for cell, amount in need.items():
        if not amount:
            continue  # An amount of zero always fits.
        here, free = cell, 0
        while here.parent is not None:
            free = plus(free, here.local_free())
            here = here.parent
        spare[cell.fr] = minus(plus(free, max(0, available(here))), amount)
    return spare


def _cannot_stay(
    amounts: Iterable[tuple[Cell, int]],
    spare: Mapping[FlavorResource, int],
    shared: dict[Cell, bool],
) -> bool:
    """Whether a victim with these amounts is certainly needed, because restoring its usage would
    exceed the spare quota. True only if no node on the way from the victim's queue up to the root
    keeps quota for itself. ``shared``: a cache, by cell, of whether all nodes from the cell's queue
    up to the root lend all of their quota."""
    for cell, amount in amounts:
        if amount > spare.get(cell.fr, amount):
            known = shared.get(cell)
            if known is None:
                here = cell
                while here.parent is not None and not here.guaranteed:
                    here = here.parent
                known = shared[cell] = here.parent is None
            if known:
                return True
    return False


def _hold_together(candidates: Iterable[CandidateEntry], fr: FlavorResource, amount: int) -> bool:
    """Whether the candidates together hold at least ``amount`` of the flavor and resource
    ``fr``."""
    for entry in candidates:
        held = entry[4].charge
        if held is not None:
            for cell, much in held.cells:
                if cell.fr == fr:
                    amount -= much
            if amount <= 0:
                return True
    return amount <= 0
