"""Answers queries for counters, usage and activity of queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from admittance.events import reasons
from admittance.events.requests.queues import (
    FlavorUsage,
    PersonUsage,
    Queues,
    QueuesReply,
    QueueStatus,
    UserUsage,
)
from admittance.events.shapes import Refusal
from admittance.quota.cell import Cell, FlavorResource
from admittance.scheduling.cycle.refusals import workload_reason
from admittance.scheduling.fairsharing.shares import share_of
from admittance.scheduling.last_day import Sample
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.held.person_limits import Limit, PersonLimits
from admittance.scheduling.state.held.shared_quota import WithoutUsage
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import PROMISED

RUNS: Final = frozenset({"Admitted", "Evicting"})


def why_inactive(
    state: SchedulerState, workload: WorkloadInfo, queue: Queue | None
) -> Refusal | None:
    """Why no cycle considers the queue of the workload; None: cycles consider it. ``queue``: the
    ClusterQueue, whose reason says more than that of the LocalQueue."""
    activity = state.catalog.local_queue_activity(*workload.local_queue)
    if activity.active:
        return None
    of_queue = state.catalog.activity(queue.name) if queue is not None else None
    if activity.reason == reasons.CLUSTER_QUEUE_IS_INACTIVE and of_queue is not None:
        return Refusal(reason=of_queue.reason, message=of_queue.message)
    return Refusal(reason=workload_reason(activity.reason), message=activity.message)


def is_parked(workload: WorkloadInfo) -> bool:
    """Whether the workload is pending and parked, so that no cycle tries it again until something
    changes. A parent is parked if all of its pending variants are parked."""
    if workload.is_parent and workload.family is not None:
        # Stop at the first variant that is not parked, because this loop runs for every parent.
        waiting = False
        for variant in tuple(workload.family.variants):
            if variant.queue is not None:
                if not is_parked(variant):
                    return False
                waiting = True
        return waiting
    return workload.inadmissible is not None or (
        workload.cls is not None and workload.cls.parked is not None
    )


def parked_by_key(state: SchedulerState) -> dict[Key, bool]:
    """Returns the pending workloads that have a ClusterQueue, each with whether it is parked; of a
    family only the parent."""
    return {
        workload.key: is_parked(workload)
        for workload in state.workloads.values()
        if workload.queue is not None and not workload.is_variant
    }


def queues(state: SchedulerState, query: Queues, namespace: str) -> QueuesReply:
    """Returns counters and usage of one ClusterQueue or of all, and of the LocalQueues of the
    namespace."""
    names = [query.cluster_queue] if query.cluster_queue else list(state.catalog.cluster_queues)
    statuses = [
        _cluster_queue(state, state.queues[name], persons=not namespace)
        for name in names
        if name in state.queues and state.queues[name].node is not None
    ]
    locals_ = [
        _local_queue(state, key)
        for key, local in state.catalog.local_queues.items()
        if query.local_queues
        and (not namespace or key[0] == namespace)
        and (not query.cluster_queue or local.spec.cluster_queue == query.cluster_queue)
    ]
    return QueuesReply(cluster_queues=tuple(statuses), local_queues=tuple(locals_))


def samples(state: SchedulerState) -> Iterator[Sample]:
    """Yields what waits in each ClusterQueue, and what workloads hold of each resource."""
    for name in state.catalog.cluster_queues:
        queue = state.queues.get(name)
        if queue is None or queue.node is None:
            continue
        used: dict[str, int] = {}
        with WithoutUsage(promised_workloads((queue,))):
            for (_, resource), cell in queue.node.cells.items():
                used[resource] = used.get(resource, 0) + cell.usage
        yield Sample(name, queue.pending, used)


def _cluster_queue(state: SchedulerState, queue: Queue, *, persons: bool) -> QueueStatus:
    """Returns the status of the ClusterQueue. ``persons``: with what each person holds and has
    used, which users of one namespace do not see."""
    with WithoutUsage(promised_workloads((queue,))):
        status = status_of(state, queue)
    if not persons:
        return status
    if queue.limits is not None:
        held = tuple(_persons(queue.limits, queue.limits.written.own))
        status = replace(status, persons=held)
    if state.accounts is not None and status.by_user:
        used = [UserUsage(user=user, used=usage) for user, usage in state.accounts.users(queue)]
        status = replace(status, users=tuple(used))
    return status


def _persons(limits: PersonLimits, of: Sequence[Limit]) -> Iterator[PersonUsage]:
    """Yields what each person holds under the given limits."""
    for person in limits.persons(of):
        for resource, most in person.limit.most:
            yield PersonUsage(
                person=person.name,
                resource=resource,
                label=person.limit.label,
                held=person.held[resource],
                most=most,
            )


def status_of(state: SchedulerState, queue: Queue) -> QueueStatus:
    """Returns counters and usage of the ClusterQueue, which must exist. Changes nothing in the
    scheduler's state, and copies dicts before it iterates over them, because metrics call this
    function in another thread."""
    node = queue.node
    assert node is not None
    running, admitted = admitted_of(queue)
    return QueueStatus(
        name=queue.name,
        cohort=node.parent.name if node.parent is not None else "",
        domain=queue.domain.name if queue.domain is not None else "",
        active=queue.activity.active,
        reason=queue.activity.reason,
        message=queue.activity.message,
        pending=queue.pending,
        parked=_parked(queue),
        reserving=reserving(queue),
        admitted=running,
        usage=tuple(
            FlavorUsage(
                flavor=fr[0],
                resource=fr[1],
                nominal=cell.nominal,
                reserved=cell.usage,
                admitted=admitted.get(fr, 0),
                # Usage above the nominal quota counts as borrowed only if the queue has a cohort.
                borrowed=max(0, cell.usage - cell.nominal) if node.parent is not None else 0,
            )
            for fr, cell in tuple(node.cells.items())
            if is_listed(cell)
        ),
        by_usage=queue.lanes is not None,
        by_user=queue.lanes is not None and bool(queue.lanes.users_of),
        weighted_share=share_of(node).shown if state.config.fair_sharing is not None else None,
    )


def _parked(queue: Queue) -> int:
    """Returns the number of parked workloads of the queue. A family counts as one workload."""
    if not queue.variants and not queue.parents:
        return sum(cls.live for cls in tuple(queue.parked_classes)) + len(queue.parked_workloads)
    regular = sum(cls.live for cls in tuple(queue.parked_classes) if not cls.is_of_variants)
    apart = sum(workload.family is None for workload in tuple(queue.parked_workloads))
    return regular + apart + sum(is_parked(entry[4]) for entry in tuple(queue.parents))


def admitted_of(queue: Queue) -> tuple[int, dict[FlavorResource, int]]:
    """Returns how many workloads of the queue are admitted, and the quota that they hold."""
    amounts: dict[FlavorResource, int] = {}
    running = 0
    for workload in tuple(queue.holding):
        if workload.charge is not None and workload.state in RUNS:
            running += 1  # A family counts once, with its admitted variant.
            for cell, amount in workload.charge.cells:
                amounts[cell.fr] = amounts.get(cell.fr, 0) + amount
    return running, amounts


def reserving(queue: Queue) -> int:
    """Returns the number of workloads that hold quota of the queue. A family counts as one workload
    from its admission on, because its parent is pending before."""
    if queue.rules is None:
        return len(queue.holding)
    return sum(stands_for_itself(workload) for workload in tuple(queue.holding))


def stands_for_itself(workload: WorkloadInfo) -> bool:
    """Whether the workload is a regular workload, or the admitted variant of its family."""
    return workload.family is None or workload.state in RUNS


def is_listed(cell: Cell) -> bool:
    """Whether replies list the cell: a manifest names the cell's flavor and resource, or quota of
    the cell is still used. Quota that was removed from a manifest is listed until its usage ends.
    """
    return cell.is_listed or cell.usage != 0


def _local_queue(state: SchedulerState, key: Key) -> QueueStatus:
    queue = state.queues.get(state.catalog.local_queues[key].spec.cluster_queue)
    with WithoutUsage(promised_workloads((queue,)) if queue is not None else ()):
        return local_status_of(state, key)


def local_status_of(state: SchedulerState, key: Key) -> QueueStatus:
    """Returns counters and usage of the LocalQueue, which must exist. Like `status_of` for a
    ClusterQueue, may be called in another thread."""
    local = state.catalog.local_queues[key]
    activity = state.catalog.local_queue_activity(*key)
    pending = parked = reserving = admitted = 0
    queue = state.queues.get(local.spec.cluster_queue)
    limits = queue.limits if queue is not None else None
    of = limits.written.local.get(key, ()) if limits is not None else ()
    cells = queue.node.cells if queue is not None and queue.node is not None else {}
    usage: dict[FlavorResource, list[int]] = {
        fr: [0, 0] for fr, cell in tuple(cells.items()) if cell.is_listed
    }
    for workload in tuple(state.by_local_queue.get(key, ())):
        charge = workload.charge
        if charge is None:
            if workload.queue is not None and not workload.is_variant:
                pending += 1
                parked += is_parked(workload)
            continue
        runs = workload.state in RUNS
        reserving += stands_for_itself(workload)
        admitted += runs
        for cell, amount in counted_amounts(workload):
            usage.setdefault(cell.fr, [0, 0])[0] += amount
        for cell, amount in charge.cells if runs else ():
            usage.setdefault(cell.fr, [0, 0])[1] += amount
    return QueueStatus(
        name=key[1],
        namespace=key[0],
        cluster_queue=local.spec.cluster_queue,
        domain=state.catalog.domain_of(local.spec.cluster_queue) or "",
        active=activity.active,
        reason=activity.reason,
        message=activity.message,
        pending=pending,
        parked=parked,
        reserving=reserving,
        admitted=admitted,
        usage=tuple(
            FlavorUsage(flavor=fr[0], resource=fr[1], reserved=row[0], admitted=row[1])
            for fr, row in usage.items()
        ),
        used=state.accounts.status(key) if state.accounts is not None else None,
        persons=tuple(_persons(limits, of)) if limits is not None and of else (),
    )


def is_promised(workload: WorkloadInfo) -> bool:
    """Whether quota is held for the workload until the job of its sibling has stopped."""
    return workload.state == PROMISED or workload.is_migrating_to


def counted_amounts(workload: WorkloadInfo) -> Iterable[tuple[Cell, int]]:
    """Returns the quota that replies show for a workload. The quota of a family is shown only with
    the one variant that counts for the family."""
    overlap = workload.family_quota
    if overlap is None:
        return workload.charge.cells if workload.charge is not None else ()
    return overlap.amounts() if overlap.counts is workload else ()


def promised_workloads(queues: Iterable[Queue]) -> list[WorkloadInfo]:
    """Returns the workloads of the given queues for which quota is only held until the job of a
    sibling has stopped. Looks at every workload with quota in queues with families."""
    return [
        workload
        for queue in queues
        if queue.rules is not None
        for workload in queue.holding
        if is_promised(workload)
    ]
