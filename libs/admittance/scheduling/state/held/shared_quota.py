"""Shared quota: quota that two or more workloads hold and that must count once. Only this module
and `plan_quota` correct the usage in the cohort tree for shared quota.

`FamilyQuota`: quota that the variants of one family share. Of each flavor and resource only the
largest amount among the variants counts, because no two variants of a family run at once. Every
variant is charged in full, and the surplus over the largest amount is subtracted at once. Excluding
a variant for a while therefore frees the amount that would be free if the variant ended, and
excluded variants can be included again in any order. All variants of a family are in one
ClusterQueue and so in the same cells. Source: `docs/spec/lifecycle.md#4.6`.

`plan_quota.PlanQuota`: quota that a reservation (the planner) shares with the victims that it plans
to preempt. Source: `docs/spec/lifecycle.md#2.7`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from admittance.events.shapes import PendingPreemption
from admittance.quota.cell import Cell, FlavorResource
from admittance.scheduling.state.held.plan_quota import PlanQuota

Amounts = Iterable[tuple[Cell, int]]


class QuotaCharge(Protocol):
    """The quota with which a workload is charged."""

    @property
    def cells(self) -> list[tuple[Cell, int]]: ...


class QuotaHolder(Protocol):
    """The fields of a workload that the functions for shared quota read. ``shared_quotas``: each
    `PlanQuota` and `FamilyQuota` of the workload."""

    @property
    def charge(self) -> QuotaCharge | None: ...
    @property
    def shared_quotas(self) -> Sequence[Any] | None: ...
    @property
    def pending_preemption(self) -> PendingPreemption | None: ...
    @property
    def loses_quota(self) -> bool: ...


class Holder(NamedTuple):
    """A workload that holds quota in a cohort tree. ``ends_by``: the end of its maximum execution
    time; None: it has no limit, or its run has not begun. The variants of a family are one holder,
    with the largest amount of each cell and the last end."""

    key: tuple[str, str]
    cells: Sequence[tuple[Cell, int]]
    ends_by: datetime | None


Member = TypeVar("Member", bound=QuotaHolder)

_EMPTY: Final[frozenset[Any]] = frozenset()
_NOTHING: Final[dict[Cell, int]] = {}
"""An empty dict that most family quotas share, to save memory, because most families hold one
reservation. The shared dict must never be changed."""


class FamilyQuota(Generic[Member]):
    """The quota that the variants of one family hold together.

    ``members``: the variants of the family that hold quota. ``counts``: the one variant with quota
    that counts in shares of fair sharing and in the usage of LocalQueues. ``shares``: whether the
    deployment uses fair sharing.

    Invariant: at every cell the variants that are not excluded together count as much as the one
    with the largest amount."""

    __slots__ = (
        "_assumed",
        "_offs",
        "_out",
        "_rows",
        "_spares",
        "_workloads",
        "counts",
        "members",
        "shares",
    )

    def __init__(
        self, workloads: Mapping[tuple[str, str], Member] | None = None, *, shares: bool = False
    ) -> None:
        self.shares = shares
        self._workloads = workloads if workloads is not None else {}
        self.counts: Member | None = None
        self.members: dict[Member, None] = {}
        self._rows: dict[Cell, dict[Member, int]] = {}
        self._offs = _NOTHING
        self._spares = _NOTHING
        self._out: frozenset[Member] = _EMPTY
        self._assumed: Mapping[Cell, int] = _NOTHING

    # Variants. ------------------------------------------------------------------------------

    def join(self, workload: Member, cells: Amounts) -> None:
        """Adds a variant to the family's shared quota. The caller must have charged the variant in
        full before."""
        self.members[workload] = None
        for cell, amount in cells:
            self._rows.setdefault(cell, {})[workload] = amount
            self._renew(cell)

    def leave(self, workload: Member, cells: Amounts) -> None:
        """Removes a variant from the family's shared quota. The caller must have given the
        variant's charge back in full before, or the charge counts in full from now on."""
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
        """Moves a variant to the cells ``to``, where the caller has charged it in full. The
        variant's former ``cells`` have left the cohort tree, together with their usage."""
        for cell, _ in cells:
            self._rows.pop(cell, None)
            if cell in self._offs:
                del self._offs[cell]
            if cell in self._spares:
                del self._spares[cell]
        self.join(workload, to)

    # Left out for a while. ------------------------------------------------------------------

    def exclude(self, workload: Member) -> None:
        """Excludes the variant from the family's shared quota for a while. The caller must have
        subtracted the full charge of the variant."""
        self._out |= {workload}
        self._renew_all(workload)

    def include(self, workload: Member) -> None:
        """Undoes `exclude`: the variant counts in the family's shared quota again."""
        self._out -= {workload}
        self._renew_all(workload)

    def _renew_all(self, workload: Member) -> None:
        assert workload.charge is not None
        for cell, _ in workload.charge.cells:
            self._renew(cell)

    def _renew(self, cell: Cell) -> None:
        out, total, largest = self._out, 0, 0
        for variant, much in self._rows.get(cell, {}).items():
            if variant not in out:
                total += much
                largest = max(largest, much)
        was, now = self._offs.get(cell, 0), total - largest
        if now != was:
            cell.charge(was - now)
            self._offs = _noted(self._offs, cell, now)
        if self.shares:
            self._weigh(cell)

    # What counts. ---------------------------------------------------------------------------

    def largest(self, cell: Cell) -> int:
        """Returns the amount that counts for the family at the cell: the largest amount of a
        variant that is not excluded."""
        out = self._out
        row = self._rows.get(cell)
        if row is None:
            return 0
        return max((much for variant, much in row.items() if variant not in out), default=0)

    def amounts(self) -> list[tuple[Cell, int]]:
        """Returns the amount that counts for the family at each of its cells, as `largest` does for
        one cell."""
        return [(cell, self.largest(cell)) for cell in self._rows]

    def reliable(self, cell: Cell) -> int:
        """Returns how much of the family's quota at the cell will certainly stay, so that a further
        variant of the family needs only what exceeds it.

        Quota that a variant is about to lose, or gets only after a preemption, does not count."""
        out = self._out
        row = self._rows.get(cell)
        if row is None:
            return 0
        return max(
            (
                much
                for variant, much in row.items()
                if variant not in out and self._is_reliable(variant, cell)
            ),
            default=0,
        )

    def _is_reliable(self, workload: Member, cell: Cell) -> bool:
        """Returns whether the variant keeps its quota at the cell whatever happens to its plans and
        victims."""
        if workload.loses_quota:
            return False
        fr = cell.fr
        if any(
            isinstance(shared_quota, PlanQuota) and shared_quota.fr == fr
            for shared_quota in workload.shared_quotas or ()
        ):
            return False
        # Two siblings that plan to preempt the same victim have no `PlanQuota` with each other.
        # Therefore a sibling's quota of a flavor and resource is not reliable while one of the
        # sibling's planned victims still holds the same flavor and resource.
        for one in (
            workload.pending_preemption.victims if workload.pending_preemption is not None else ()
        ):
            victim = self._workloads.get((one.namespace, one.name))
            if victim is None or (victim.charge is not None and _holds(victim.charge, fr)):
                return False
        return True

    def missing_for(self, whole: Mapping[Cell, int]) -> dict[Cell, int]:
        """Returns the quota that must be free, in addition to what the family holds, so that a
        further variant can hold the amounts in ``whole``."""
        missing: dict[Cell, int] = {}
        for cell, amount in whole.items():
            held = self.reliable(cell)
            if amount > held or not held:
                missing[cell] = amount - held
        return missing

    def freed_without(self, workload: Member) -> list[tuple[Cell, int]]:
        """Returns, per cell, by how much the amount that counts for the family would fall without
        the variant. Cells where the amount would not change are left out."""
        assert workload.charge is not None
        freed = []
        for cell, amount in workload.charge.cells:
            rest = max(
                (
                    much
                    for variant, much in self._rows[cell].items()
                    if variant is not workload and variant not in self._out
                ),
                default=0,
            )
            if amount > rest:
                freed.append((cell, amount - rest))
        return freed

    # Shares. --------------------------------------------------------------------------------

    def count(self, workload: Member | None) -> None:
        """Makes ``workload`` the only variant of its family that counts in shares."""
        if workload is not self.counts:
            self.counts = workload
            if self.shares:
                for cell in self._rows:
                    self._weigh(cell)

    def assume(self, more: Mapping[Cell, int]) -> None:
        """Charges the amounts in ``more`` as if a further variant held them and were the one that
        counts in shares, in all flavors of these resources. `end_assumption` undoes this."""
        self._assumed = more
        self._apply_assumption(more, 1)

    def end_assumption(self) -> None:
        """Undoes `assume`: removes the assumed charge."""
        more, self._assumed = self._assumed, _NOTHING
        self._apply_assumption(more, -1)

    def _apply_assumption(self, more: Mapping[Cell, int], sign: int) -> None:
        for cell, amount in more.items():
            cell.charge(sign * amount)
        for cell in {**more, **self._rows} if self.shares else ():
            self._weigh(cell)

    def _weigh(self, cell: Cell) -> None:
        """Updates in the cell how much of the family's usage does not count in shares of fair
        sharing."""
        held = self.largest(cell)
        if cell in self._assumed:
            spare = 0
        elif any(assumed.fr[1] == cell.fr[1] for assumed in self._assumed):
            spare = held
        elif self.counts is None or self.counts in self._out:
            spare = 0
        else:
            spare = held - self._rows.get(cell, {}).get(self.counts, 0)
        was = self._spares.get(cell, 0)
        if spare != was:
            cell.add_discount(spare - was)
            self._spares = _noted(self._spares, cell, spare)


def _noted(notes: dict[Cell, int], cell: Cell, amount: int) -> dict[Cell, int]:
    """Returns ``notes`` with the amount for the cell; an amount of 0 removes the entry of the
    cell."""
    if not amount:
        del notes[cell]
        return notes
    if notes is _NOTHING:
        notes = {}
    notes[cell] = amount
    return notes


def _holds(charge: QuotaCharge, fr: FlavorResource) -> bool:
    return any(cell.fr == fr for cell, _ in charge.cells)


class WithoutUsage:
    """Subtracts the usage of all given workloads from the cohort tree, as if they held nothing,
    while the context is open. Charging is additive, so the sum of what they hold is subtracted in
    one step."""

    __slots__ = ("_sharing", "_total")

    def __init__(self, workloads: Iterable[QuotaHolder]) -> None:
        total: dict[Cell, int] = {}
        self._total = total
        self._sharing: list[QuotaHolder] = []
        for workload in workloads:
            assert workload.charge is not None
            for cell, amount in workload.charge.cells:
                total[cell] = total.get(cell, 0) + amount
            if workload.shared_quotas:
                self._sharing.append(workload)

    def __enter__(self) -> None:
        for cell, amount in self._total.items():
            cell.charge(-amount)
        for workload in self._sharing:
            exclude(workload)

    def __exit__(self, *_: object) -> None:
        for cell, amount in self._total.items():
            cell.charge(amount)
        for workload in self._sharing:
            include(workload)


def exclude(workload: QuotaHolder) -> None:
    """Excludes the workload from all quota that it shares with other workloads."""
    for shared_quota in workload.shared_quotas or ():
        shared_quota.exclude(workload)


def include(workload: QuotaHolder) -> None:
    """Undoes `exclude`: the workload counts again in all quota that it shares with other
    workloads."""
    for shared_quota in workload.shared_quotas or ():
        shared_quota.include(workload)


def remove_usage(workload: QuotaHolder) -> None:
    """Subtracts the workload's usage from the cohort tree, as if the workload held nothing.
    `restore_usage` undoes this."""
    assert workload.charge is not None
    for cell, amount in workload.charge.cells:
        cell.charge(-amount)
    if workload.shared_quotas:
        exclude(workload)


def restore_usage(workload: QuotaHolder) -> None:
    """Undoes `remove_usage`: charges the workload's usage again."""
    assert workload.charge is not None
    for cell, amount in workload.charge.cells:
        cell.charge(amount)
    if workload.shared_quotas:
        include(workload)
