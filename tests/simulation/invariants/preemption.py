"""Invariants of preemption, of quota reductions and of ``blockAdmission``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from admittance.workload.conditions import Type, find, is_true
from admittance.workload.stored import StoredWorkload, head
from simulation.invariants.reference_quota import Usage
from simulation.transcript import Broken

if TYPE_CHECKING:
    from simulation.invariants.seen import Seen


OFTEN: Final = 40
"""A workload that is preempted so often in one run means a preemption loop."""


def check(
    before: StoredWorkload | None,
    after: StoredWorkload,
    queues: Mapping[str, Any],
    cohorts: Mapping[str, Any],
    spread: timedelta = timedelta(0),
) -> None:
    """Checks a write of a workload. The queues are those that the decision was judged by, because
    no manifest is written during a batch. ``spread``: by how much two clocks may differ."""
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
    if before is not None and is_true(before, Type.ADMITTED) and not is_true(before, Type.EVICTED):
        assert by.at is not None
        least = victim.spec.preemption.min_run_seconds or 0
        left = started(before) + timedelta(seconds=least) - by.at
        if left > spread and victim.spec.preemption.min_run_policy == "Required":
            raise Broken(f"{name} was preempted {left} before it had run for {least} s")
    stats = after.status.scheduling_stats
    for row in stats.evictions if stats is not None else ():
        if row.reason == "Preempted" and row.count > OFTEN:
            raise Broken(f"{name} was preempted {row.count} times")


def started(workload: StoredWorkload) -> datetime:
    """When the run of an admitted workload began, at the latest: when its pods were ready, unless
    they have failed since, or its admission."""
    ready = find(workload, Type.PODS_READY)
    if ready is not None and ready.status == "True" and ready.reason == "Started":
        begun = ready.last_transition_time
    else:
        admitted = find(workload, Type.ADMITTED)
        assert admitted is not None
        begun = admitted.last_transition_time
    assert begun is not None
    return begun


def root(queue: Any, cohorts: Mapping[str, Any]) -> str | None:
    """The cohort at the top of the queue's tree; None: it is alone."""
    name: str | None = queue.spec.cohort_name or None
    for _ in range(len(cohorts) + 1):
        about = cohorts.get(name) if name else None
        if about is None or not about.spec.parent_name:
            return name
        name = about.spec.parent_name
    return name


REDUCTIONS: Final = frozenset({"QuotaChanged", "FlavorsChanged"})


def check_reduction(
    before: StoredWorkload | None, held: Usage, after: StoredWorkload, queues: Mapping[str, Any]
) -> None:
    """Checks a write of a workload that held quota. The queues are those that the decision was
    judged by, because no manifest is written during a batch."""
    if before is None or before.status.admission is None:
        return
    if not _is_allowed(after, held):
        return  # A variant that may have other flavors now (4.9).
    name = f"{after.metadata.namespace}/{after.metadata.name}"
    evicted, reserved = find(after, Type.EVICTED), find(after, Type.QUOTA_RESERVED)
    reason = ""
    if is_true(before, Type.ADMITTED) and not is_true(before, Type.EVICTED):
        if evicted is not None and evicted.status == "True":
            reason = evicted.reason
        spec = queues[before.status.admission.cluster_queue].spec if reason in REDUCTIONS else None
        if spec is not None and spec.on_quota_cut != "evict":
            raise Broken(f"{name} ran and was evicted for {reason}, and its queue keeps what runs")
    elif reserved is not None and reserved.status == "False":
        reason = reserved.reason
    if reason == "FlavorsChanged":
        queue = queues[before.status.admission.cluster_queue]
        offered = {
            (flavor.name, resource.name)
            for group in queue.spec.resource_groups
            for flavor in group.flavors
            for resource in flavor.resources
        }
        if set(held) <= offered:
            raise Broken(f"{name} lost its flavor, and it is on offer")


def _is_allowed(workload: StoredWorkload, held: Usage) -> bool:
    constraints = head(workload).admission_constraints
    allowed = constraints.allowed_resource_flavors if constraints is not None else None
    return allowed is None or {flavor for flavor, _ in held} <= set(allowed)


def starting(
    seen: Mapping[str, Seen], key: str, queues: Mapping[str, Any], cohorts: Mapping[str, Any]
) -> str:
    """A workload in the same tree that was admitted before this one got its quota, and has not had
    its pods ready since; "": there is none. Across trees decisions cross each other."""
    mine = seen[key].workload
    assert mine is not None
    tree = _tree_of(mine, queues, cohorts)
    for other, other_member in seen.items():
        workload = other_member.workload
        if other == key or workload is None or other_member.where != "admitted":
            continue
        ready = find(workload, Type.PODS_READY)
        if ready is not None and (ready.status == "True" or ready.reason == "WaitForRecovery"):
            continue
        if workload.status.log.fact >= mine.status.log.fact or is_true(workload, Type.EVICTED):
            continue
        if _tree_of(workload, queues, cohorts) == tree:
            return other
    return ""


def _tree_of(
    workload: StoredWorkload, queues: Mapping[str, Any], cohorts: Mapping[str, Any]
) -> str | None:
    admission = workload.status.admission
    queue = queues.get(admission.cluster_queue) if admission is not None else None
    if queue is None:
        return None
    return root(queue, cohorts) or f"queue {queue.metadata.name}"
