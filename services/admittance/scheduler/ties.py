"""Quota that is held twice and counts once: one workload has reserved what others are to give up.

As long as all of them are there the tree counts the larger of both sides at every node that is
above both, and each side at those that are above it alone: nobody else may take more than there
would be either way. What is counted too much is taken off where their ways meet. LIFECYCLE 2.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admittance.quota.cell import Cell

if TYPE_CHECKING:
    from admittance.scheduler.picture import Member


class Tie:
    """The ``planner`` brings ``mine`` to the ``cell``, and each of its victims what ``loads`` says:
    found out by taking them out one after the other. ``off``: what is taken off at the moment.

    Taken out for a while, a victim counts no more on its side. Where victims have ties among
    themselves that is exact only for all of them, and else too little: never too much.
    """

    __slots__ = ("_load", "_there", "cell", "loads", "mine", "off", "planner")

    def __init__(self, cell: Cell, planner: Member, mine: int, loads: dict[Member, int]) -> None:
        self.cell = cell
        self.planner = planner
        self.mine = mine
        self.loads = loads
        self.off = 0
        self._load = sum(loads.values())
        self._there = True
        self._set()

    def loosen(self, member: Member) -> None:
        """The member is taken out of the picture."""
        if member is self.planner:
            self._there = False
        else:
            self._load -= self.loads[member]
        self._set()

    def fasten(self, member: Member) -> None:
        """Undoes `loosen`."""
        if member is self.planner:
            self._there = True
        else:
            self._load += self.loads[member]
        self._set()

    def _set(self) -> None:
        off = min(self.mine, self._load) if self._there else 0
        if off != self.off:
            self.cell.charge(self.off - off)
            self.off = off


def meeting(one: Cell, other: Cell) -> tuple[Cell | None, bool]:
    """The lowest cell above both, which may be one of them; None: they are of different trees. And
    whether something private lies on the way there, so that what arrives depends on what else is
    used."""
    above: list[Cell] = []
    here: Cell | None = one
    while here is not None:
        above.append(here)
        here = here.parent
    bent = False
    there: Cell | None = other
    while there is not None and there not in above:
        bent = bent or bool(there.guaranteed)
        there = there.parent
    if there is None:
        return None, bent
    return there, bent or any(cell.guaranteed for cell in above[: above.index(there)])
