"""Quota that two or more workloads hold and that counts once. This is the only module that corrects
such quota.

`FamilyQuota`: the variants of one family. Of each flavor and resource the largest amount counts,
since no two variants run. Every variant is charged in full, and the surplus is taken off at once.
So a variant can be taken out for a while, which frees what its end would free, and variants can be
put back in any order. All variants are in one ClusterQueue and so in the same cells. Source:
`docs/spec/lifecycle.md#4.6`.

`PlanQuota`: a reservation and the victims that it plans to preempt. At every node above both, the
larger side counts; the surplus is taken off there. Source: `docs/spec/lifecycle.md#2.7`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from admittance.events.shapes import PendingPreemption
from admittance.quota.cell import Cell, FlavorResource

Amounts = Iterable[tuple[Cell, int]]


class Charge(Protocol):
    """Quota that a workload holds."""

    @property
    def cells(self) -> list[tuple[Cell, int]]: ...


class Holder(Protocol):
    """A workload that holds quota, as far as shared quota needs to know it. ``shared_quotas``: each
    has `exclude` and `include`, as `PlanQuota` and `FamilyQuota` do."""

    @property
    def charge(self) -> Charge | None: ...
    @property
    def shared_quotas(self) -> Sequence[Any] | None: ...
    @property
    def pending_preemption(self) -> PendingPreemption | None: ...
    @property
    def loses_quota(self) -> bool: ...


Member = TypeVar("Member", bound=Holder)

_NOBODY: Final[frozenset[Any]] = frozenset()
_NOTHING: Final[dict[Cell, int]] = {}
"""Of most families, which hold one reservation for long: never written to."""


class FamilyQuota(Generic[Member]):
    """What the variants of one family hold.

    ``members``: the variants that hold quota. ``counts``: the variant whose quota counts in
    shares and in the usage of LocalQueues; None: no variant holds quota. ``shares``: fair sharing
    is on. Invariant: at every cell the variants that are not taken out count together as much as
    the largest of them.
    """

    __slots__ = (
        "_everybody",
        "_offs",
        "_out",
        "_rows",
        "_spares",
        "_supposed",
        "counts",
        "members",
        "shares",
    )

    def __init__(
        self, everybody: Mapping[tuple[str, str], Member] | None = None, *, shares: bool = False
    ) -> None:
        self.shares = shares
        self._everybody = everybody if everybody is not None else {}
        self.counts: Member | None = None
        self.members: dict[Member, None] = {}
        self._rows: dict[Cell, dict[Member, int]] = {}
        self._offs = _NOTHING
        self._spares = _NOTHING
        self._out: frozenset[Member] = _NOBODY
        self._supposed: Mapping[Cell, int] = _NOTHING

    # Who holds what. ------------------------------------------------------------------------

    def join(self, workload: Member, cells: Amounts) -> None:
        """Adds a variant that has been charged in full."""
        self.members[workload] = None
        for cell, amount in cells:
            self._rows.setdefault(cell, {})[workload] = amount
            self._renew(cell)

    def leave(self, workload: Member, cells: Amounts) -> None:
        """Removes a variant whose charge was given back in full, or counts in full from now on."""
        del self.members[workload]
        self._out -= {workload}
        for cell, _ in cells:
            row = self._rows.get(cell)
            if row is not None:
                row.pop(workload, None)
                if not row:
                    del self._rows[cell]
                self._renew(cell)

    def move(self, workload: Member, cells: Amounts, to: Amounts) -> None:
        """The cells went out of the tree, with all that was counted in them; the workload has been
        charged for these instead, in full."""
        for cell, _ in cells:
            self._rows.pop(cell, None)
            if cell in self._offs:
                del self._offs[cell]
            if cell in self._spares:
                del self._spares[cell]
        self.join(workload, to)

    # Taken out for a while. -----------------------------------------------------------------

    def exclude(self, workload: Member) -> None:
        """Takes the variant out for a while; its full charge has been taken out already."""
        self._out |= {workload}
        self._renew_all(workload)

    def include(self, workload: Member) -> None:
        """Undoes `exclude`."""
        self._out -= {workload}
        self._renew_all(workload)

    def _renew_all(self, workload: Member) -> None:
        assert workload.charge is not None
        for cell, _ in workload.charge.cells:
            self._renew(cell)

    def _renew(self, cell: Cell) -> None:
        out, total, largest = self._out, 0, 0
        for one, much in self._rows.get(cell, {}).items():
            if one not in out:
                total += much
                largest = max(largest, much)
        was, now = self._offs.get(cell, 0), total - largest
        if now != was:
            cell.charge(was - now)
            self._offs = _noted(self._offs, cell, now)
        if self.shares:
            self._weigh(cell)

    # What it comes to. ----------------------------------------------------------------------

    def largest(self, cell: Cell) -> int:
        """What counts for the family there, of those that are in the state."""
        out = self._out
        row = self._rows.get(cell)
        if row is None:
            return 0
        return max((much for one, much in row.items() if one not in out), default=0)

    def amounts(self) -> list[tuple[Cell, int]]:
        """What counts for the family, of those that are in the state."""
        return [(cell, self.largest(cell)) for cell in self._rows]

    def backed(self, cell: Cell) -> int:
        """What the family has there for another of its variants, too: what a variant is to lose is
        not, nor what it has only once others have gone for it."""
        out = self._out
        row = self._rows.get(cell)
        if row is None:
            return 0
        return max(
            (much for one, much in row.items() if one not in out and self._is_backed(one, cell)),
            default=0,
        )

    def _is_backed(self, workload: Member, cell: Cell) -> bool:
        """There is room for what the workload holds of that, whoever goes or stays, and nobody is
        about to take it, or plans to."""
        if workload.loses_quota:
            return False
        fr = cell.fr
        if any(
            isinstance(tie, PlanQuota) and tie.levels[0].cell.fr == fr
            for tie in workload.shared_quotas or ()
        ):
            return False
        # Of two siblings that plan for the same neither has a tie: each would fall back on what
        # the other one has.
        for one in (
            workload.pending_preemption.victims if workload.pending_preemption is not None else ()
        ):
            victim = self._everybody.get((one.namespace, one.name))
            if victim is None or (victim.charge is not None and _holds(victim.charge, fr)):
                return False
        return True

    def adds(self, whole: Mapping[Cell, int]) -> dict[Cell, int]:
        """What has to be free for another one of the family to hold this. What the family has
        already is left out: it is not asked for."""
        found: dict[Cell, int] = {}
        for cell, amount in whole.items():
            held = self.backed(cell)
            if amount > held or not held:
                found[cell] = amount - held
        return found

    def frees(self, workload: Member) -> list[tuple[Cell, int]]:
        """By how much less would count without the workload, which is in the state; cells where
        that is nothing are left out."""
        assert workload.charge is not None
        found = []
        for cell, amount in workload.charge.cells:
            rest = max(
                (
                    much
                    for one, much in self._rows[cell].items()
                    if one is not workload and one not in self._out
                ),
                default=0,
            )
            if amount > rest:
                found.append((cell, amount - rest))
        return found

    # Shares. --------------------------------------------------------------------------------

    def count(self, workload: Member | None) -> None:
        """This one counts in shares from now on."""
        if workload is not self.counts:
            self.counts = workload
            if self.shares:
                for cell in self._rows:
                    self._weigh(cell)

    def assume(self, more: Mapping[Cell, int]) -> None:
        """As if another one had so much more, and counted in shares instead, in all flavors of the
        same resources. To be undone by `suppose_not`."""
        self._supposed = more
        self._suppose(more, 1)

    def end_assumption(self) -> None:
        """Undoes `suppose`."""
        more, self._supposed = self._supposed, _NOTHING
        self._suppose(more, -1)

    def _suppose(self, more: Mapping[Cell, int], sign: int) -> None:
        for cell, amount in more.items():
            cell.charge(sign * amount)
        for cell in {**more, **self._rows} if self.shares else ():
            self._weigh(cell)

    def _weigh(self, cell: Cell) -> None:
        """Tells the cell how much of what the family has there does not count in shares."""
        held = self.largest(cell)
        if cell in self._supposed:
            spare = 0
        elif any(one.fr[1] == cell.fr[1] for one in self._supposed):
            spare = held
        elif self.counts is None or self.counts in self._out:
            spare = 0
        else:
            spare = held - self._rows.get(cell, {}).get(self.counts, 0)
        was = self._spares.get(cell, 0)
        if spare != was:
            cell.lighten(spare - was)
            self._spares = _noted(self._spares, cell, spare)


def _noted(notes: dict[Cell, int], cell: Cell, amount: int) -> dict[Cell, int]:
    """The notes, of which this one has changed; of nothing there is none."""
    if not amount:
        del notes[cell]
        return notes
    if notes is _NOTHING:
        notes = {}
    notes[cell] = amount
    return notes


def _holds(charge: Charge, fr: FlavorResource) -> bool:
    return any(cell.fr == fr for cell, _ in charge.cells)


class SharedLevel(NamedTuple, Generic[Member]):
    """A cell above both sides: what the planner brings to it, and what each of its victims."""

    cell: Cell
    mine: int
    loads: dict[Member, int]


class PlanQuota(Generic[Member]):
    """``levels``: from where the planner meets the first of its victims up to the root, for one
    flavor and resource.

    Taken out for a while, a victim counts no more on its side. Where victims have ties among
    themselves that is exact only for all of them, and else too little: never too much.
    """

    __slots__ = ("_offs", "_out", "levels", "planner", "victims")

    def __init__(
        self, planner: Member, victims: list[Member], levels: list[SharedLevel[Member]]
    ) -> None:
        self.planner = planner
        self.victims = victims
        self.levels = levels
        self._out: set[Member] = set()
        self._offs: list[tuple[Cell, int]] = []
        self._set()

    def exclude(self, workload: Member) -> None:
        """The workload is taken out of the state."""
        self._out.add(workload)
        self._set()

    def include(self, workload: Member) -> None:
        """Undoes `exclude`."""
        self._out.remove(workload)
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


def remove_all_usage(workloads: Iterable[Holder]) -> dict[Cell, int]:
    """As if none of them held anything, in one piece; to be undone by `restore_all_usage`."""
    gone = list(workloads)
    total = held_by(gone)
    charge(total, -1)
    for workload in gone:
        if workload.shared_quotas:
            exclude(workload)
    return total


def restore_all_usage(workloads: Iterable[Holder], total: Mapping[Cell, int]) -> None:
    """Undoes `remove_all_usage` of the same."""
    charge(total)
    for workload in workloads:
        if workload.shared_quotas:
            include(workload)


def exclude(workload: Holder) -> None:
    """What counts only once for it and another counts for the other."""
    for tie in workload.shared_quotas or ():
        tie.exclude(workload)


def include(workload: Holder) -> None:
    """Undoes `exclude`."""
    for tie in workload.shared_quotas or ():
        tie.include(workload)


def held_by(workloads: Iterable[Holder]) -> dict[Cell, int]:
    """What the members hold together. Charging is additive, so it can be taken out in one piece
    per cell, and put back by `charge`."""
    total: dict[Cell, int] = {}
    for workload in workloads:
        assert workload.charge is not None
        for cell, amount in workload.charge.cells:
            total[cell] = total.get(cell, 0) + amount
    return total


def charge(amounts: Mapping[Cell, int], sign: int = 1) -> None:
    """Charges all of it; a sign of -1 takes it away."""
    for cell, amount in amounts.items():
        cell.charge(sign * amount)


def remove_usage(workload: Holder) -> None:
    """As if the workload held nothing; to be undone by `restore_usage`."""
    assert workload.charge is not None
    for cell, amount in workload.charge.cells:
        cell.charge(-amount)
    if workload.shared_quotas:
        exclude(workload)


def restore_usage(workload: Holder) -> None:
    """Undoes `remove_usage`."""
    assert workload.charge is not None
    for cell, amount in workload.charge.cells:
        cell.charge(amount)
    if workload.shared_quotas:
        include(workload)
