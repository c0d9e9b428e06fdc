"""The promise of a start (`backfill: Easy`) in a play, by the scheduler's own rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from admittance.forecast.played import (
    Charges,
    Run,
    Start,
    WaitingClass,
    WaitingQueue,
    moment,
    rank_of,
    total_of,
)
from admittance.quota.cell import Cell, potential
from admittance.scheduling.cycle.backfill import Candidate, Head, ended_by, may_start, promise_of
from admittance.scheduling.state.held.shared_quota import Holder
from admittance.scheduling.state.promise import Promise


class KeptPromise:
    """The promise that one cycle of a play keeps."""

    def __init__(
        self, promise: Promise, queue: WaitingQueue, head: WaitingClass, holders: Sequence[Holder]
    ) -> None:
        self._promise = promise
        self._queue = queue
        self._rank = rank_of(head)
        self._ended = dict(ended_by(promise, holders))

    def allows(
        self, queue: WaitingQueue, head: WaitingClass, start: Start, ends_by: float | None
    ) -> bool:
        """Whether the workload may start beside the promise. ``ends_by``: when its run ends at the
        latest; None: at no known time."""
        need = total_of(start.charges)
        is_later = queue is self._queue and rank_of(head) > self._rank
        borrows = queue is not self._queue and any(
            cell.usage + amount > cell.nominal for cell, amount in need.items()
        )
        end = None if ends_by is None else moment(ends_by)
        return may_start(self._promise, Candidate(need, end, is_later, borrows), self._ended)

    def note_start(self, charges: Charges, ends_by: float | None) -> None:
        """A workload started beside the promise."""
        if ends_by is not None and moment(ends_by) <= self._promise.at:
            for cell, amount in charges:
                self._ended[cell] = self._ended.get(cell, 0) + amount


def promise_now(
    blocked: Sequence[tuple[WaitingQueue, WaitingClass]], running: Iterable[Run], now: float
) -> KeptPromise | None:
    """The promise of the tree. ``blocked``: the heads of queues with backfill that fit into no
    flavor and have no victims. ``running``: what holds quota."""
    at = moment(now)
    heads = [
        Head(head.first.key, moment(head.first.queued_at), needs)
        for _, head in blocked
        if (needs := list(_needs(head)))
    ]
    if not heads:
        return None
    holders = [
        Holder(run.key, run.charges, None if run.ends_by is None else moment(run.ends_by))
        for run in running
    ]
    promise = promise_of(heads, holders, at, names=False)
    if not isinstance(promise, Promise):
        return None
    queue, head = next(pair for pair in blocked if pair[1].first.key == promise.head)
    return KeptPromise(promise, queue, head, holders)


def _needs(head: WaitingClass) -> Iterable[dict[Cell, int]]:
    for charges in head.choices():
        need = total_of(charges)
        if all(amount <= potential(cell) for cell, amount in need.items()):
            yield need
