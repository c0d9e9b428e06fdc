"""Quota once more, plainly: everything is computed anew from the objects each time.

The reference of `admittance.quota.tree`; source: docs/spec/scheduling.md#2. Shares no code but the
reading of quantities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admittance.api.units import amount
from admittance.events.shapes import Admission

FR = tuple[str, str]
Usage = dict[FR, int]


def usage_of(admission: Admission) -> Usage:
    """What an admission books, by flavor and resource."""
    usage: Usage = {}
    for row in admission.pod_set_assignments:
        for resource, flavor in row.flavors.items():
            much = amount(resource, row.resource_usage.get(resource, "0"))
            usage[flavor, resource] = usage.get((flavor, resource), 0) + much
    return usage


class _Node:
    def __init__(self, nominal: int, borrow: int | None, lend: int | None) -> None:
        self.nominal, self.borrow, self.lend = nominal, borrow, lend
        self.children: list[_Node] = []
        self.parent: _Node | None = None
        self.usage = 0
        self.subtree = 0

    def guaranteed(self) -> int:
        return 0 if self.lend is None else max(0, self.subtree - self.lend)

    def build(self) -> None:
        self.subtree = self.nominal
        for child in self.children:
            child.build()
            self.subtree += child.subtree - child.guaranteed()
            self.usage += max(0, child.usage - child.guaranteed())

    def available(self) -> int:
        if self.parent is None:
            return self.subtree - self.usage
        above = self.parent.available()
        private = self.guaranteed()
        if self.borrow is not None:
            cap = (self.subtree - private) - max(0, self.usage - private) + self.borrow
            above = min(above, cap)
        return max(0, private - self.usage) + above


def _quota(spec: Any, fr: FR) -> tuple[int, int | None, int | None]:
    for group in spec.resource_groups:
        for flavor in group.flavors:
            for resource in flavor.resources:
                if (flavor.name, resource.name) == fr:
                    limits = (resource.borrowing_limit, resource.lending_limit)
                    borrow, lend = (
                        None if one is None else amount(resource.name, one) for one in limits
                    )
                    return amount(resource.name, resource.nominal_quota), borrow, lend
    return 0, None, None


def available(
    queue: str,
    fr: FR,
    queues: Mapping[str, Any],
    cohorts: Mapping[str, Any],
    usage: Mapping[str, Usage],
) -> int:
    """What may still be used in that queue; negative: it is over. Cohorts without a cycle."""
    mine = _built(queue, fr, queues, cohorts, usage)
    return mine.available() if mine is not None else 0


def exceeds(
    queue: str,
    fr: FR,
    queues: Mapping[str, Any],
    cohorts: Mapping[str, Any],
    usage: Mapping[str, Usage],
) -> bool:
    """The queue, or a cohort that it takes from, uses more than it may."""
    node = _built(queue, fr, queues, cohorts, usage)
    while node is not None:
        limit = node.subtree
        if node.parent is not None:
            if node.borrow is None:
                limit = node.usage
            else:
                limit += node.borrow
        if node.usage > limit:
            return True
        if node.usage <= node.guaranteed():
            return False
        node = node.parent
    return False


def _built(
    queue: str,
    fr: FR,
    queues: Mapping[str, Any],
    cohorts: Mapping[str, Any],
    usage: Mapping[str, Usage],
) -> _Node | None:
    nodes: dict[str, _Node] = {}

    def cohort(name: str) -> _Node:
        found = nodes.get(name)
        if found is None:
            about = cohorts.get(name)
            found = nodes[name] = _Node(*(_quota(about.spec, fr) if about else (0, None, None)))
            parent = about.spec.parent_name if about is not None else ""
            if parent:
                found.parent = cohort(parent)
                found.parent.children.append(found)
        return found

    # All of them, not only those that a queue names: a cohort lends to its siblings, too.
    for name in cohorts:
        cohort(name)
    mine: _Node | None = None
    for name, about in queues.items():
        node = _Node(*_quota(about.spec, fr))
        node.usage = usage.get(name, {}).get(fr, 0)
        if about.spec.cohort_name:
            node.parent = cohort(about.spec.cohort_name)
            node.parent.children.append(node)
        if name == queue:
            mine = node
    if mine is None:
        return None
    root = mine
    while root.parent is not None:
        root = root.parent
    root.build()
    return mine
