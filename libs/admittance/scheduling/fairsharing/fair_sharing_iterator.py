"""The order of a cycle's entries under fair sharing: in every cohort the best child wins.

Best is who, with what it asks for, borrows nothing of that, then who has the lower share, then
priority and age. What the winner takes moves nothing but its own queue and the cohorts above it,
so only on its way up is the next one found anew.
Source: `docs/spec/scheduling.md#7.3, #8.1` point 10.
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
    """What an entry asks for."""

    @property
    def family_quota(self) -> HeldQuota | None: ...
    def takes(self) -> dict[Cell, int]: ...


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


class _Bracket(Generic[Entry]):
    """One cohort: its children with their best entries, the best one first."""

    __slots__ = ("below", "heap", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.below: list[_Bracket[Entry]] = []
        self.heap: list[tuple[Key, Entry, _Bracket[Entry] | None]] = []

    def fill(self) -> None:
        """Lets the brackets below play, and takes in their winners."""
        for bracket in self.below:
            bracket.fill()
            heappush(self.heap, (_key(bracket.heap[0][1], bracket.node), *bracket.entry()))

    def entry(self) -> tuple[Entry, _Bracket[Entry]]:
        """The winner, as an item of the bracket above."""
        return self.heap[0][1], self

    def drop_winner(self) -> None:
        """The winner is out: the next one moves up, if there is one."""
        below = self.heap[0][2]
        heappop(self.heap)
        if below is not None:
            below.drop_winner()
            if below.heap:
                heappush(self.heap, (_key(below.heap[0][1], below.node), *below.entry()))


def in_turn(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries of one tree, each to be processed before the next one is asked for."""
    brackets: dict[Node, _Bracket[Entry]] = {}
    root: _Bracket[Entry] | None = None
    for entry in entries:
        node = entry.queue.node
        assert node is not None
        if node.parent is None:
            yield entry
            continue
        heappush(_bracket(node.parent, brackets).heap, (_key(entry, node), entry, None))
        root = brackets[node.root()]
    if root is None:
        return
    root.fill()
    while root.heap:
        yield root.heap[0][1]
        root.drop_winner()


def _bracket(node: Node, brackets: dict[Node, _Bracket[Entry]]) -> _Bracket[Entry]:
    found = brackets.get(node)
    if found is None:
        found = brackets[node] = _Bracket(node)
        if node.parent is not None:
            _bracket(node.parent, brackets).below.append(found)
    return found


def _key(entry: AnyEntry, node: Node) -> Key:
    """Where the entry stands as the one that the node, a child of a cohort, sends in."""
    usage, held = entry.assignment.takes(), entry.assignment.family_quota
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
