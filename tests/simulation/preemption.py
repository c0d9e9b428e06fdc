"""What must hold of every preemption: a policy allows it, in one tree, and it ends some time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from admittance.workload.stored import StoredWorkload
from simulation.broken import Broken

OFTEN: Final = 40
"""No workload of a run is preempted so often unless two of them take turns for ever."""


def check(
    before: StoredWorkload | None,
    after: StoredWorkload,
    queues: Mapping[str, Any],
    cohorts: Mapping[str, Any],
) -> None:
    """A workload was written. The queues are those that the decision was judged by: manifests are
    not written while a batch is."""
    by = after.status.preempted_by
    if by is None or (before is not None and before.status.preempted_by == by):
        return
    name = f"{after.metadata.namespace}/{after.metadata.name}"
    grounds = by.grounds
    if grounds is None:
        raise Broken(f"{name} was preempted without grounds")
    preemptor, victim = queues[grounds.by_cluster_queue], queues[grounds.cluster_queue]
    policy = preemptor.spec.preemption
    if preemptor is victim:
        rule = policy.within_cluster_queue
    elif root(preemptor, cohorts) == root(victim, cohorts) is not None:
        rule = policy.reclaim_within_cohort
    else:
        raise Broken(f"{name} was preempted by {by.by} of another tree")
    mine, theirs = grounds.by_priority, grounds.priority
    allowed = {
        "LowerPriority": theirs < mine,
        "LowerOrNewerEqualPriority": theirs <= mine,
        "Any": True,
    }
    if not allowed.get(rule, False):
        raise Broken(f"{name} at {theirs} was preempted by {by.by} at {mine}, the policy is {rule}")
    stats = after.status.scheduling_stats
    for row in stats.evictions if stats is not None else ():
        if row.reason == "Preempted" and row.count > OFTEN:
            raise Broken(f"{name} was preempted {row.count} times")


def root(queue: Any, cohorts: Mapping[str, Any]) -> str | None:
    """The cohort at the top of the queue's tree; None: it is alone."""
    name: str | None = queue.spec.cohort_name or None
    for _ in range(len(cohorts) + 1):
        about = cohorts.get(name) if name else None
        if about is None or not about.spec.parent_name:
            return name
        name = about.spec.parent_name
    return name
