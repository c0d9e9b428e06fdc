"""Quota once more, plainly: everything is computed anew from the objects each time.

Manifests and what is used become a tree of the reference scheduler (`twin.tree`), which shares no
code with `admittance.quota.tree`. Source: docs/spec/scheduling.md#2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admittance.api.fields.units import amount
from admittance.events.shapes import Admission

from twin.objects import Place, Quota
from twin.tree import Node

FR = tuple[str, str]
Usage = dict[FR, int]


def usage_of(admission: Admission) -> Usage:
    """The quota of an admission, by flavor and resource."""
    usage: Usage = {}
    for row in admission.pod_set_assignments:
        for resource, flavor in row.flavors.items():
            much = amount(resource, row.resource_usage.get(resource, "0"))
            usage[flavor, resource] = usage.get((flavor, resource), 0) + much
    return usage


def _quota(spec: Any, fr: FR) -> Quota:
    for group in spec.resource_groups:
        for flavor in group.flavors:
            for resource in flavor.resources:
                if (flavor.name, resource.name) == fr:
                    limits = (resource.borrowing_limit, resource.lending_limit)
                    borrow, lend = (
                        None if limit is None else amount(resource.name, limit) for limit in limits
                    )
                    return Quota(amount(resource.name, resource.nominal_quota), borrow, lend)
    return Quota()


def available(
    queue: str,
    fr: FR,
    queues: Mapping[str, Any],
    cohorts: Mapping[str, Any],
    usage: Mapping[str, Usage],
) -> int:
    """The available quota of that queue; negative: it uses too much. Cohorts without a cycle."""
    mine = _built(queue, fr, queues, cohorts, usage)
    return int(mine.available(fr)) if mine is not None else 0


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
        limit = node.subtree(fr)
        if node.parent is not None:
            borrow = node.quota(fr).borrow
            limit = node.usage(fr) if borrow is None else limit + borrow
        if node.usage(fr) > limit:
            return True
        if node.usage(fr) <= node.guaranteed(fr):
            return False
        node = node.parent
    return False


def _built(
    queue: str,
    fr: FR,
    queues: Mapping[str, Any],
    cohorts: Mapping[str, Any],
    usage: Mapping[str, Usage],
) -> Node | None:
    """The node of the queue in its tree; None: there is no such queue."""
    nodes: dict[str, Node] = {}

    def cohort(name: str) -> Node:
        node = nodes.get(name)
        if node is None:
            about = cohorts.get(name)
            node = nodes[name] = _node(name, about, fr, is_queue=False)
            if about is not None and about.spec.parent_name:
                _join(node, cohort(about.spec.parent_name))
        return node

    # All of them, not only those that a queue names: a cohort lends to its siblings, too.
    for name in cohorts:
        cohort(name)
    mine: Node | None = None
    for name, about in queues.items():
        node = _node(name, about, fr, is_queue=True)
        node.used[fr] = usage.get(name, {}).get(fr, 0)
        if about.spec.cohort_name:
            _join(node, cohort(about.spec.cohort_name))
        if name == queue:
            mine = node
    return mine


def _node(name: str, about: Any, fr: FR, *, is_queue: bool) -> Node:
    quota = _quota(about.spec, fr) if about is not None else Quota()
    return Node(Place(name, is_queue, quotas={fr: quota}))


def _join(node: Node, parent: Node) -> None:
    node.parent = parent
    parent.children.append(node)
