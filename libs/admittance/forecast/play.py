"""Plays a cohort tree forward: which waiting workload starts when, if run times are given.

The model has queues of both strategies, priorities, several flavors, borrowing and the order of a
cycle. It has no preemption, fair sharing, families and checks. Times are seconds."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, nsmallest
from math import inf
from typing import NamedTuple, TypeAlias

from admittance.forecast.rows import Holding, Key, Need, Waiting
from admittance.quota.cell import Cell, FlavorResource, available, is_over
from admittance.quota.tree import Node

RunTime: TypeAlias = Callable[[Waiting], float]
"""Draws the run time of a workload that starts."""
Charges: TypeAlias = tuple[tuple[Cell, int], ...]
Rank: TypeAlias = tuple[int, float, Key]


class QueueRules(NamedTuple):
    """A ClusterQueue. ``strict``: StrictFIFO. ``tries_next``: the next flavor is tried before one
    is borrowed (whenCanBorrow: TryNextFlavor)."""

    node: Node
    strict: bool = False
    tries_next: bool = False


class _Class:
    """Waiting workloads of one queue that ask for the same amounts with the same priority, the
    oldest first. ``at``: the place of the first that waits. ``rank``: that workload's place among
    those of other classes: the priority, negative, its time and its key; None: none waits."""

    __slots__ = ("at", "cells", "is_parked", "jobs", "order", "rank")

    def __init__(self, order: int, cells: tuple[tuple[Charges, ...], ...]) -> None:
        self.order = order
        self.cells = cells
        self.jobs: list[tuple[float, Key, Waiting]] = []
        self.at = 0
        self.is_parked = False
        self.rank: Rank | None = None

    def add(self, job: Waiting) -> None:
        insort(self.jobs, (job.queued_at, job.key, job), lo=self.at)
        self._rank()

    def take(self) -> Waiting:
        """Removes the first and returns it."""
        job = self.jobs[self.at][2]
        self.at += 1
        self._rank()
        return job

    def _rank(self) -> None:
        if self.at == len(self.jobs):
            self.rank = None
        else:
            queued_at, key, _ = self.jobs[self.at]
            self.rank = (self.order, queued_at, key)


class _Queue:
    __slots__ = ("classes", "rules")

    def __init__(self, rules: QueueRules) -> None:
        self.rules = rules
        self.classes: dict[tuple[int, tuple[tuple[Need, ...], ...]], _Class] = {}

    def add(self, job: Waiting) -> None:
        known = self.classes.get((job.priority, job.choices))
        if known is None:
            known = _Class(-job.priority, _cells(self.rules.node, job.choices))
            self.classes[job.priority, job.choices] = known
        known.add(job)

    def entry(self) -> _Entry | None:
        """The workload that a cycle nominates; None: nothing that waits fits. Classes before it
        that do not fit are parked."""
        waiting = [each for each in self.classes.values() if each.rank]
        if self.rules.strict:
            waiting = nsmallest(1, waiting, key=_rank_of)
        for each in sorted((each for each in waiting if not each.is_parked), key=_rank_of):
            fit = _fit(each, self.rules)
            if fit is not None:
                return _Entry((fit[1], _rank_of(each)), self.rules, each)
            each.is_parked = True
        return None


class _Entry(NamedTuple):
    """A nominated workload. ``order``: whether it borrows, and its rank."""

    order: tuple[bool, Rank]
    rules: QueueRules
    head: _Class


def _rank_of(each: _Class) -> Rank:
    assert each.rank is not None
    return each.rank


def play(
    queues: Mapping[str, QueueRules],
    waiting: Iterable[Waiting],
    ends: Sequence[tuple[float, Holding]],
    run_time: RunTime,
    now: float,
    *,
    arrivals: Iterable[Waiting] = (),
    until: float = inf,
    causes: dict[Key, Key] | None = None,
) -> dict[Key, float]:
    """Returns the starts of the workloads in ``waiting``; those without a start by ``until`` are
    left out.

    ``queues``: those of one tree, by name. Their cells have the usage of what holds quota now, also
    after the call. ``ends``: when what holds quota now ends. ``arrivals``: the
    workloads that arrive later, the earliest ``queued_at`` first; no more are read than arrive.
    ``causes``: gets for each workload that starts after an end the workload that ended last before
    the start.
    """
    return _Play(queues, waiting, ends, run_time, causes).run(now, arrivals, until)


class _Play:
    def __init__(
        self,
        queues: Mapping[str, QueueRules],
        waiting: Iterable[Waiting],
        ends: Sequence[tuple[float, Holding]],
        run_time: RunTime,
        causes: dict[Key, Key] | None,
    ) -> None:
        self._causes = causes
        self._ended: Key | None = None
        self._queues = {name: _Queue(rules) for name, rules in queues.items()}
        self._run_time = run_time
        self._charged: list[tuple[Cell, int]] = []
        self._asked: set[Key] = set()
        for job in waiting:
            self._asked.add(job.key)
            self._queues[job.queue].add(job)
        self._ends: list[tuple[float, int, Charges, Key]] = [
            (at, place, tuple(_charges(queues[held.queue].node, held.need)), held.key)
            for place, (at, held) in enumerate(ends)
        ]
        heapify(self._ends)
        self._started = len(self._ends)
        self.starts: dict[Key, float] = {}

    def run(self, now: float, arrivals: Iterable[Waiting], until: float) -> dict[Key, float]:
        later = iter(arrivals)
        arrival = next(later, None)
        try:
            self._cycles(now)
            while len(self.starts) < len(self._asked):
                next_end = self._ends[0][0] if self._ends else inf
                next_arrival = inf if arrival is None else arrival.queued_at
                at = min(next_end, next_arrival)
                if at > until or at == inf:
                    break
                while self._ends and self._ends[0][0] <= at:
                    _, _, charges, self._ended = heappop(self._ends)
                    self._charge(charges, -1)
                if next_end <= at:
                    self._unpark()
                while arrival is not None and arrival.queued_at <= at:
                    self._queues[arrival.queue].add(arrival)
                    arrival = next(later, None)
                self._cycles(max(at, now))
        finally:
            for cell, amount in self._charged:
                cell.charge(-amount)
        return self.starts

    def _charge(self, charges: Charges, sign: int) -> None:
        for cell, amount in charges:
            cell.charge(sign * amount)
            self._charged.append((cell, sign * amount))

    def _unpark(self) -> None:
        for queue in self._queues.values():
            for each in queue.classes.values():
                each.is_parked = False

    def _cycles(self, now: float) -> None:
        """Starts all that fits: in each cycle one workload of each queue, without borrowing
        first."""
        while True:
            entries = [entry for each in self._queues.values() if (entry := each.entry())]
            if not entries:
                return
            entries.sort(key=_order_of)
            for _, rules, head in entries:
                fit = _fit(head, rules)
                if fit is None:
                    head.is_parked = True
                else:
                    self._start(head.take(), fit[0], now)

    def _start(self, job: Waiting, charges: Charges, now: float) -> None:
        self._charge(charges, 1)
        if job.key in self._asked:
            self.starts[job.key] = now
            if self._causes is not None and self._ended is not None:
                self._causes[job.key] = self._ended
        self._started += 1
        heappush(self._ends, (now + self._run_time(job), self._started, charges, job.key))


def _order_of(entry: _Entry) -> tuple[bool, Rank]:
    return entry.order


def _fit(head: _Class, rules: QueueRules) -> tuple[Charges, bool] | None:
    """The flavors in which a workload of the class fits now, and whether it borrows; None: it does
    not fit."""
    charges: list[tuple[Cell, int]] = []
    borrows = False
    for choices in head.cells:
        chosen: Charges | None = None
        over = False
        for cells in choices:
            over_here = _borrows(cells)
            if over_here is None:
                continue
            if chosen is None or (over and not over_here):
                chosen, over = cells, over_here
            if not over or not rules.tries_next:
                break
        if chosen is None:
            return None
        charges += chosen
        borrows = borrows or over
    return tuple(charges), borrows


def _borrows(charges: Charges) -> bool | None:
    """Whether the amounts exceed the nominal quota; None: they do not fit."""
    over = False
    for cell, amount in charges:
        if available(cell) < amount:
            return None
        over = over or is_over(cell, amount)
    return over


def _cells(node: Node, choices: tuple[tuple[Need, ...], ...]) -> tuple[tuple[Charges, ...], ...]:
    return tuple(tuple(tuple(_charges(node, need)) for need in group) for group in choices)


def _charges(node: Node, need: Iterable[tuple[FlavorResource, int]]) -> list[tuple[Cell, int]]:
    return [(node.cell(fr), amount) for fr, amount in need if amount]
