"""EASY backfill: one promise of a start per cohort tree, and which workloads may start beside it.

The promise belongs to the oldest head that fits into no flavor. Only declared bounds of run times
(maximumExecutionTimeSeconds) count, never estimates. A decision that `may_start` allows never makes
the expected start of the head later. In a queue that shares no quota with others, the first promise
of a head never moves back if each bound is true. The module `promises` reads the state.

The functions change the usage of cells for a moment and restore it before they return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple

from admittance.quota.cell import Cell, FlavorResource
from admittance.scheduling.preemption.room import Need, fits
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.held.shared_quota import Holder
from admittance.scheduling.state.promise import NoPromise, Promise


class Head(NamedTuple):
    """The head of a queue with backfill that fits into no flavor and has no victims. ``needs``: the
    amounts that it needs, for each choice of flavors, the preferred one first."""

    key: Key
    queued_at: datetime
    needs: Sequence[Need]


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
    heads: Iterable[Head], holders: Sequence[Holder], now: datetime, *, names: bool = True
) -> Promise | NoPromise | None:
    """Returns the promise of the tree, for the flavors with the earliest start of its oldest head.
    A head that would not fit even if all holders ended is passed over, so that it does not hold up
    the tree for ever. None: there is no other head. ``names``: False: a `NoPromise` does not name
    the holders in the way, which takes a step for each of them."""
    ends = _ends(holders)
    everything: dict[Cell, int] | None = None
    for head in sorted(heads, key=attrgetter("queued_at", "key")):
        promise: Promise | None = None
        in_the_way: tuple[Key, ...] | None = None
        for need in head.needs:
            at = _expected_start(need, ends, now)
            if at is not None:
                if promise is None or at < promise.at:
                    certain = all(_is_alone(cell) for cell, amount in need.items() if amount)
                    promise = Promise(head.key, need, at, certain)
            elif names:
                unbounded = blockers(need, holders)
                if unbounded and (in_the_way is None or len(unbounded) < len(in_the_way)):
                    in_the_way = unbounded
            elif in_the_way is None:
                if everything is None:
                    everything = _total(holders)
                with _usage() as gone:
                    gone.remove(everything.items())
                    in_the_way = () if fits(need, borrowing=True) else None
        if promise is not None:
            return promise
        if in_the_way is not None:
            return NoPromise(head.key, in_the_way)
    return None


def expected_start(need: Need, holders: Iterable[Holder], now: datetime) -> datetime | None:
    """Returns the first time at which the amounts fit if each holder with a limit runs to its end
    and nothing else starts; None: they do not fit before a holder without a limit ends. A holder
    whose limit is over, but which still holds its quota, counts as ending now."""
    return _expected_start(need, _ends(holders), now)


def _expected_start(need: Need, ends: Sequence[Holder], now: datetime) -> datetime | None:
    """Returns the same as `expected_start`. ``ends``: the holders with a limit, the earliest end
    first. The number of ends after which the amounts fit is found by bisection."""
    if fits(need, borrowing=True):
        return now
    with _usage() as gone:
        most = _total(ends)
        gone.remove(most.items())
        if not fits(need, borrowing=True):
            return None
        gone.add(most.items())
        low, high = 0, len(ends)
        while high - low > 1:
            middle = (low + high) // 2
            some = _total(ends[low:middle])
            gone.remove(some.items())
            if fits(need, borrowing=True):
                gone.add(some.items())
                high = middle
            else:
                low = middle
    last = ends[high - 1].ends_by
    assert last is not None
    return max(last, now)


def blockers(need: Need, holders: Iterable[Holder]) -> tuple[Key, ...]:
    """Returns the holders without a limit that must end before the amounts fit, in the given order;
    none of them can be left out. Empty: the amounts fit without their end, or not at all."""
    unbounded: list[Holder] = []
    with _usage() as gone:
        everyone = list(holders)
        gone.remove(_total(everyone).items())
        unbounded += [holder for holder in everyone if holder.ends_by is None]
        if not fits(need, borrowing=True):
            return ()
        needed: list[Key] = []
        for holder in unbounded:
            gone.add(holder.cells)
            if not fits(need, borrowing=True):
                gone.remove(holder.cells)
                needed.append(holder.key)
        return tuple(needed)


def ended_by(promise: Promise, holders: Iterable[Holder]) -> dict[Cell, int]:
    """Returns the amounts that are free again at the promised time: those of the holders that end
    until then."""
    until = promise.at
    return _total([one for one in holders if one.ends_by is not None and one.ends_by <= until])


def may_start(promise: Promise, candidate: Candidate, ended: Mapping[Cell, int]) -> bool:
    """Returns whether a workload that fits now may start beside the promise. ``ended``: the result
    of `ended_by` for all workloads that hold quota now.

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
        gone.remove(ended.items())
        gone.add(candidate.need.items())
        return fits(promise.need, borrowing=True)


def needed_ends(promise: Promise, holders: Iterable[Holder]) -> tuple[Key, ...]:
    """Returns the holders that must end before the head starts, the earliest end first; none of
    them can be left out."""
    flavors = _flavors(promise.need)
    until = promise.at
    ends = [one for one in _ends(holders) if one.ends_by is not None and one.ends_by <= until]
    with _usage() as gone:
        gone.remove(_total(ends).items())
        needed: list[Key] = []
        for holder in reversed(ends):
            if flavors.isdisjoint(cell.fr for cell, _ in holder.cells):
                continue
            gone.add(holder.cells)
            if not fits(promise.need, borrowing=True):
                gone.remove(holder.cells)
                needed.append(holder.key)
        return tuple(reversed(needed))


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


def _ends(holders: Iterable[Holder]) -> list[Holder]:
    """Returns the holders with a limit, the earliest end first."""
    return sorted(
        [holder for holder in holders if holder.ends_by is not None], key=attrgetter("ends_by")
    )


def _total(holders: Iterable[Holder]) -> dict[Cell, int]:
    """Returns the sum of what the holders hold, per cell."""
    total: dict[Cell, int] = {}
    for holder in holders:
        for cell, amount in holder.cells:
            if cell in total:
                total[cell] += amount
            else:
                total[cell] = amount
    return total


def _flavors(need: Need) -> set[FlavorResource]:
    return {cell.fr for cell, amount in need.items() if amount}


def _is_alone(cell: Cell) -> bool:
    """Whether other queues can neither take the quota of the cell's node nor lend it theirs."""
    return cell.parent is None or (cell.borrow == 0 and cell.lent() == 0)
