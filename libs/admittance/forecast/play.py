"""Plays a cohort tree forward: which waiting workload starts when, if run times are given.

The model has queues of both strategies, priorities, several flavors, borrowing, limits on what one
person may hold, and the order of a cycle. It has no preemption, backfill, fair sharing and
families. Times are seconds."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, nsmallest
from math import inf
from typing import Final, NamedTuple, TypeAlias

from admittance.forecast.rows import Holding, Key, Need, Waiting
from admittance.quota.cell import Cell, FlavorResource, available, is_over
from admittance.quota.tree import Node
from admittance.scheduling.state.held.person_limits import Person

RunTime: TypeAlias = Callable[[Waiting], float]
"""Draws the run time of a workload that starts."""
Charges: TypeAlias = tuple[tuple[Cell, int], ...]
Rank: TypeAlias = tuple[int, float, Key]
_Alike: TypeAlias = tuple[int, tuple[tuple[Need, ...], ...], tuple[Person, ...]]

CAUSES_MAX: Final = 5
"""How many ends before a start are named."""
LOOKED_BACK: Final = 50
"""How many ends before a start are looked at."""


class QueueRules(NamedTuple):
    """A ClusterQueue. ``strict``: StrictFIFO. ``tries_next``: the next flavor is tried before one
    is borrowed (whenCanBorrow: TryNextFlavor)."""

    node: Node
    strict: bool = False
    tries_next: bool = False


class _Held:
    """What one person holds under one limit during a play."""

    __slots__ = ("_held", "_most")

    def __init__(self, person: Person) -> None:
        self._held = dict(person.held)
        self._most = dict(person.limit.most)

    def has_room(self, charges: Charges) -> bool:
        """Whether the person may hold the amounts too."""
        asked: dict[str, int] = {}
        for cell, amount in charges:
            resource = cell.fr[1]
            asked[resource] = asked.get(resource, 0) + amount
        return all(
            self._held[resource] + asked.get(resource, 0) <= most or not asked.get(resource)
            for resource, most in self._most.items()
        )

    def charge(self, charges: Charges, sign: int) -> None:
        """Adds the amounts, or takes them away."""
        for cell, amount in charges:
            resource = cell.fr[1]
            if resource in self._held:
                self._held[resource] += sign * amount


class _Class:
    """Waiting workloads of one queue that ask for the same amounts with the same priority, for the
    same persons, the oldest first. ``at``: the place of the first that waits. ``rank``: that
    workload's place among those of other classes: the priority, negative, its time and its key;
    None: none waits."""

    __slots__ = ("at", "cells", "is_parked", "jobs", "order", "persons", "rank")

    def __init__(
        self, order: int, cells: tuple[tuple[Charges, ...], ...], persons: tuple[_Held, ...]
    ) -> None:
        self.order = order
        self.cells = cells
        self.persons = persons
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
        self.classes: dict[_Alike, _Class] = {}

    def add(self, job: Waiting, held: Callable[[Person], _Held]) -> None:
        alike = (job.priority, job.choices, job.persons)
        known = self.classes.get(alike)
        if known is None:
            persons = tuple(map(held, job.persons))
            known = _Class(-job.priority, _cells(self.rules.node, job.choices), persons)
            self.classes[alike] = known
        known.add(job)

    def entry(self) -> _Entry | None:
        """The workload that a cycle nominates; None: nothing that waits fits. Classes before it
        that do not fit are parked."""
        waiting = [each for each in self.classes.values() if each.rank]
        if self.rules.strict:
            # A workload over the limit of a person blocks no other.
            inside = (each for each in waiting if not each.persons or _is_within(each))
            waiting = nsmallest(1, inside, key=_rank_of)
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
    causes: dict[Key, tuple[Key, ...]] | None = None,
) -> dict[Key, float]:
    """Returns the starts of the workloads in ``waiting``; those without a start by ``until`` are
    left out.

    ``queues``: those of one tree, by name. Their cells have the usage of what holds quota now, also
    after the call. ``ends``: when what holds quota now ends. ``arrivals``: the
    workloads that arrive later, the earliest ``queued_at`` first; no more are read than arrive.
    ``causes``: gets for each workload that starts after an end the last workloads that ended before
    the start, the earliest first: as many as freed the amounts that were missing at ``now``, and at
    most `CAUSES_MAX`.
    """
    return _Play(queues, waiting, ends, run_time, causes).run(now, arrivals, until)


class _Play:
    def __init__(
        self,
        queues: Mapping[str, QueueRules],
        waiting: Iterable[Waiting],
        ends: Sequence[tuple[float, Holding]],
        run_time: RunTime,
        causes: dict[Key, tuple[Key, ...]] | None,
    ) -> None:
        self._causes = causes
        self._ended: deque[tuple[Key, Charges]] = deque(maxlen=LOOKED_BACK)
        self._free_at_first: dict[Cell, int] = {}
        self._queues = {name: _Queue(rules) for name, rules in queues.items()}
        self._held: dict[Person, _Held] = {}
        self._run_time = run_time
        self._charged: list[tuple[Cell, int]] = []
        self._asked: set[Key] = set()
        for job in waiting:
            self._asked.add(job.key)
            self._queues[job.queue].add(job, self._held_by)
        self._ends: list[tuple[float, int, Charges, Key, tuple[_Held, ...]]] = [
            (
                at,
                place,
                tuple(_charges(queues[held.queue].node, held.need)),
                held.key,
                tuple(map(self._held_by, held.persons)),
            )
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
            if self._causes is not None:
                self._free_at_first = self._free()
            while len(self.starts) < len(self._asked):
                next_end = self._ends[0][0] if self._ends else inf
                next_arrival = inf if arrival is None else arrival.queued_at
                at = min(next_end, next_arrival)
                if at > until or at == inf:
                    break
                while self._ends and self._ends[0][0] <= at:
                    _, _, charges, ended, persons = heappop(self._ends)
                    self._charge(charges, persons, -1)
                    self._ended.append((ended, charges))
                if next_end <= at:
                    self._unpark()
                while arrival is not None and arrival.queued_at <= at:
                    self._queues[arrival.queue].add(arrival, self._held_by)
                    arrival = next(later, None)
                self._cycles(max(at, now))
        finally:
            for cell, amount in self._charged:
                cell.charge(-amount)
        return self.starts

    def _held_by(self, person: Person) -> _Held:
        known = self._held.get(person)
        if known is None:
            known = self._held[person] = _Held(person)
        return known

    def _charge(self, charges: Charges, persons: tuple[_Held, ...], sign: int) -> None:
        for cell, amount in charges:
            cell.charge(sign * amount)
            self._charged.append((cell, sign * amount))
        for person in persons:
            person.charge(charges, sign)

    def _free(self) -> dict[Cell, int]:
        return {
            cell: max(0, available(cell))
            for queue in self._queues.values()
            for cell in queue.rules.node.cells.values()
        }

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
                    self._start(head.take(), fit[0], head.persons, now)

    def _start(
        self, job: Waiting, charges: Charges, persons: tuple[_Held, ...], now: float
    ) -> None:
        if job.key in self._asked:
            self.starts[job.key] = now
            if self._causes is not None and self._ended:
                self._causes[job.key] = self._freed_for(charges)
        self._charge(charges, persons, 1)
        self._started += 1
        end = now + self._run_time(job)
        heappush(self._ends, (end, self._started, charges, job.key, persons))

    def _freed_for(self, charges: Charges) -> tuple[Key, ...]:
        """The last ends that freed the amounts which were missing at first, the earliest first."""
        missing = {cell.fr: 0 for cell, _ in charges}
        for cell, amount in charges:
            missing[cell.fr] += amount - self._free_at_first.get(cell, 0)
        found: list[Key] = []
        for key, freed in reversed(self._ended):
            if len(found) == CAUSES_MAX or all(amount <= 0 for amount in missing.values()):
                break
            useful = [(cell.fr, amount) for cell, amount in freed if missing.get(cell.fr, 0) > 0]
            if useful:
                found.append(key)
            for fr, amount in useful:
                missing[fr] -= amount
        return tuple(reversed(found))


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
    if not all(person.has_room(tuple(charges)) for person in head.persons):
        return None
    return tuple(charges), borrows


def _is_within(head: _Class) -> bool:
    """Whether its persons may hold the amounts of the first flavors."""
    first = tuple(charge for choices in head.cells for charge in choices[0])
    return all(person.has_room(first) for person in head.persons)


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
