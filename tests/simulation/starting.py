"""``blockAdmission``: within a tree nobody gets quota afresh while somebody's pods come up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from admittance.workload.conditions import Type, find, is_true
from admittance.workload.stored import StoredWorkload
from simulation.preemption import root

if TYPE_CHECKING:
    from simulation.seen import Seen


def starting(
    seen: Mapping[str, Seen], key: str, queues: Mapping[str, Any], cohorts: Mapping[str, Any]
) -> str:
    """Who in the tree of the workload was admitted before it got its quota, and has not had its
    pods ready since; "" is nobody. Across trees decisions cross each other."""
    mine = seen[key].workload
    assert mine is not None
    tree = _tree(mine, queues, cohorts)
    for other, one in seen.items():
        workload = one.workload
        if other == key or workload is None or one.where != "admitted":
            continue
        ready = find(workload, Type.PODS_READY)
        if ready is not None and (ready.status == "True" or ready.reason == "WaitForRecovery"):
            continue
        if workload.status.log.fact >= mine.status.log.fact or is_true(workload, Type.EVICTED):
            continue
        if _tree(workload, queues, cohorts) == tree:
            return other
    return ""


def _tree(
    workload: StoredWorkload, queues: Mapping[str, Any], cohorts: Mapping[str, Any]
) -> str | None:
    admission = workload.status.admission
    queue = queues.get(admission.cluster_queue) if admission is not None else None
    if queue is None:
        return None
    return root(queue, cohorts) or f"queue {queue.metadata.name}"


__all__ = ["starting"]
