"""What a change of the configuration changes in the scheduler's state.

Source: `docs/spec/scheduling.md#1.3, #3.5, #3.7`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from admittance.api.queues import ClusterQueue
from admittance.family.policy import rules_of
from admittance.quota.catalog import domain_of_node
from admittance.scheduling import intake
from admittance.scheduling.cycle import recheck
from admittance.scheduling.families import siblings
from admittance.scheduling.state import planned
from admittance.scheduling.state.assignment import charges_of
from admittance.scheduling.state.equivalence import Lanes
from admittance.scheduling.state.flavor_plan import plan_of
from admittance.scheduling.state.queue import Domain, Queue
from admittance.scheduling.state.state import SchedulerState
from admittance.scheduling.state.workload_info import Key

USAGE_BASED: Final = "UsageBasedAdmissionFairSharing"


def apply_object(
    world: SchedulerState,
    kind: str,
    namespace: str,
    name: str,
    obj: Any,
    revision: int,
    *,
    now: datetime,
) -> None:
    """The object is now so; None: deleted."""
    old = world.catalog.cluster_queues.get(name) if kind == "ClusterQueue" else None
    if kind in ("ClusterQueue", "Cohort"):
        planned.dissolve_all(world)
    touched = world.catalog.apply(kind, namespace, name, obj, revision)
    affected = world.catalog.affected
    # Decisions on their way were made from an older configuration: the controller refuses them.
    for domain_name in touched:
        domain = world.domains.get(domain_name)
        if domain is not None:
            world.moved(domain)
            for member in [one for one in domain.inflight if one.seen < revision]:
                intake.undo(world, member, domain, now)
    if kind == "ClusterQueue":
        _queue_changed(world, world.queue(name), now)
    for queue_name in affected:
        _refresh(world, world.queue(queue_name), spec=queue_name == name)
    if kind in ("ClusterQueue", "Cohort"):
        _place(world, touched, kind, name, quotas=not _same_quotas(old, obj))
        for domain_name in touched:
            world.look_for_cuts(world.domains.get(domain_name))
        planned.settle_all(world)
    for queue_name in affected:
        changed = world.queue(queue_name)
        recheck.note_all(world, changed)
        if _set_rules(world, changed):
            _families_changed(world, changed, now)
    match kind:
        case "LocalQueue":
            _local_changed(world, (namespace, name), now)
        case "Namespace":
            for key in world.catalog.locals_in(name):
                local = world.catalog.local_queues[key]
                queue = world.queues.get(local.spec.cluster_queue)
                if queue is not None and queue.asides:
                    world.flush(queue.domain)
        case "Cohort" if obj is not None:
            for domain_name in touched:
                world.flush(world.domains.get(domain_name))


def _queue_changed(world: SchedulerState, queue: Queue, now: datetime) -> None:
    """The ClusterQueue came, changed, or went."""
    node = world.catalog.tree.queues.get(queue.name)
    if node is queue.node:
        return
    queue.node = node
    for member in list(queue.holding):
        held = member.charge
        assert held is not None and member.shape is not None
        # The old node went out of the tree with its usage; what is still held counts again.
        cells = (
            charges_of(node, held.admission, member.shape, member.reclaimable)
            if node is not None
            else []
        )
        for cell, amount in cells:
            cell.charge(amount)
        if member.overlap is not None:
            member.overlap.move(member, held.cells, cells)
        member.charge = held._replace(cells=cells)
    if node is None:
        for member in list(queue.waiting()):
            queue.remove(member)
        queue.plan = None
        return
    for key in world.catalog.locals_of(queue.name):
        for member in world.locals.get(key, ()):
            if member.charge is None and member.queue is None and member.competes:
                world.admit_to_queue(member, now)


def _refresh(world: SchedulerState, queue: Queue, *, spec: bool) -> None:
    """Whether the queue admits, and with which flavors."""
    was_active = queue.activity.active
    queue.activity = world.catalog.activity(queue.name)
    world.catalog.tree.count(queue.name, counted=queue.activity.active)
    if queue.node is not None:
        queue.plan = plan_of(world.catalog, queue.name, queue.node, world.config)
        queue.strict = (
            world.catalog.cluster_queues[queue.name].spec.queueing_strategy == "StrictFIFO"
        )
    _set_mode(world, queue)
    world.moved(queue.domain)
    if queue.domain is not None:
        queue.domain.note(queue)
        if queue.node is not None and (spec or (queue.activity.active and not was_active)):
            world.flush(queue.domain)
        world.stir(queue.domain)


def _set_mode(world: SchedulerState, queue: Queue) -> None:
    """Whether the usage of LocalQueues counts there."""
    if world.accounts is None:
        return
    scope = None
    if queue.node is not None:
        scope = world.catalog.cluster_queues[queue.name].spec.admission_scope
    counts = scope is not None and scope.admission_mode == USAGE_BASED
    if counts is (queue.lanes is not None):
        return
    lanes = Lanes(keeps_place=not world.config.as_kueue) if counts else None
    queue.share_by_usage(lanes, world.now)
    for key in world.catalog.locals_of(queue.name):
        world.accounts.sync(key, world.now)


def _set_rules(world: SchedulerState, queue: Queue) -> bool:
    """What the queue says of families. True: that is something else than before."""
    before, queue.rules = queue.rules, None
    if queue.node is not None and world.config.concurrent_admission:
        queue.rules = rules_of(world.catalog.cluster_queues[queue.name].spec)
    queue.tags = {one.name: one for one in queue.rules.tags} if queue.rules is not None else {}
    return queue.rules != before


def _families_changed(world: SchedulerState, queue: Queue, now: datetime) -> None:
    """Other variants may be tried there from now on, or in another order."""
    found = {
        one.family.uid: one.family
        for key in world.catalog.locals_of(queue.name)
        for one in world.locals.get(key, ())
        if one.family is not None
    }
    for family in found.values():
        siblings.touched(world, family, now)


def _same_quotas(old: ClusterQueue | None, new: Any) -> bool:
    """An edit of something else: what was found out about the room in the tree holds."""
    if old is None or not isinstance(new, ClusterQueue):
        return False
    return (old.spec.resource_groups, old.spec.cohort_name) == (
        new.spec.resource_groups,
        new.spec.cohort_name,
    )


def _place(world: SchedulerState, touched: set[str], kind: str, name: str, *, quotas: bool) -> None:
    """Every queue of the touched trees in the domain that it belongs to now. ``quotas``: they, or
    the tree, may have changed, so that searches begin anew."""
    queues: dict[Queue, None] = {}
    if kind == "ClusterQueue":
        queues[world.queue(name)] = None
    for domain_name in touched:
        domain = world.domains.get(domain_name)
        if domain is not None:
            domain.generation += quotas
            world.moved(domain)
            if kind == "Cohort":
                queues.update(domain.queues)
    for queue in queues:
        node = queue.node
        domain = None
        if node is not None:
            domain = domain_at(world, domain_of_node(node))
            queue.in_cycle = world.catalog.tree.in_cycle(node)
        before = queue.domain
        if before is domain:
            continue
        queue.domain = domain
        if before is not None:
            for member in queue.holding:
                planned.strike(world, before, member)
            _part(world, before, queue, domain)
        if domain is not None:
            for member in queue.holding:
                planned.enlist(world, domain, member)
                recheck.note(world, member)
            domain.queues[queue] = None
            domain.generation += 1
            world.moved(domain)
            domain.note(queue)
            world.flush(domain)
        # A cursor's generation counts both; it must not come out as it was by accident.
        queue.generation += 1 + (before.generation if before is not None else 0)


def domain_at(world: SchedulerState, name: str) -> Domain:
    """The domain of that name, made where there is none."""
    domain = world.domains.get(name)
    if domain is None:
        domain = world.domains[name] = Domain(name)
        domain.owned = name in world.owned
    return domain


def _part(world: SchedulerState, before: Domain, queue: Queue, after: Domain | None) -> None:
    world.moved(before)
    before.queues.pop(queue, None)
    before.ready.pop(queue, None)
    before.resting.pop(queue, None)
    for member in list(before.inflight):
        if member.queue is queue or (member.charge is not None and member.charge.queue is queue):
            del before.inflight[member]
            if after is not None:
                after.inflight[member] = None
    if not before.queues and not before.inflight:
        world.domains.pop(before.name, None)
        world.busy.pop(before, None)
        return
    # What the queue had borrowed is free there now. Upstream tells nobody of it, so that heads
    # which fit would wait for the next event.
    world.flush(before)


def _local_changed(world: SchedulerState, key: Key, now: datetime) -> None:
    """The LocalQueue came, changed, was held, or went: its workloads go where it leads now."""
    if world.accounts is not None:
        world.accounts.sync(key, now)
    local = world.catalog.local_queues.get(key)
    open_to = None
    if local is not None and local.spec.stop_policy in ("", "None"):
        open_to = world.queues.get(local.spec.cluster_queue)
    for member in list(world.locals.get(key, ())):
        if member.state == "QuotaReserved":
            recheck.note(world, member)
        if member.charge is None and (open_to is None or member.queue is not open_to):
            world.requeue(member, now)
