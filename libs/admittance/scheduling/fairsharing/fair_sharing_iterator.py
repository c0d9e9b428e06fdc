"""The order of a cycle's entries under fair sharing: in every cohort the entries of the best child
come first. Source: `docs/spec/scheduling.md#7.3, #8.1` point 10.

Children of a cohort are compared as if their best entry had the quota that it needs: first children
that borrow none of that quota, then children with a lower share, then by priority and age of the
entry. Processing an entry changes only its queue and the cohorts above, so only these nodes are
compared again.
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
    """Quota that the family of a variant holds already."""

    def assume(self, more: dict[Cell, int]) -> None: ...
    def end_assumption(self) -> None: ...


class AssignedFlavors(Protocol):
    """The flavors that an entry would get, with the quota that these flavors take."""

    @property
    def family_quota(self) -> HeldQuota | None: ...
    def added_usage(self) -> dict[Cell, int]: ...


class EntryQueue(Protocol):
    """The ClusterQueue of an entry."""

    @property
    def node(self) -> Node | None: ...


class EntryWorkload(Protocol):
    """The workload of an entry."""

    @property
    def key(self) -> tuple[str, str]: ...
    @property
    def uid(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def queued_at(self) -> datetime | None: ...


class AnyEntry(Protocol):
    """A head of a queue with the flavors that it would get."""

    @property
    def assignment(self) -> AssignedFlavors: ...
    @property
    def workload(self) -> EntryWorkload: ...
    @property
    def queue(self) -> EntryQueue: ...


Entry = TypeVar("Entry", bound=AnyEntry)


class _CohortEntries(Generic[Entry]):
    """The best entry of each child of a cohort, as a heap whose first item is the best of all."""

    __slots__ = ("below", "heap", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.below: list[_CohortEntries[Entry]] = []
        self.heap: list[tuple[Key, Entry, _CohortEntries[Entry] | None]] = []

    def fill(self) -> None:
        """Adds the best entry of each cohort directly below this cohort."""
        for cohort in self.below:
            cohort.fill()
            heappush(self.heap, (_key(cohort.heap[0][1], cohort.node), *cohort.entry()))

    def entry(self) -> tuple[Entry, _CohortEntries[Entry]]:
        """The best entry, as an item for the cohort above."""
        return self.heap[0][1], self

    def drop_best(self) -> None:
        """Removes the best entry, and adds the next entry of the same child."""
        below = self.heap[0][2]
        heappop(self.heap)
        if below is not None:
            below.drop_best()
            if below.heap:
                heappush(self.heap, (_key(below.heap[0][1], below.node), *below.entry()))


def in_turn(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries of one cohort tree, in the order of their turns. The caller processes each entry
    before it requests the next one."""
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
    found = cohorts.get(node)
    if found is None:
        found = cohorts[node] = _CohortEntries(node)
        if node.parent is not None:
            _entries_of(node.parent, cohorts).below.append(found)
    return found


def _key(entry: AnyEntry, node: Node) -> Key:
    """The sort key of the entry as the best one of the node, a child of a cohort."""
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
