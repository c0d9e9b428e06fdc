"""Orders the entries of a cycle under fair sharing: in every cohort the entries of the child that
compares best come first. Source: `docs/spec/scheduling.md#7.3, #8.1` point 10.

Children of a cohort are compared as if their best entry had the quota that it needs: first children
that borrow none of that quota, then children with a lower share, then by priority and age of the
entry. Processing an entry changes only the shares of its queue and of the cohorts above, so only
these nodes are compared again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from admittance.quota.cell import Cell
from admittance.quota.tree import Node
from admittance.scheduling.fairsharing.shares import is_borrowing_on, share_of

Key = tuple[bool, int, float, int, datetime, str, tuple[str, str]]


class HeldQuota(Protocol):
    """The quota that the family of a variant holds already, as this module needs it."""

    def assume(self, more: dict[Cell, int]) -> None: ...
    def end_assumption(self) -> None: ...


class AssignedFlavors(Protocol):
    """The assignment of an entry, as this module needs it: the flavors and the quota that they
    take.
    """

    @property
    def family_quota(self) -> HeldQuota | None: ...
    def added_usage(self) -> dict[Cell, int]: ...


class EntryQueue(Protocol):
    """The ClusterQueue of an entry, as this module needs it."""

    @property
    def node(self) -> Node | None: ...


class EntryWorkload(Protocol):
    """The workload of an entry, as this module needs it."""

    @property
    def key(self) -> tuple[str, str]: ...
    @property
    def uid(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def queued_at(self) -> datetime | None: ...


class AnyEntry(Protocol):
    """An entry of a cycle, as this module needs it: the head of a queue, with its assignment."""

    @property
    def assignment(self) -> AssignedFlavors: ...
    @property
    def workload(self) -> EntryWorkload: ...
    @property
    def queue(self) -> EntryQueue: ...


Entry = TypeVar("Entry", bound=AnyEntry)


class _CohortEntries(Generic[Entry]):
    """The best entry of each child of one cohort, in a heap with the best of all first."""

    __slots__ = ("below", "heap", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.below: list[_CohortEntries[Entry]] = []
        self.heap: list[tuple[Key, Entry, _CohortEntries[Entry] | None]] = []

    def fill(self) -> None:
        """Adds the best entry of each cohort directly below this cohort to the heap."""
        for cohort in self.below:
            cohort.fill()
            heappush(self.heap, (_key(cohort.heap[0][1], cohort.node), *cohort.entry()))

    def entry(self) -> tuple[Entry, _CohortEntries[Entry]]:
        """Returns the cohort's best entry, as an item for the heap of the cohort above."""
        return self.heap[0][1], self

    def drop_best(self) -> None:
        """Removes the cohort's best entry from the heap, and adds the next entry of the
        same child.
        """
        below = self.heap[0][2]
        heappop(self.heap)
        if below is not None:
            below.drop_best()
            if below.heap:
                heappush(self.heap, (_key(below.heap[0][1], below.node), *below.entry()))


def in_turn(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yields the entries of one cohort tree, in the order in which the cycle must process them. The
    caller must process each entry before it asks for the next one.
    """
    cohorts: dict[Node, _CohortEntries[Entry]] = {}
    root: _CohortEntries[Entry] | None = None
    for entry in entries:
        node = entry.queue.node
        assert node is not None
        if node.parent is None:
            yield entry
            continue
        heappush(_entries_of(node.parent, cohorts).heap, (_key(entry, node), entry, None))
        root = cohorts[node.root()]
    if root is None:
        return
    root.fill()
    while root.heap:
        yield root.heap[0][1]
        root.drop_best()


def _entries_of(node: Node, cohorts: dict[Node, _CohortEntries[Entry]]) -> _CohortEntries[Entry]:
    known = cohorts.get(node)
    if known is None:
        known = cohorts[node] = _CohortEntries(node)
        if node.parent is not None:
            _entries_of(node.parent, cohorts).below.append(known)
    return known


def _key(entry: AnyEntry, node: Node) -> Key:
    """Returns the key by which ``node``, a child of a cohort, is compared with the cohort's other
    children. ``entry``: the best entry below the node.
    """
    usage, held = entry.assignment.added_usage(), entry.assignment.family_quota
    if held is not None:
        held.assume(usage)
    for cell, amount in usage.items() if held is None else ():
        cell.charge(amount)
    borrows = is_borrowing_on(node, [cell.fr for cell, amount in usage.items() if amount > 0])
    standing = share_of(node).standing
    if held is not None:
        held.end_assumption()
    for cell, amount in usage.items() if held is None else ():
        cell.charge(-amount)
    workload = entry.workload
    assert workload.queued_at is not None
    return (borrows, *standing, -workload.priority, workload.queued_at, workload.uid, workload.key)
