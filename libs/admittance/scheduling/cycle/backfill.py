"""EASY backfill: one promise of a start per cohort tree, and which workloads may start beside it.

The promise belongs to the oldest head that fits into no flavor. Only declared bounds of run times
(maximumExecutionTimeSeconds) count, never estimates. A decision that `may_start` allows never makes
the expected start of the head later. In a queue that shares no quota with others, the first promise
of a head never moves back if each bound is true. The scheduler's cycle does not use this module
yet.

The functions change the usage of cells for a moment and restore it before they return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple

from admittance.quota.cell import Cell, FlavorResource
from admittance.scheduling.preemption.room import Need, fits
from admittance.scheduling.state.equivalence import Key


class Holder(NamedTuple):
    """A workload that holds quota in the tree. ``ends_by``: the end of its maximum execution time;
    None: it has no limit, or its run has not begun. The variants of a family are one holder, with
    the largest amount of each cell and the last end."""

    key: Key
    cells: Sequence[tuple[Cell, int]]
    ends_by: datetime | None


class Head(NamedTuple):
    """The head of a queue with backfill that fits into no flavor and has no victims. ``needs``: the
    amounts that it needs, for each choice of flavors, the preferred one first."""

    key: Key
    queued_at: datetime
    needs: Sequence[Need]


class Promise(NamedTuple):
    """When the head is expected to start, and with which amounts. ``is_certain``: no workload of
    another queue can delay the start; otherwise the start is expected, not promised."""

    head: Key
    need: Need
    at: datetime
    is_certain: bool


class NoPromise(NamedTuple):
    """The head has no expected start, because the workloads in ``unbounded`` hold quota in its way
    and have no known end."""

    head: Key
    unbounded: tuple[Key, ...]


class Candidate(NamedTuple):
    """A workload that fits now. ``ends_by``: the end of its run if it starts now; None: it has no
    limit, or it must pass checks first. ``is_later``: it stands in the queue of the promised head,
    behind that head. ``borrows``: it stands in another queue, and would use more than the nominal
    quota of that queue."""

    need: Need
    ends_by: datetime | None
    is_later: bool
    borrows: bool


def promise_of(
    heads: Iterable[Head], holders: Sequence[Holder], now: datetime
) -> Promise | NoPromise | None:
    """Returns the promise of the tree, for the flavors with the earliest start of its oldest head.
    A head that would not fit even if all holders ended is passed over, so that it does not hold up
    the tree for ever. None: there is no other head."""
    for head in sorted(heads, key=attrgetter("queued_at", "key")):
        promise: Promise | None = None
        in_the_way: tuple[Key, ...] = ()
        for need in head.needs:
            at = expected_start(need, holders, now)
            if at is None:
                unbounded = blockers(need, holders)
                if unbounded and (not in_the_way or len(unbounded) < len(in_the_way)):
                    in_the_way = unbounded
            elif promise is None or at < promise.at:
                certain = all(_is_alone(cell) for cell, amount in need.items() if amount)
                promise = Promise(head.key, need, at, certain)
        if promise is not None:
            return promise
        if in_the_way:
            return NoPromise(head.key, in_the_way)
    return None


def expected_start(need: Need, holders: Iterable[Holder], now: datetime) -> datetime | None:
    """Returns the first time at which the amounts fit if each holder with a limit runs to its end
    and nothing else starts; None: they do not fit before a holder without a limit ends. A holder
    whose limit is over, but which still holds its quota, counts as ending now."""
    if fits(need, borrowing=True):
        return now
    with _usage() as gone:
        for at, holder in _ends(holders):
            gone.remove(holder.cells)
            if fits(need, borrowing=True):
                return max(at, now)
    return None


def blockers(need: Need, holders: Iterable[Holder]) -> tuple[Key, ...]:
    """Returns the holders without a limit that must end before the amounts fit, in the given order;
    none of them can be left out. Empty: the amounts fit without their end, or not at all."""
    unbounded: list[Holder] = []
    with _usage() as gone:
        for holder in holders:
            gone.remove(holder.cells)
            if holder.ends_by is None:
                unbounded.append(holder)
        if not fits(need, borrowing=True):
            return ()
        needed: list[Key] = []
        for holder in unbounded:
            gone.add(holder.cells)
            if not fits(need, borrowing=True):
                gone.remove(holder.cells)
                needed.append(holder.key)
        return tuple(needed)


def may_start(promise: Promise, candidate: Candidate, holders: Iterable[Holder]) -> bool:
    """Returns whether a workload that fits now may start beside the promise.

    The promise binds workloads behind the head in its queue, and those of other queues that would
    borrow. They may start if they end before the promised time, if they take nothing that the head
    needs, or if they leave room for the head at the promised time."""
    if not (candidate.is_later or candidate.borrows):
        return True
    if candidate.ends_by is not None and candidate.ends_by <= promise.at:
        return True
    if _flavors(promise.need).isdisjoint(_flavors(candidate.need)):
        return True
    with _usage() as gone:
        for at, holder in _ends(holders):
            if at > promise.at:
                break
            gone.remove(holder.cells)
        gone.add(candidate.need.items())
        return fits(promise.need, borrowing=True)


class _Usage:
    """Changes of usage that are undone together."""

    def __init__(self) -> None:
        self._charged: list[tuple[Cell, int]] = []

    def add(self, cells: Iterable[tuple[Cell, int]]) -> None:
        for cell, amount in cells:
            cell.charge(amount)
            self._charged.append((cell, amount))

    def remove(self, cells: Iterable[tuple[Cell, int]]) -> None:
        self.add((cell, -amount) for cell, amount in cells)

    def undo(self) -> None:
        self.remove(list(self._charged))


@contextmanager
def _usage() -> Iterator[_Usage]:
    changes = _Usage()
    try:
        yield changes
    finally:
        changes.undo()


def _ends(holders: Iterable[Holder]) -> list[tuple[datetime, Holder]]:
    """Returns the holders with a limit and their ends, the earliest first."""
    ends = [(holder.ends_by, holder) for holder in holders if holder.ends_by is not None]
    ends.sort(key=lambda end: end[0])
    return ends


def _flavors(need: Need) -> set[FlavorResource]:
    return {cell.fr for cell, amount in need.items() if amount}


def _is_alone(cell: Cell) -> bool:
    """Whether other queues can neither take the quota of the cell's node nor lend it theirs."""
    return cell.parent is None or (cell.borrow == 0 and cell.lent() == 0)
