"""Decides whether a queue could ever admit a workload, before the workload is submitted."""

from __future__ import annotations

from typing import Final

import msgspec

from admittance.api.units import BadQuantity
from admittance.events.requests import FitReply
from admittance.scheduling.cycle.flavor_assigner import examine
from admittance.scheduling.cycle.refusals import obstacles_message
from admittance.scheduling.state.assignment import Obstacle
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.requests import Needs, RequestShape
from admittance.scheduling.state.scheduler_state import SchedulerState

NO_QUEUE: Final = "NoSuchQueue"
NEVER: Final = frozenset({"ExceedsMaxQuota", "NoMatchingFlavor"})
"""Obstacles that free quota does not remove."""


class _Manifest(msgspec.Struct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


def fit(state: SchedulerState, namespace: str, manifest: bytes | msgspec.Raw) -> FitReply:
    """Whether the workload in the manifest could start in an empty cohort tree.

    The requests are counted as in a cycle, after exclusions and transformations, and each pod set
    is compared with `admittance.quota.cell.potential`. The comparison does not detect pod sets that
    each fit alone but not together. ``fits`` is true if the workload may fit.
    """
    try:
        needs = state.shapes.needs(msgspec.json.decode(manifest, type=_Manifest).spec)
    except (msgspec.MsgspecError, BadQuantity) as error:
        return FitReply(error=f"the workload cannot be read: {error}")
    found = _fit(state, namespace, needs)
    return msgspec.structs.replace(found, local_queue=needs.queue, seen=state.seen)


def _fit(state: SchedulerState, namespace: str, needs: Needs) -> FitReply:
    local = state.catalog.local_queues.get((namespace, needs.queue))
    if local is None:
        message = f"LocalQueue {namespace}/{needs.queue} does not exist"
        return FitReply(fits=False, reason=NO_QUEUE, message=message)
    name = local.spec.cluster_queue
    queue = state.queues.get(name)
    if queue is None or queue.node is None or queue.plan is None:
        message = f"ClusterQueue {name} of LocalQueue {namespace}/{needs.queue} does not exist"
        return FitReply(fits=False, reason=NO_QUEUE, message=message, cluster_queue=name)
    lenient = state.config.quota_check_strategy == "IgnoreUndeclared"
    obstacles = _obstacles(queue.plan, _smallest(needs.shape), ignore_undeclared=lenient)
    if not obstacles:
        return FitReply(cluster_queue=name)
    reason = obstacles[0].reason
    return FitReply(
        fits=False, reason=reason, message=obstacles_message(obstacles), cluster_queue=name
    )


def _smallest(shape: RequestShape) -> RequestShape:
    """The shape with the fewest pods that the workload may start with."""
    if not shape.is_flexible:
        return shape
    return shape.scaled(
        [ps.count if ps.min_count is None else min(ps.min_count, ps.count) for ps in shape.pod_sets]
    )


def _obstacles(plan: FlavorPlan, shape: RequestShape, *, ignore_undeclared: bool) -> list[Obstacle]:
    """The obstacles of the first pod set that no flavor could hold; empty: all pod sets fit."""
    for ps, totals in zip(shape.pod_sets, shape.totals, strict=True):
        for resource, amount in totals:
            if amount and resource not in plan.groups and not ignore_undeclared:
                message = f"resource {resource} unavailable in ClusterQueue"
                return [Obstacle(ps.name, "", resource, amount, 0, "NoMatchingFlavor", message)]
    by_group: dict[tuple[str, int], list[list[Obstacle]]] = {}
    for one in examine(plan, shape):
        group = plan.groups[one.amounts[0][0]].at
        never = [obstacle for obstacle in one.obstacles if obstacle.reason in NEVER]
        by_group.setdefault((one.pod_set, group), []).append(never)
    for options in by_group.values():
        if all(options):
            return [obstacle for option in options for obstacle in option]
    return []
