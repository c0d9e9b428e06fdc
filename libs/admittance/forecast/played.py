"""What a play of a cohort tree keeps: the rules of queues, classes of waiting workloads, and runs
that hold quota. Times are seconds."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice, product
from typing import Final, NamedTuple, TypeAlias

from admittance.forecast.rows import Key, Need, Waiting
from admittance.quota.cell import Cell, FlavorResource
from admittance.quota.tree import Node
from admittance.scheduling.state.flavor_plan import NO_PREEMPTION, Policy
from admittance.scheduling.state.held.person_limits import Person

CHOICES_MAX: Final = 8
"""For how many choices of flavors victims, or the time of a promised start, are searched."""
Charges: TypeAlias = tuple[tuple[Cell, int], ...]
Rank: TypeAlias = tuple[int, float, Key]
_Alike: TypeAlias = tuple[int, tuple[tuple[Need, ...], ...], tuple[Person, ...], float | None]


class QueueRules(NamedTuple):
    """A ClusterQueue. ``strict``: StrictFIFO. ``tries_next``: the next flavor is tried before one
    is borrowed (whenCanBorrow: TryNextFlavor). ``policy``: what its workloads may preempt.
    ``preempts_first``: they preempt before the next flavor is tried (whenCanPreempt: Preempt).
    ``borrow_preempts``: they may preempt for more than the nominal quota. ``spared``: for how many
    seconds they run before they may be preempted. ``backfill``: their head may get a promise of a
    start. ``begins_at_once``: their runs wait for no check, so their limits say when they end.
    ``is_active``: the queue admits workloads."""

    node: Node
    strict: bool = False
    tries_next: bool = False
    policy: Policy = NO_PREEMPTION
    preempts_first: bool = False
    borrow_preempts: bool = False
    spared: float = 0.0
    backfill: bool = False
    begins_at_once: bool = True
    is_active: bool = True


class Held:
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


class Run:
    """A workload that holds quota, of the queue ``queue``. ``job``: the workload as it waits again
    after an eviction; None: it does not wait again. ``since``: when it got the quota.
    ``ends_by``: when it ends at the latest; None: at no known time. ``is_leaving``: it is being
    evicted when the play begins, so it waits again after its end. ``is_over``: it has ended or was
    evicted."""

    __slots__ = (
        "charges",
        "ends_by",
        "is_leaving",
        "is_over",
        "job",
        "key",
        "persons",
        "queue",
        "since",
    )

    def __init__(
        self,
        key: Key,
        queue: str,
        charges: Charges,
        persons: tuple[Held, ...],
        job: Waiting | None,
        since: float,
        ends_by: float | None = None,
    ) -> None:
        self.key = key
        self.queue = queue
        self.charges = charges
        self.persons = persons
        self.job = job
        self.since = since
        self.ends_by = ends_by
        self.is_leaving = False
        self.is_over = False


class WaitingClass:
    """Waiting workloads of one queue that ask for the same amounts with the same priority, for the
    same persons, the oldest first; in a tree with backfill they have the same limit, too. ``at``:
    the place of the first that waits. ``rank``: that workload's place among those of other classes:
    the priority, negative, its time and its key; None: none waits."""

    __slots__ = ("at", "cells", "is_parked", "jobs", "order", "persons", "rank")

    def __init__(
        self, order: int, cells: tuple[tuple[Charges, ...], ...], persons: tuple[Held, ...]
    ) -> None:
        self.order = order
        self.cells = cells
        self.persons = persons
        self.jobs: list[tuple[float, Key, Waiting]] = []
        self.at = 0
        self.is_parked = False
        self.rank: Rank | None = None

    @property
    def first(self) -> Waiting:
        """The first workload that waits; there must be one."""
        return self.jobs[self.at][2]

    def choices(self) -> Iterator[Charges]:
        """The amounts of its first `CHOICES_MAX` choices of flavors."""
        for groups in islice(product(*self.cells), CHOICES_MAX):
            yield tuple(charge for group in groups for charge in group)

    def add(self, job: Waiting) -> None:
        """Adds a workload at its place."""
        insort(self.jobs, (job.queued_at, job.key, job), lo=self.at)
        self._rank()

    def take(self) -> Waiting:
        """Removes the first and returns it."""
        job = self.first
        self.at += 1
        self._rank()
        return job

    def _rank(self) -> None:
        if self.at == len(self.jobs):
            self.rank = None
        else:
            queued_at, key, _ = self.jobs[self.at]
            self.rank = (self.order, queued_at, key)


class WaitingQueue:
    """The workloads that wait in one queue. ``by_limit``: workloads with different limits are of
    different classes."""

    __slots__ = ("_by_limit", "classes", "name", "rules")

    def __init__(self, name: str, rules: QueueRules, *, by_limit: bool) -> None:
        self.name = name
        self.rules = rules
        self._by_limit = by_limit
        self.classes: dict[_Alike, WaitingClass] = {}

    def add(self, job: Waiting, held: Callable[[Person], Held]) -> None:
        """Adds a workload to its class."""
        limit = job.limit if self._by_limit else None
        alike = (job.priority, job.choices, job.persons, limit)
        known = self.classes.get(alike)
        if known is None:
            persons = tuple(map(held, job.persons))
            known = WaitingClass(-job.priority, cells_of(self.rules.node, job.choices), persons)
            self.classes[alike] = known
        known.add(job)


class Start(NamedTuple):
    """How a workload may start now: with these amounts, after these ``victims`` are evicted.
    ``borrows``: whether it exceeds the nominal quota of its queue then."""

    charges: Charges
    borrows: bool
    victims: tuple[Run, ...] = ()


class Entry:
    """The nominated workload of a queue in a cycle. The properties are those that the order of fair
    sharing reads. ``version``: of the play, for which ``start`` was found."""

    __slots__ = ("head", "queue_of", "start", "version")

    family_quota = None
    uid = ""

    def __init__(self, queue: WaitingQueue, head: WaitingClass, start: Start, version: int) -> None:
        self.queue_of = queue
        self.head = head
        self.start = start
        self.version = version

    @property
    def rank(self) -> tuple[bool, Rank]:
        """Its place in a cycle without fair sharing: entries that do not borrow are first."""
        return self.start.borrows, rank_of(self.head)

    @property
    def queue(self) -> QueueRules:
        return self.queue_of.rules

    @property
    def workload(self) -> Entry:
        return self

    @property
    def assignment(self) -> Entry:
        return self

    @property
    def key(self) -> Key:
        return self.head.first.key

    @property
    def priority(self) -> int:
        return self.head.first.priority

    @property
    def queued_at(self) -> datetime | None:
        return moment(self.head.first.queued_at)

    def added_usage(self) -> dict[Cell, int]:
        """The amounts that it takes, by cell."""
        return total_of(self.start.charges)


def rank_of(each: WaitingClass) -> Rank:
    """The rank of a class in which a workload waits."""
    assert each.rank is not None
    return each.rank


def total_of(charges: Iterable[tuple[Cell, int]]) -> dict[Cell, int]:
    """The amounts by cell."""
    total: dict[Cell, int] = {}
    for cell, amount in charges:
        total[cell] = total.get(cell, 0) + amount
    return total


def moment(at: float) -> datetime:
    """The time as the functions of the scheduler read it."""
    return datetime.fromtimestamp(at, UTC)


def cells_of(node: Node, choices: tuple[tuple[Need, ...], ...]) -> tuple[tuple[Charges, ...], ...]:
    """The amounts of each choice with the cells of the node."""
    return tuple(tuple(charges_of(node, need) for need in group) for group in choices)


def charges_of(node: Node, need: Iterable[tuple[FlavorResource, int]]) -> Charges:
    """The amounts with the cells of the node."""
    return tuple((node.cell(fr), amount) for fr, amount in need if amount)
