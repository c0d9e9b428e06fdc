"""Warnings about a change, besides the workloads that start, wait, or are evicted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from admittance.api.units import render
from admittance.quota.tree import Node
from admittance.scheduling.preemption.quota_reduction import overloaded
from admittance.whatif.copy import Copy


class Health(NamedTuple):
    """Problems of queues: object to sentence. ``queues``: all ClusterQueues."""

    queues: frozenset[str]
    inactive: dict[str, str]
    astray: dict[tuple[str, str], str]
    over: dict[tuple[str, str, str], str]


def health(copy: Copy) -> Health:
    """The problems in the copy as it is now."""
    catalog = copy.core.catalog
    inactive = {}
    for name in catalog.cluster_queues:
        activity = catalog.activity(name)
        if not activity.active:
            inactive[name] = activity.message
        elif catalog.in_cycle(name):
            inactive[name] = "Can't admit new workloads: its cohorts form a cycle."
    astray = {}
    for key in catalog.local_queues:
        found = catalog.local_queue_activity(*key)
        if found.reason == "ClusterQueueDoesNotExist":
            astray[key] = found.message
    return Health(frozenset(catalog.cluster_queues), inactive, astray, dict(_over(copy)))


def _over(copy: Copy) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Nodes that use more than their limit, as the scheduler sees it."""
    roots: dict[int, Node] = {}
    for node in copy.core.catalog.tree.queues.values():
        root = node.root()
        roots[id(root)] = root
    for root in roots.values():
        for one in overloaded(root):
            flavor, resource = one.fr
            owner = f"{'cohort' if one.node.is_cohort else 'ClusterQueue'} {one.node.name}"
            used, limit = render(resource, one.usage), render(resource, one.limit)
            yield (
                (owner, flavor, resource),
                f"{owner} would use {used} of {resource} in flavor {flavor}, more than its "
                f"{limit}: what runs goes on, and nothing new starts there until enough has ended",
            )


def cautions(copy: Copy, before: Health) -> Iterator[str]:
    """Problems that exist with the change and not without it."""
    now = health(copy)
    for name, message in now.inactive.items():
        if name not in before.inactive:
            what = "becomes" if name in before.queues else "would be"
            yield f"ClusterQueue {name} {what} inactive: {message}"
    for key, message in now.astray.items():
        if key not in before.astray:
            yield f"LocalQueue {'/'.join(key)}: {message}"
    for where, message in now.over.items():
        if where not in before.over:
            yield message
    if copy.cut_off:
        yield "the system would not come to rest: what follows is where it was cut off"
    if copy.unreadable:
        some = ", ".join(copy.unreadable[:3])
        yield f"{len(copy.unreadable)} keys of the bucket cannot be read, such as {some}"
