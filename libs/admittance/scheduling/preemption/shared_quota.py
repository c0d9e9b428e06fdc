"""Quota that is held twice and counts once: one workload has reserved what others are to give up.

As long as all of them are there the tree counts the larger of both sides at every node that is
above both, and each side at those that are above it alone: nobody else may take more than there
would be either way. What is counted too much is taken off there. Source: LIFECYCLE 2.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from admittance.quota.cell import Cell

if TYPE_CHECKING:
    from admittance.scheduling.state.workload_info import Member


class Level(NamedTuple):
    """A cell above both sides: what the planner brings to it, and what each of its victims."""

    cell: Cell
    mine: int
    loads: dict[Member, int]


class Tie:
    """``levels``: from where the planner meets the first of its victims up to the root, for one
    flavor and resource.

    Taken out for a while, a victim counts no more on its side. Where victims have ties among
    themselves that is exact only for all of them, and else too little: never too much.
    """

    __slots__ = ("_offs", "_out", "levels", "planner", "victims")

    def __init__(self, planner: Member, victims: list[Member], levels: list[Level]) -> None:
        self.planner = planner
        self.victims = victims
        self.levels = levels
        self._out: set[Member] = set()
        self._offs: list[tuple[Cell, int]] = []
        self._set()

    def loosen(self, member: Member) -> None:
        """The member is taken out of the picture."""
        self._out.add(member)
        self._set()

    def fasten(self, member: Member) -> None:
        """Undoes `loosen`."""
        self._out.remove(member)
        self._set()

    def taken_off(self) -> tuple[tuple[Cell, int], ...]:
        """Where how much is not counted at the moment, since both sides hold it."""
        return tuple(self._offs)

    def _set(self) -> None:
        for cell, amount in self._offs:
            cell.charge(amount)
        self._offs.clear()
        if self.planner in self._out:
            return
        without = [level.cell.usage for level in self.levels]
        for (cell, mine, loads), used in zip(self.levels, without, strict=True):
            load = sum(much for one, much in loads.items() if one not in self._out)
            # What is taken off below arrives here, wholly or in part.
            off = min(mine, load) - (used - cell.usage)
            if off:
                cell.charge(-off)
                self._offs.append((cell, off))
