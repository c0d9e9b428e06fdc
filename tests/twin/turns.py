"""The order of heads in a cycle with fair sharing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from twin.assign import Assignment
from twin.fair import share
from twin.objects import Job
from twin.tree import Node, Tree


class Contender(Protocol):
    """A contender of the tournament."""

    node: Node
    assignment: Assignment

    @property
    def job(self) -> Job: ...


One = TypeVar("One", bound=Contender)
Value = tuple[object, ...]


def next_by_share(tree: Tree, entries: Sequence[One]) -> One:
    """The winner of the tree of the first one."""
    assert tree.nodes
    first = entries[0]
    if first.node.parent is None:
        return first
    values: dict[tuple[int, int], Value] = {}
    for entry in entries:
        usage = entry.assignment.usage()
        asked = [fr for fr, much in usage.items() if much > 0]
        entry.node.charge(usage)
        for node in [entry.node, *entry.node.above()]:
            if node.parent is not None:
                values[id(entry), id(node)] = (
                    any(node.over(fr) for fr in asked),
                    share(node),
                    -entry.job.priority,
                    entry.job.queue_time(),
                )
        entry.node.charge(usage, -1)
    winner = best(first.node.root(), entries, values)
    assert winner is not None
    return winner


def best(node: Node, entries: Sequence[One], values: dict[tuple[int, int], Value]) -> One | None:
    """The winner among the entries at a place or below."""
    if node.is_queue:
        return next((entry for entry in entries if entry.node is node), None)
    winners: list[tuple[Value, One]] = []
    for child in node.children:
        winning = best(child, entries, values)
        if winning is not None:
            winners.append((values[id(winning), id(child)], winning))
    if not winners:
        return None
    return min(winners, key=lambda winner: winner[0])[1]
