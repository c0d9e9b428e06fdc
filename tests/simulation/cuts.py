"""Invariants of quota reductions: which workloads are evicted, and under which rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from admittance.workload.conditions import Type, find, is_true
from admittance.workload.stored import StoredWorkload, head
from simulation.broken import Broken
from simulation.naive import Usage

REASONS: Final = frozenset({"QuotaChanged", "FlavorsChanged"})


def check(
    before: StoredWorkload | None, held: Usage, after: StoredWorkload, queues: Mapping[str, Any]
) -> None:
    """A workload that held quota was written. The queues are those that the decision was judged
    by: manifests are not written while a batch is."""
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
        spec = queues[before.status.admission.cluster_queue].spec if reason in REASONS else None
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
