"""Plays a cohort tree forward: which waiting workload starts when, if run times are given.

The model has queues of both strategies, priorities, several flavors, borrowing, limits on what one
person may hold, and the order of a cycle. Where a queue uses them, it has preemption, fair sharing
over the weights of cohorts and queues, and backfill, by the functions that the scheduler uses. A
victim waits again at its former place, and its run begins anew. Times are seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, nsmallest
from math import inf
from operator import attrgetter
from typing import Final, TypeAlias

from admittance.forecast.evictions import Evictions
from admittance.forecast.played import (
    Charges,
    Entry,
    Held,
    QueueRules,
    Run,
    Start,
    WaitingClass,
    WaitingQueue,
    charges_of,
    rank_of,
)
from admittance.forecast.promised import KeptPromise, promise_now
from admittance.forecast.rows import Holding, Key, Waiting
from admittance.quota.cell import Cell, available, is_over
from admittance.scheduling.fairsharing.fair_sharing_iterator import in_turn
from admittance.scheduling.state.flavor_plan import NO_PREEMPTION
from admittance.scheduling.state.held.person_limits import Person

RunTime: TypeAlias = Callable[[Waiting], float]
"""Draws the run time of a workload that starts."""

CAUSES_MAX: Final = 5
"""How many ends before a start are named."""
LOOKED_BACK: Final = 50
"""How many ends before a start are looked at."""


def play(
    queues: Mapping[str, QueueRules],
    waiting: Iterable[Waiting],
    ends: Sequence[tuple[float, Holding]],
    run_time: RunTime,
    now: float,
    *,
    strategies: tuple[str, ...] | None = None,
    arrivals: Iterable[Waiting] = (),
    until: float = inf,
    causes: dict[Key, tuple[Key, ...]] | None = None,
) -> dict[Key, float]:
    """Returns the starts of the workloads in ``waiting``; those without a start by ``until`` are
    left out.

    ``queues``: those of one tree, by name. Their cells have the usage of what holds quota now, also
    after the call. ``ends``: when what holds quota now ends. ``strategies``: those of preemption
    with fair sharing, which orders each cycle by shares; None: it is off. ``arrivals``: the
    workloads that arrive later, the earliest ``queued_at`` first; no more are read than arrive.
    ``causes``: gets for each workload that starts after an end the last workloads that ended before
    the start, the earliest first: as many as freed the amounts that were missing at ``now``, and at
    most `CAUSES_MAX`.
    """
    return _Play(queues, strategies, waiting, ends, run_time, now, causes).run(arrivals, until)


class _Play:
    def __init__(
        self,
        queues: Mapping[str, QueueRules],
        strategies: tuple[str, ...] | None,
        waiting: Iterable[Waiting],
        ends: Sequence[tuple[float, Holding]],
        run_time: RunTime,
        now: float,
        causes: dict[Key, tuple[Key, ...]] | None,
    ) -> None:
        self._causes = causes
        self._ended: deque[Run] = deque(maxlen=LOOKED_BACK)
        self._free_at_first: dict[Cell, int] = {}
        self._is_fair = strategies is not None
        self._has_backfill = any(rules.backfill for rules in queues.values())
        self._queues = {
            name: WaitingQueue(name, rules, by_limit=self._has_backfill)
            for name, rules in queues.items()
        }
        self._evictions: Evictions | None = None
        if any(rules.policy is not NO_PREEMPTION for rules in queues.values()):
            self._evictions = Evictions(queues, strategies)
        self._held: dict[Person, Held] = {}
        self._run_time = run_time
        self._now = now
        self._version = 0
        self._charged: list[tuple[Cell, int]] = []
        self._asked: set[Key] = set()
        for job in waiting:
            self._asked.add(job.key)
            self._queues[job.queue].add(job, self._held_by)
        self._running: dict[Run, None] = {}
        runs = [(at, place, self._run_of(held)) for place, (at, held) in enumerate(ends)]
        self._ends = [each for each in runs if not each[2].is_leaving]
        heapify(self._ends)
        self._started = len(runs)
        self.starts: dict[Key, float] = {}
        self._leaving = [run for _, _, run in runs if run.is_leaving]

    def run(self, arrivals: Iterable[Waiting], until: float) -> dict[Key, float]:
        begin = self._now
        later = iter(arrivals)
        arrival = next(later, None)
        try:
            for run in self._leaving:
                self._end(run)
            self._cycles()
            if self._causes is not None:
                self._free_at_first = self._free()
            while len(self.starts) < len(self._asked):
                next_end = self._ends[0][0] if self._ends else inf
                next_old = inf if self._evictions is None else self._evictions.next_old
                next_arrival = inf if arrival is None else arrival.queued_at
                at = min(next_end, next_arrival, next_old)
                if at > until or at == inf:
                    break
                while self._ends and self._ends[0][0] <= at:
                    self._end(heappop(self._ends)[2])
                if next_old <= at and self._evictions is not None:
                    self._evictions.next_old = inf
                if min(next_end, next_old) <= at:
                    self._unpark()
                while arrival is not None and arrival.queued_at <= at:
                    self._queues[arrival.queue].add(arrival, self._held_by)
                    arrival = next(later, None)
                self._now = max(at, begin)
                self._cycles()
        finally:
            for cell, amount in self._charged:
                cell.charge(-amount)
        return self.starts

    # What holds quota. --------------------------------------------------------------------

    def _run_of(self, held: Holding) -> Run:
        """A workload that holds quota when the play begins, with which the cells are charged."""
        rules = self._queues[held.queue].rules
        begun = held.since
        if held.is_checked:
            begun = self._now if rules.begins_at_once else inf
        ends_by = None if held.limit is None or begun == inf else begun + held.limit
        if held.is_leaving:
            ends_by = self._now
        run = Run(
            held.key,
            held.queue,
            charges_of(rules.node, held.need),
            tuple(map(self._held_by, held.persons)),
            held.again,
            held.since,
            ends_by,
        )
        run.is_leaving = held.is_leaving
        self._add(run)
        return run

    def _add(self, run: Run) -> None:
        if self._has_backfill:
            self._running[run] = None
        if self._evictions is not None:
            self._evictions.add(run)

    def _end(self, run: Run) -> None:
        """Frees the quota of a run, unless it was evicted before."""
        if not run.is_over:
            self._remove(run)
            self._ended.append(run)
            if run.is_leaving and run.job is not None:
                self._queues[run.queue].add(run.job, self._held_by)

    def _remove(self, run: Run) -> None:
        run.is_over = True
        self._charge(run.charges, run.persons, -1)
        self._running.pop(run, None)
        if self._evictions is not None:
            self._evictions.remove(run)

    def _evict(self, run: Run) -> None:
        assert self._evictions is not None and run.job is not None
        self._remove(run)
        self._evictions.note(run)
        self._queues[run.queue].add(run.job, self._held_by)

    def _held_by(self, person: Person) -> Held:
        known = self._held.get(person)
        if known is None:
            known = self._held[person] = Held(person)
        return known

    def _charge(self, charges: Charges, persons: tuple[Held, ...], sign: int) -> None:
        self._version += 1
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

    # Cycles. ------------------------------------------------------------------------------

    def _unpark(self) -> None:
        for queue in self._queues.values():
            for each in queue.classes.values():
                each.is_parked = False

    def _cycles(self) -> None:
        """Starts all that fits: in each cycle one workload of each queue, in the order of the
        scheduler."""
        while True:
            entries = [entry for each in self._queues.values() if (entry := self._entry(each))]
            if not entries:
                return
            promise = self._promise(entries) if self._has_backfill else None
            held_back: list[WaitingClass] = []
            before = self._version
            for entry in self._ordered(entries):
                self._process(entry, promise, held_back)
            if self._version != before:
                # What a promise held back competes again, since it may be another one now.
                for head in held_back:
                    head.is_parked = False

    def _ordered(self, entries: list[Entry]) -> Iterator[Entry]:
        if self._is_fair:
            return in_turn(entries)
        entries.sort(key=attrgetter("rank"))
        return iter(entries)

    def _process(
        self, entry: Entry, promise: KeptPromise | None, held_back: list[WaitingClass]
    ) -> None:
        queue, head = entry.queue_of, entry.head
        start: Start | None = entry.start
        if entry.version != self._version:
            start = self._start_of(queue, head)
        if start is None:
            head.is_parked = True
            return
        if promise is not None:
            ends_by = self._ends_by(queue.rules, head.first)
            if not promise.allows(queue, head, start, ends_by):
                head.is_parked = True
                held_back.append(head)
                return
            promise.note_start(start.charges, ends_by)
        self._start(queue, head, start)

    def _entry(self, queue: WaitingQueue) -> Entry | None:
        """The workload that a cycle nominates; None: nothing that waits may start. Classes before
        it that may not are parked."""
        waiting = [each for each in queue.classes.values() if each.rank]
        if queue.rules.strict:
            # A workload over the limit of a person blocks no other.
            inside = (each for each in waiting if not each.persons or _is_within(each))
            waiting = nsmallest(1, inside, key=rank_of)
        for each in sorted((each for each in waiting if not each.is_parked), key=rank_of):
            start = self._start_of(queue, each)
            if start is not None:
                return Entry(queue, each, start, self._version)
            each.is_parked = True
        return None

    def _start_of(self, queue: WaitingQueue, head: WaitingClass) -> Start | None:
        fit = _fit(head, queue.rules)
        if self._evictions is None:
            return fit
        return self._evictions.start(queue.name, head, fit, self._now)

    def _promise(self, entries: Iterable[Entry]) -> KeptPromise | None:
        """The promise of this cycle; None: there is none, or it binds no entry."""
        nominated = {entry.head for entry in entries}
        blocked = [
            (queue, first)
            for queue in self._queues.values()
            if queue.rules.backfill
            and (first := self._first(queue)) is not None
            and first not in nominated
        ]
        if not blocked:
            return None
        return promise_now(blocked, self._running, self._now)

    def _first(self, queue: WaitingQueue) -> WaitingClass | None:
        inside = (
            each
            for each in queue.classes.values()
            if each.rank and (not each.persons or _is_within(each))
        )
        return min(inside, key=rank_of, default=None)

    def _ends_by(self, rules: QueueRules, job: Waiting) -> float | None:
        if job.limit is None or not rules.begins_at_once:
            return None
        return self._now + job.limit

    def _start(self, queue: WaitingQueue, head: WaitingClass, start: Start) -> None:
        persons, charges, now = head.persons, start.charges, self._now
        job = head.take()
        for victim in start.victims:
            self._evict(victim)
        if job.key in self._asked and job.key not in self.starts:
            self.starts[job.key] = now
            if self._causes is not None and self._ended and not start.victims:
                self._causes[job.key] = self._freed_for(charges)
        self._charge(charges, persons, 1)
        self._started += 1
        run = Run(job.key, queue.name, charges, persons, job, now, self._ends_by(queue.rules, job))
        self._add(run)
        heappush(self._ends, (now + self._run_time(job), self._started, run))

    def _freed_for(self, charges: Charges) -> tuple[Key, ...]:
        """The last ends that freed the amounts which were missing at first, the earliest first."""
        missing = {cell.fr: 0 for cell, _ in charges}
        for cell, amount in charges:
            missing[cell.fr] += amount - self._free_at_first.get(cell, 0)
        found: list[Key] = []
        for run in reversed(self._ended):
            if len(found) == CAUSES_MAX or all(amount <= 0 for amount in missing.values()):
                break
            useful = [
                (cell.fr, amount) for cell, amount in run.charges if missing.get(cell.fr, 0) > 0
            ]
            if useful:
                found.append(run.key)
            for fr, amount in useful:
                missing[fr] -= amount
        return tuple(reversed(found))


def _fit(head: WaitingClass, rules: QueueRules) -> Start | None:
    """How the first workload of the class may start without a preemption; None: it cannot."""
    charges: list[tuple[Cell, int]] = []
    borrows = False
    for choices in head.cells:
        chosen: Charges | None = None
        over = False
        for cells in choices:
            over_here = _borrows(cells, charges)
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
    return Start(tuple(charges), borrows)


def _is_within(head: WaitingClass) -> bool:
    """Whether its persons may hold the amounts of the first flavors."""
    first = tuple(charge for choices in head.cells for charge in choices[0])
    return all(person.has_room(first) for person in head.persons)


def _borrows(charges: Charges, before: Sequence[tuple[Cell, int]]) -> bool | None:
    """Whether the amounts exceed the nominal quota, beside those that the workload takes already
    (``before``); None: they do not fit."""
    over = False
    for cell, asked in charges:
        amount = asked
        if before:
            amount += sum(much for other, much in before if other is cell)
        if available(cell) < amount:
            return None
        over = over or is_over(cell, amount)
    return over
