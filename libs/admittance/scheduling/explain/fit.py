"""Decides whether a queue could ever admit a workload that is not submitted yet, and which of its
requests need no quota."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final

import msgspec

from admittance.api.fields.units import BadQuantity
from admittance.events import reasons
from admittance.events.requests.whatif import FitReply
from admittance.scheduling.cycle.flavor_assigner import FlavorOffer, examine
from admittance.scheduling.cycle.refusals import obstacles_message
from admittance.scheduling.explain.machine_fit import Choice, machine_misfit
from admittance.scheduling.state.assignment import Obstacle
from admittance.scheduling.state.flavor_plan import FlavorPlan, Option
from admittance.scheduling.state.requests import Needs, RequestShape
from admittance.scheduling.state.scheduler_state import SchedulerState

NEVER_FITS: Final = frozenset({reasons.EXCEEDS_MAX_QUOTA, reasons.NO_MATCHING_FLAVOR})
"""The reasons of obstacles that remain even if all quota is free."""


class _Labels(msgspec.Struct, frozen=True):
    labels: dict[str, str] = {}


class _Manifest(msgspec.Struct, frozen=True):
    metadata: _Labels = _Labels()
    spec: msgspec.Raw = msgspec.Raw(b"{}")


def fit(state: SchedulerState, namespace: str, manifest: bytes | msgspec.Raw) -> FitReply:
    """Returns whether the workload in the manifest, which is not submitted, could start if no other
    workload ran.

    The requests are counted as in a cycle, after exclusions and transformations, and each pod set
    is compared with `admittance.quota.cell.potential`. ``fits`` in the reply may be true although
    the workload can never start: pod sets that each fit alone but not together are not detected."""
    try:
        read = msgspec.json.decode(manifest, type=_Manifest)
        spec = read.spec
        needs = state.shapes.needs(spec)
        reply = _fit(state, namespace, needs, spec, read.metadata.labels)
        uncharged = state.shapes.uncharged(spec, _covered(state, reply.cluster_queue))
    except (msgspec.MsgspecError, BadQuantity) as error:
        return FitReply(error=f"the workload cannot be read: {error}")
    return msgspec.structs.replace(
        reply,
        local_queue=needs.queue,
        uncharged=uncharged,
        inactive=_inactive(state, reply.cluster_queue),
        seen=state.seen,
    )


CLOSED: Final = frozenset({reasons.NOT_FOUND, reasons.STOPPED, reasons.TERMINATING})
"""The reasons of queues that an admin closed, or that do not exist."""


def _inactive(state: SchedulerState, queue: str) -> str:
    """Why the ClusterQueue admits no workloads now, unless it is closed."""
    activity = state.catalog.activity(queue)
    if activity.active:
        return "its cohorts form a cycle" if state.catalog.in_cycle(queue) else ""
    return "" if activity.reason in CLOSED else activity.message.rstrip(".")


def _covered(state: SchedulerState, queue: str) -> Container[str] | None:
    """Returns the only resources that need quota in the ClusterQueue; None: all need quota."""
    behind = state.queues.get(queue)
    if state.config.quota_check_strategy != "IgnoreUndeclared":
        return None
    return behind.plan.groups if behind is not None and behind.plan is not None else None


def _fit(
    state: SchedulerState,
    namespace: str,
    needs: Needs,
    spec: msgspec.Raw,
    labels: Mapping[str, str],
) -> FitReply:
    local = state.catalog.local_queues.get((namespace, needs.queue))
    if local is None:
        message = f"LocalQueue {namespace}/{needs.queue} does not exist"
        return FitReply(fits=False, reason=reasons.NO_SUCH_QUEUE, message=message)
    name = local.spec.cluster_queue
    queue = state.queues.get(name)
    if queue is None or queue.node is None or queue.plan is None:
        message = f"ClusterQueue {name} of LocalQueue {namespace}/{needs.queue} does not exist"
        return FitReply(
            fits=False, reason=reasons.NO_SUCH_QUEUE, message=message, cluster_queue=name
        )
    lenient = state.config.quota_check_strategy == "IgnoreUndeclared"
    shape = needs.shape.fewest()
    obstacles, choices = _usable(queue.plan, shape, ignore_undeclared=lenient)
    excess = None
    if queue.limits is not None and not obstacles:
        excess = queue.limits.never((namespace, needs.queue), labels, needs.shape)
    if excess is not None:
        return FitReply(
            fits=False,
            reason=reasons.WAITING_FOR_USER_LIMIT,
            message=str(excess),
            cluster_queue=name,
        )
    if not obstacles:
        counts = {ps.name: ps.count for ps in shape.pod_sets}
        misfit = machine_misfit(state.catalog, state.machines, name, spec, counts, choices)
        return FitReply(cluster_queue=name, machines=misfit)
    reason = obstacles[0].reason
    return FitReply(
        fits=False, reason=reason, message=obstacles_message(obstacles), cluster_queue=name
    )


def _usable(
    plan: FlavorPlan, shape: RequestShape, *, ignore_undeclared: bool
) -> tuple[list[Obstacle], list[Choice]]:
    """Returns the obstacles of the first pod set that fits into no flavor even if all quota is
    free, or without obstacles the flavors into which each pod set fits."""
    for ps, totals in zip(shape.pod_sets, shape.totals, strict=True):
        for resource, amount in totals:
            if amount and resource not in plan.groups and not ignore_undeclared:
                message = f"resource {resource} unavailable in ClusterQueue"
                return [Obstacle(ps.name, "", resource, reasons.NO_MATCHING_FLAVOR, message)], []
    by_group: dict[tuple[str, int], list[FlavorOffer]] = {}
    for offer in examine(plan, shape):
        group = plan.groups[offer.amounts[0][0]].at
        by_group.setdefault((offer.pod_set, group), []).append(offer)
    choices: list[Choice] = []
    usable: dict[str, list[list[Option]]] = {}
    for (pod_set, _), offers in by_group.items():
        options = [offer.option for offer in offers if not _never(offer)]
        if not options:
            return [obstacle for offer in offers for obstacle in _never(offer)], []
        usable.setdefault(pod_set, []).append(options)
        choices.append(Choice(pod_set, [resource for resource, _ in offers[0].amounts], options))
    for pod_set, of_groups in usable.items():
        if not _have_common_labels(of_groups, (), [COMBINATIONS_MAX]):
            message = "no flavors for all its resources have the same values of their node labels"
            return [Obstacle(pod_set, "", "", reasons.NO_MATCHING_FLAVOR, message)], []
    return [], choices


def _never(offer: FlavorOffer) -> list[Obstacle]:
    return [obstacle for obstacle in offer.obstacles if obstacle.reason in NEVER_FITS]


COMBINATIONS_MAX: Final = 1_000
"""How many combinations of flavors are looked at; with more, a workload counts as fitting."""


def _have_common_labels(
    choices: Sequence[Sequence[Option]], chosen: tuple[str, ...], left: list[int]
) -> bool:
    """Returns whether one flavor of each group can be used together with the flavors ``chosen``:
    no two of them have different values of a node label. ``left``: how many combinations may still
    be looked at."""
    if not choices:
        return True
    for option in choices[0]:
        left[0] -= 1
        if left[0] <= 0:
            return True
        if option.rivals and any(rival in option.rivals for rival in chosen):
            continue
        if _have_common_labels(choices[1:], (*chosen, option.flavor), left):
            return True
    return False
