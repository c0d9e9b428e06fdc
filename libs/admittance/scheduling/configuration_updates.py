"""Applies changes of the configuration (queues, cohorts, flavors, checks) to the scheduler's state.

Source: `docs/spec/scheduling.md#1.3, #3.5, #3.7`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from admittance.api.queues import EASY, USAGE_BASED, ClusterQueue
from admittance.family import rules_of
from admittance.quota.catalog import domain_of_node
from admittance.scheduling import families, workload_updates
from admittance.scheduling.cycle import recheck
from admittance.scheduling.state.assignment import charges_of
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.flavor_plan import flavor_plan_of
from admittance.scheduling.state.held import charging
from admittance.scheduling.state.held.person_limits import (
    PersonLimits,
    local_limits,
    written_limits,
)
from admittance.scheduling.state.lanes import Lanes
from admittance.scheduling.state.queue import remove_from_queue, set_lanes, set_limits
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain, Queue, WorkloadInfo


def apply_object(
    state: SchedulerState,
    kind: str,
    namespace: str,
    name: str,
    obj: Any,
    revision: int,
    *,
    now: datetime,
) -> list[str]:
    """Applies an object of the configuration to the scheduler's state; None: the object was
    deleted. Returns the names of the domains that the object touches."""
    if kind == "Runner":
        state.machines.set_runner(name, obj)
    old = state.catalog.cluster_queues.get(name) if kind == "ClusterQueue" else None
    if kind in ("ClusterQueue", "Cohort"):
        charging.unshare_all_quota(state)
    # The names are sorted: the order of the domains' next cycles must not depend on hashes.
    touched = sorted(state.catalog.apply(kind, namespace, name, obj, revision))
    affected = sorted(state.catalog.affected)
    # The workload-controller refuses decisions that were made from an older configuration, so such
    # decisions in flight are undone.
    for domain_name in touched:
        domain = state.domains.get(domain_name)
        if domain is not None:
            state.bump_version(domain)
            for workload in list(domain.in_flight):
                if workload.assumption is not None and workload.assumption.seen < revision:
                    workload_updates.undo(state, workload, domain, now)
    if not state.config.as_kueue and state.min_runs.apply(kind, name, obj):
        _min_runs_changed(state, kind)
    if kind == "ClusterQueue":
        _queue_changed(state, state.queue(name), now)
    for queue_name in affected:
        _refresh(state, state.queue(queue_name), spec=queue_name == name)
    if kind in ("ClusterQueue", "Cohort"):
        _place(state, touched, kind, name, quotas=not _same_quotas(old, obj))
        for domain_name in touched:
            state.schedule_quota_check(state.domains.get(domain_name))
        charging.share_all_quota(state)
    for queue_name in affected:
        changed = state.queue(queue_name)
        recheck.note_all_rechecks(state, changed)
        if _set_rules(state, changed):
            _families_changed(state, changed, now)
    match kind:
        case "ClusterQueue":
            _set_limits(state, state.queue(name))
        case "LocalQueue":
            _set_local_limits(state, (namespace, name))
            _local_changed(state, (namespace, name), now)
        case "Namespace":
            for key in state.catalog.locals_in(name):
                local = state.catalog.local_queues[key]
                queue = state.queues.get(local.spec.cluster_queue)
                if queue is not None and queue.parked_workloads:
                    state.flush(queue.domain)
        case "Cohort" if obj is not None:
            for domain_name in touched:
                state.flush(state.domains.get(domain_name))
    return touched


def _min_runs_changed(state: SchedulerState, kind: str) -> None:
    """Lets parked workloads compete again after the minRunSeconds of a WorkloadPriorityClass
    changed, which may protect workloads of every domain. An edit of a ClusterQueue flushes its
    domain in any case."""
    if kind == "WorkloadPriorityClass":
        for domain in state.domains.values():
            state.bump_version(domain)
            state.flush(domain)


def _queue_changed(state: SchedulerState, queue: Queue, now: datetime) -> None:
    """Updates the scheduler's `Queue` after its ClusterQueue was created, changed or deleted."""
    node = state.catalog.tree.queues.get(queue.name)
    if node is queue.node:
        return
    queue.node = node
    for workload in list(queue.holding):
        held = workload.charge
        assert held is not None and workload.shape is not None
        # The former node of the ClusterQueue was removed from the tree, together with its usage.
        # Quota that workloads still hold is charged again.
        cells = (
            charges_of(node, held.admission, workload.shape, workload.reclaimable)
            if node is not None
            else []
        )
        for cell, amount in cells:
            cell.charge(amount)
        if workload.family_quota is not None:
            workload.family_quota.move(workload, held.cells, cells)
        workload.charge = held._replace(cells=cells)
    if node is None:
        for workload in list(queue.waiting()):
            remove_from_queue(queue, workload)
        queue.plan = None
        return
    for key in state.catalog.locals_of(queue.name):
        for workload in state.by_local_queue.get(key, ()):
            if workload.charge is None and workload.queue is None and workload.competes:
                state.admit_to_queue(workload, now)


def _refresh(state: SchedulerState, queue: Queue, *, spec: bool) -> None:
    """Updates whether the queue admits workloads, and which flavors it has."""
    was_active = queue.activity.active
    queue.activity = state.catalog.activity(queue.name)
    state.catalog.tree.set_active(queue.name, active=queue.activity.active)
    if queue.node is not None:
        queue.plan = flavor_plan_of(state.catalog, queue.name, queue.node, state.config)
        spec_now = state.catalog.cluster_queues[queue.name].spec
        queue.strict = spec_now.queueing_strategy == "StrictFIFO"
    _set_backfill(state, queue)
    _set_mode(state, queue)
    state.bump_version(queue.domain)
    if queue.domain is not None:
        queue.domain.update_queue(queue)
        if queue.node is not None and (spec or (queue.activity.active and not was_active)):
            state.flush(queue.domain)
        state.schedule_cycle(queue.domain)


def _set_backfill(state: SchedulerState, queue: Queue) -> None:
    """Updates whether heads of the queue may get a promise of a start."""
    queue.backfill = (
        queue.node is not None
        and not queue.strict
        and not state.config.as_kueue
        and state.catalog.cluster_queues[queue.name].spec.backfill == EASY
    )
    if queue.backfill:
        state.backfill_queues[queue] = None
    else:
        state.backfill_queues.pop(queue, None)


def _set_limits(state: SchedulerState, queue: Queue) -> None:
    """Updates how much quota of the queue one person may hold."""
    written = None
    if queue.node is not None and not state.config.as_kueue:
        written = written_limits(state.catalog, queue.name)
    if written == (queue.limits.written if queue.limits is not None else None):
        return
    limits = None
    if written is not None:
        limits = PersonLimits(written, partial=state.config.partial_admission)
    set_limits(queue, limits, state.now)
    if queue.limits is not None:
        state.limited_queues[queue] = None
    else:
        state.limited_queues.pop(queue, None)
    state.bump_version(queue.domain)
    state.queue_changed(queue)
    state.flush(queue.domain)


def _set_local_limits(state: SchedulerState, key: Key) -> None:
    """Updates the limits of the ClusterQueue of a LocalQueue, and of the one that it had before, if
    those of the LocalQueue changed."""
    local = state.catalog.local_queues.get(key)
    named = state.queues.get(local.spec.cluster_queue) if local is not None else None
    queues = [queue for queue in state.limited_queues if queue is not named]
    for queue in [*queues, *([named] if named is not None else ())]:
        before = queue.limits.written.local.get(key, ()) if queue.limits is not None else ()
        if before != (local_limits(state.catalog, key) if queue is named else ()):
            _set_limits(state, queue)


def _set_mode(state: SchedulerState, queue: Queue) -> None:
    """Updates whether the usage of LocalQueues, or of users, orders the workloads of the queue."""
    if state.accounts is None:
        return
    scope = None
    if queue.node is not None:
        scope = state.catalog.cluster_queues[queue.name].spec.admission_scope
    counts = scope is not None and scope.admission_mode == USAGE_BASED
    users_of = queue.name if scope is not None and scope.usage_of == "User" else ""
    before = queue.lanes
    if counts is (before is not None) and (before is None or before.users_of == users_of):
        return
    lanes: Lanes[WorkloadInfo] | None = None
    if counts:
        lanes = Lanes(preemptor_first=not state.config.as_kueue, users_of=users_of)
    set_lanes(queue, lanes, state.now)
    for key in state.catalog.locals_of(queue.name):
        state.accounts.sync(key, state.now)
    state.accounts.sync_users(queue, before)


def _set_rules(state: SchedulerState, queue: Queue) -> bool:
    """Updates the queue's rules for families. Returns whether the rules changed."""
    before, queue.rules = queue.rules, None
    if queue.node is not None and state.config.concurrent_admission:
        queue.rules = rules_of(state.catalog.cluster_queues[queue.name].spec)
    queue.tags = {tag.name: tag for tag in queue.rules.tags} if queue.rules is not None else {}
    return queue.rules != before


def _families_changed(state: SchedulerState, queue: Queue, now: datetime) -> None:
    """Updates the families of a queue after the queue's rules for families changed."""
    by_uid = {
        workload.family.uid: workload.family
        for key in state.catalog.locals_of(queue.name)
        for workload in state.by_local_queue.get(key, ())
        if workload.family is not None
    }
    for family in by_uid.values():
        families.family_changed(state, family, now)


def _same_quotas(old: ClusterQueue | None, new: Any) -> bool:
    """Returns whether the edit of a ClusterQueue left its quotas and its cohort as they were, and
    therefore saved cursors of flavor scans are still valid."""
    if old is None or not isinstance(new, ClusterQueue):
        return False
    return (old.spec.resource_groups, old.spec.cohort_name) == (
        new.spec.resource_groups,
        new.spec.cohort_name,
    )


def _place(
    state: SchedulerState, touched: Sequence[str], kind: str, name: str, *, quotas: bool
) -> None:
    """Puts every queue of the touched cohort trees into the domain to which the queue belongs now.
    ``quotas``: quotas or the shape of a tree may have changed, so scans of flavors begin at the
    first flavor again.
    """
    queues: dict[Queue, None] = {}
    if kind == "ClusterQueue":
        queues[state.queue(name)] = None
    for domain_name in touched:
        domain = state.domains.get(domain_name)
        if domain is not None:
            domain.generation += quotas
            state.bump_version(domain)
            if kind == "Cohort":
                queues.update(domain.queues)
    for queue in queues:
        node = queue.node
        domain = None
        if node is not None:
            domain = domain_at(state, domain_of_node(node))
            queue.in_cycle = state.catalog.tree.in_cycle(node)
        before = queue.domain
        if before is domain:
            continue
        queue.domain = domain
        if before is not None:
            for workload in queue.holding:
                charging.remove_planner(state, before, workload)
            _part(state, before, queue, domain)
        if domain is not None:
            for workload in queue.holding:
                charging.add_planner(state, domain, workload)
                recheck.note_recheck(state, workload)
            domain.queues[queue] = None
            domain.generation += 1
            state.bump_version(domain)
            domain.update_queue(queue)
            state.flush(domain)
        # A saved cursor holds the sum of the generations of its queue and its domain, and this sum
        # must not stay the same by accident when the queue moves to another domain.
        queue.generation += 1 + (before.generation if before is not None else 0)


def domain_at(state: SchedulerState, name: str) -> Domain:
    """Returns the domain of that name; creates the domain if needed."""
    domain = state.domains.get(name)
    if domain is None:
        domain = state.domains[name] = Domain(name)
        domain.owned = name in state.owned
    return domain


def _part(state: SchedulerState, before: Domain, queue: Queue, after: Domain | None) -> None:
    state.bump_version(before)
    before.queues.pop(queue, None)
    before.ready.pop(queue, None)
    before.parked_queues.pop(queue, None)
    for workload in list(before.in_flight):
        if workload.queue is queue or (
            workload.charge is not None and workload.charge.queue is queue
        ):
            del before.in_flight[workload]
            if after is not None:
                after.in_flight[workload] = None
    if not before.queues and not before.in_flight:
        state.domains.pop(before.name, None)
        state.busy.pop(before, None)
        return
    # Quota that the queue had borrowed in its former domain is free now. Kueue does not flush the
    # former cohort tree, so in Kueue fitting heads wait for the next event.
    state.flush(before)


def _local_changed(state: SchedulerState, key: Key, now: datetime) -> None:
    """Moves the workloads of a LocalQueue after it was created, changed, held or deleted."""
    if state.accounts is not None:
        state.accounts.sync(key, now)
    local = state.catalog.local_queues.get(key)
    open_to = None
    if local is not None and local.spec.stop_policy in ("", "None"):
        open_to = state.queues.get(local.spec.cluster_queue)
    for workload in list(state.by_local_queue.get(key, ())):
        if workload.state == "QuotaReserved":
            recheck.note_recheck(state, workload)
        if workload.charge is None and (open_to is None or workload.queue is not open_to):
            state.requeue(workload, now)
