"""Answers about the tree of a cohort: the quota of each node, and the sums of what is below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from admittance.events.requests.queues import NodeStatus, NodeUsage, QueuesReply
from admittance.quota.cell import Cell, FlavorResource, available
from admittance.quota.tree import Node
from admittance.scheduling.explain.queue_status import (
    admitted_of,
    is_listed,
    promised_workloads,
    reserving,
)
from admittance.scheduling.fairsharing.shares import share_of
from admittance.scheduling.state.held.shared_quota import WithoutUsage
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue


@dataclass(slots=True)
class _Amounts:
    """Sums of one flavor and resource over a node and all nodes below it."""

    total: int = 0
    used: int = 0
    admitted: int = 0
    lent: int = 0

    def add(self, other: _Amounts) -> None:
        self.total += other.total
        self.used += other.used
        self.admitted += other.admitted
        self.lent += other.lent


@dataclass(slots=True)
class _Sums:
    """Sums over a node and all nodes below it."""

    pending: int = 0
    reserving: int = 0
    running: int = 0
    amounts: dict[FlavorResource, _Amounts] = field(default_factory=dict)

    def add(self, other: _Sums) -> None:
        self.pending += other.pending
        self.reserving += other.reserving
        self.running += other.running
        for fr, amounts in other.amounts.items():
            self.amounts.setdefault(fr, _Amounts()).add(amounts)


class QueueCounts(NamedTuple):
    """How many workloads of a ClusterQueue wait, hold quota and are admitted, and the quota of
    those that are admitted."""

    pending: int
    reserving: int
    running: int
    admitted: Mapping[FlavorResource, int]


def counts_of(queue: Queue) -> QueueCounts:
    """Returns the counts of a queue with all its workloads."""
    return QueueCounts(queue.pending, reserving(queue), *admitted_of(queue))


def of_cohort(
    state: SchedulerState, name: str, counts: Callable[[Queue], QueueCounts] = counts_of
) -> QueuesReply:
    """Returns the whole tree to which the cohort belongs, the root first. ``counts``: of a queue;
    a picture of the past has no workloads in its queues, and other counts."""
    node = state.catalog.tree.cohorts.get(name)
    if node is None:
        return QueuesReply(error=f"cohort {name} does not exist: no object names it")
    root = node.root()
    going = promised_workloads(
        state.queues[member.name] for member in root.queues() if member.name in state.queues
    )
    free: dict[Cell, int] = {}
    if going:
        # Quota that is only held for a promised workload does not count as used, but it is not
        # available either.
        free = {cell: available(cell) for node in _nodes(root) for cell in node.cells.values()}
    with WithoutUsage(going):
        sums: dict[Node, _Sums] = {}
        _sum_up(state, root, free, sums, counts)
        return QueuesReply(tree=tuple(_walk(state, root, 0, free, sums)))


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    yield from node.members.values()
    for below in node.cohorts.values():
        yield from _nodes(below)


def _sum_up(
    state: SchedulerState,
    node: Node,
    free: Mapping[Cell, int],
    sums: dict[Node, _Sums],
    counts: Callable[[Queue], QueueCounts],
) -> _Sums:
    """Adds the sums of the node and of all nodes below it to ``sums``. Returns those of the
    node."""
    total = sums[node] = _Sums()
    queue = None if node.is_cohort else state.queues.get(node.name)
    admitted: Mapping[FlavorResource, int] = {}
    if queue is not None:
        total.pending, total.reserving, total.running, admitted = counts(queue)
    for fr, cell in node.cells.items():
        amounts = total.amounts[fr] = _Amounts(total=cell.nominal)
        if not node.is_cohort:
            amounts.used, amounts.admitted = cell.usage, admitted.get(fr, 0)
            amounts.lent = max(0, cell.nominal - cell.usage - _available(cell, free))
    for below in (*node.members.values(), *node.cohorts.values()):
        total.add(_sum_up(state, below, free, sums, counts))
    return total


def _walk(
    state: SchedulerState,
    node: Node,
    depth: int,
    free: Mapping[Cell, int],
    sums: Mapping[Node, _Sums],
) -> Iterator[NodeStatus]:
    total = sums[node]
    listed = {fr: cell for fr, cell in sorted(node.cells.items()) if is_listed(cell)}
    yield NodeStatus(
        name=node.name,
        kind="Cohort" if node.is_cohort else "ClusterQueue",
        depth=depth,
        parent=node.parent.name if node.parent is not None else "",
        weight=node.weight,
        share=share_of(node).shown,
        in_cycle=state.catalog.tree.in_cycle(node),
        pending=total.pending,
        reserving=total.reserving,
        running=total.running,
        usage=tuple(_usage(cell, free, total.amounts[fr]) for fr, cell in listed.items()),
    )
    for below in sorted(node.members):
        yield from _walk(state, node.members[below], depth + 1, free, sums)
    for below in sorted(node.cohorts):
        yield from _walk(state, node.cohorts[below], depth + 1, free, sums)


def _usage(cell: Cell, free: Mapping[Cell, int], amounts: _Amounts) -> NodeUsage:
    return NodeUsage(
        flavor=cell.fr[0],
        resource=cell.fr[1],
        nominal=cell.nominal,
        subtree=cell.subtree,
        usage=cell.usage,
        available=_available(cell, free),
        borrowed=max(0, cell.usage - cell.subtree) if cell.parent is not None else 0,
        lendable=cell.lent() if cell.parent is not None else 0,
        borrowing_limit=cell.borrow,
        lending_limit=cell.lend,
        total=amounts.total,
        used=amounts.used,
        reserved=max(0, amounts.used - amounts.admitted),
        admitted=amounts.admitted,
        lent=amounts.lent,
    )


def _available(cell: Cell, free: Mapping[Cell, int]) -> int:
    return max(0, free[cell] if cell in free else available(cell))
