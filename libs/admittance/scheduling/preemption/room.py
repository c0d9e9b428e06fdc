"""Whether there is room for all that is asked, and who need not go for it.

Source: `docs/spec/scheduling.md#6.3`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from admittance.quota.amounts import minus, plus
from admittance.quota.cell import Cell, FlavorResource, available, is_over
from admittance.scheduling.state.shared_quota import exclude, include
from admittance.scheduling.state.workload_info import CandidateEntry, Victim

Need = Mapping[Cell, int]
"""What a preemptor asks for in all, per cell of its queue."""


RemovedVictim = tuple[Victim, Sequence[tuple[Cell, int]]]
"""A victim, and the amounts that were taken out of the state for it."""


def fits(need: Need, *, borrowing: bool) -> bool:
    """All of it would have room now; without borrowing: within the nominal quota."""
    for cell, amount in need.items():
        if not borrowing and cell.nominal < cell.usage + amount:
            return False
        if amount:
            free = available(cell)
            if amount > (free if free > 0 else 0):
                return False
    return True


def shortfalls(need: Need) -> dict[FlavorResource, int]:
    """Of what there is too little, and by how much: no less has to be given up of it, since what
    goes makes at most as much room as it held."""
    lack: dict[FlavorResource, int] = {}
    for cell, amount in need.items():
        short = amount - max(0, available(cell))
        if short > 0:
            lack[cell.fr] = short
    return lack


def above_nominal(need: Need) -> dict[FlavorResource, int]:
    """Of what more would be used than the nominal quota, and by how much."""
    return {
        cell.fr: more
        for cell, amount in need.items()
        if (more := cell.usage + amount - cell.nominal) > 0
    }


def affects_no_other(cell: Cell, amount: int) -> bool:
    """There is room for it, and no node on its way to the root takes from its parent for it.

    Then it changes nothing about who has to go for something else: it gives no right and takes
    none, has room however many go or stay, and nobody's share moves by it.
    """
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
    """Nothing is short of which there were too little even without all candidates."""
    return all(_hold_together(candidates, fr, amount) for fr, amount in short.items())


def fill_back(taken: list[RemovedVictim], need: Need, *, borrowing: bool) -> list[Victim]:
    """Spares whoever need not go, the last ones taken first; the very last always goes. All are
    put back."""
    spare = _spare_quota(need)
    shared: dict[Cell, bool] = {}
    index = len(taken) - 2
    many = index + 1
    while index >= 0:
        victim, amounts = taken[index]
        if not victim.workload.shared_quotas and _cannot_stay(amounts, spare, shared):
            index -= 1
            continue
        # Where so many have room together, each has after those before it: mostly all, or few.
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
    for one in taken:
        restore_victim(one)
    return [victim for victim, _ in taken]


def remove_victim(taken: RemovedVictim) -> None:
    """Takes the victim out of the state."""
    victim, amounts = taken
    for cell, amount in amounts:
        cell.charge(-amount)
    if victim.workload.shared_quotas:
        exclude(victim.workload)


def restore_victim(taken: RemovedVictim) -> None:
    """Undoes `away`."""
    victim, amounts = taken
    for cell, amount in amounts:
        cell.charge(amount)
    if victim.workload.shared_quotas:
        include(victim.workload)


def _total(taken: Iterable[RemovedVictim]) -> dict[Cell, int]:
    """What was taken out for all of these, per cell: charging is additive."""
    total: dict[Cell, int] = {}
    for _, amounts in taken:
        for cell, amount in amounts:
            total[cell] = total.get(cell, 0) + amount
    return total


def _spare_quota(need: Need) -> dict[FlavorResource, int]:
    """By how much the root of the tree, and what is private on the way to it, exceeds what is
    asked: no less than what is left over at the preemptor's queue."""
    spare: dict[FlavorResource, int] = {}
    for cell, amount in need.items():
        if not amount:
            continue  # Of nothing there is always enough.
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
    """Put back, these would take more at the root than is spare there: certain where nothing on
    their way up is private. ``shared``: for which cells that is known."""
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
    """These hold at least so much of the flavor and resource together."""
    for entry in candidates:
        held = entry[4].charge
        if held is not None:
            for cell, much in held.cells:
                if cell.fr == fr:
                    amount -= much
            if amount <= 0:
                return True
    return amount <= 0
