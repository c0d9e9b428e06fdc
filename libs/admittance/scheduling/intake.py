"""What a new stored state of a workload changes in the scheduler's state, and how a decision that
does not hold is undone. Source: `docs/spec/scheduling.md#3.1, #3.5`.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.api.units import BadQuantity
from admittance.scheduling.cycle import recheck
from admittance.scheduling.families import families, migration, siblings
from admittance.scheduling.preemption import quota_handover
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.state import charging, pending_preemptors, planned
from admittance.scheduling.state.assignment import charges_of
from admittance.scheduling.state.queue import Domain, Queue
from admittance.scheduling.state.state import SchedulerState
from admittance.scheduling.state.workload_info import InFlight, Key, WorkloadInfo
from admittance.scheduling.state.workload_view import Facts, facts_of
from admittance.workload.stored import StoredWorkload


def apply_workload(
    world: SchedulerState, key: Key, stored: StoredWorkload | None, revision: int, *, now: datetime
) -> None:
    """The workload is so, as of revision; None: it is gone. What is older than what is known
    changes nothing."""
    member = world.members.get(key)
    before = member.family if member is not None else None
    _apply(world, key, member, stored, revision, now)
    member = world.members.get(key)
    after = member.family if member is not None else None
    for family in (before, after) if before is not after else (after,):
        if family is not None:
            siblings.touched(world, family, now)


def _apply(
    world: SchedulerState,
    key: Key,
    member: WorkloadInfo | None,
    stored: StoredWorkload | None,
    revision: int,
    now: datetime,
) -> None:
    if member is not None and revision <= member.revision:
        return
    if stored is None:
        if member is not None:
            drop(world, member)
        return
    try:
        facts = facts_of(stored, world.shapes, world.config)
    except (msgspec.MsgspecError, BadQuantity, ValueError, TypeError):
        # No door let this in. It cannot be placed; it must not stop the others either. Quota that
        # it holds it keeps: its job may run.
        if member is not None and member.charge is None:
            drop(world, member)
        return
    if facts.finished:
        if member is not None:
            drop(world, member)
        return
    if member is not None and member.uid != stored.metadata.uid:
        drop(world, member)
        member = None
    if member is None:
        member = world.members[key] = WorkloadInfo(key)
        member.uid = stored.metadata.uid
    member.revision = revision
    was_assumed = member.inflight is InFlight.ASSIGNED
    domain = _domain_of(world, member)
    given = _land(world, member, taken=facts.promised is not None)
    if facts.parent is not None or facts.variant is not None or member.family is not None:
        families.keep(world, member, facts)
    member.said = facts.said
    world.starts(member, facts.starting)
    member.checks = facts.checks
    member.asking = facts.asking
    member.reserved_at = facts.reserved_at if facts.admission is not None else None
    LoopGuard(world).note(member, facts.preemptions)
    held_before = member.charge
    waited = member.queue
    if facts.admission is not None or facts.promised is not None:
        _hold(world, member, facts)
    elif held_before is not None:
        queue = charging.release(world, member)
        if queue is not None:
            queue.generation += 1
            world.flush(queue.domain)
    elif given is not None:
        # More may have come free than what was handed on.
        given.generation += 1
        world.flush(given.domain)
    planned.keep(world, member, facts.pending)
    member.admitted_at = facts.admitted_at
    if member.family is not None:
        charging.judge(world, member.family)
    if world.accounts is not None:
        world.accounts.heard(member, now)
    if member.awaited and facts.state != "Evicting":
        member.awaited = False
        world.stir(domain)
    unchanged = (
        member.signature == facts.signature
        and held_before is None
        and given is None
        and member.charge is None
        and facts.parent is None
    )
    if unchanged and not was_assumed:
        pending_preemptors.note(world.promises, world.members, member, facts.preempted_by)
        # Such as a refusal that was written: it stays where it is.
        if member.queue is not None:
            member.queue.note_untold(member, now)
            world.changed(member.queue)
        return
    if member.competes and not facts.competes and member.charge is None and member.queue:
        # Deactivated, held or gated: heads that lost to it may go on.
        world.flush(member.queue.domain)
    if not facts.competes and waited is not None:
        waited.forget_preemptor(member)
    _remember(world, member, facts)
    pending_preemptors.note(world.promises, world.members, member, facts.preempted_by)
    if member.charge is not None:
        if world.accounts is not None:
            world.accounts.heard(member, now)
        if facts.promised is None:
            world.rank(member, facts.reserved_at or now)
        else:
            member.charge.queue.unrank(member)  # What is promised to somebody is taken by nobody.
    recheck.note(world, member)
    world.look_at_plans(member)
    world.requeue(member, now)


def drop(world: SchedulerState, member: WorkloadInfo) -> None:
    """The workload is no more: finished, deleted, or a namesake came."""
    given = _land(world, member, taken=False)
    world.starts(member, False)
    pending_preemptors.note(world.promises, world.members, member, None)
    LoopGuard(world).note(member, ())
    queue = charging.release(world, member) or given
    planned.keep(world, member, None)
    world.look_at_plans(member)
    if queue is not None:
        queue.generation += 1
        world.flush(queue.domain)
        if queue.domain is not None:
            queue.domain.rechecks.pop(member, None)
    waited = member.queue
    if waited is not None:
        waited.forget_preemptor(member)
    world.take_out(member)
    if member.family is not None:
        families.leave(world, member)
    # Upstream wakes the tree for any workload that goes; one that waited held nothing back, but
    # heads that lost to it may go on.
    local = world.catalog.local_queues.get(member.local)
    here = waited or (world.queues.get(local.spec.cluster_queue) if local is not None else None)
    if here is not None:
        world.flush(here.domain)
    world.members.pop(member.key, None)
    fellows = world.locals.get(member.local)
    if fellows is not None:
        fellows.pop(member, None)
        if not fellows:
            del world.locals[member.local]


def _land(world: SchedulerState, member: WorkloadInfo, *, taken: bool) -> Queue | None:
    """Nothing is on its way to the member any more. ``taken``: it is promised quota. Returns the
    queue whose quota it was to hand on: what it holds now is for its new state to say."""
    if not member.inflight:
        return None
    world.landed(member, _domain_of(world, member))
    if member.family is not None:
        migration.end(world, member, taken=taken)
    joint = world.joint_of.get(member)
    if joint is None:
        return None
    if joint.member is not member:
        return quota_handover.heard_of(world, member)
    quota_handover.end(world, joint)
    return None


def _domain_of(world: SchedulerState, member: WorkloadInfo) -> Domain | None:
    joint = world.joint_of.get(member)
    if joint is not None and joint.member is not member:
        return joint.given[member].charge.queue.domain
    if member.charge is not None:
        return member.charge.queue.domain
    return member.queue.domain if member.queue is not None else None


def _hold(world: SchedulerState, member: WorkloadInfo, facts: Facts) -> None:
    """Charges what the admission says, unless it is charged already."""
    admission = facts.admission or facts.promised
    assert admission is not None
    world.take_out(member)
    held = member.charge
    queue = world.queue(admission.cluster_queue)
    queue.generation += 1
    changed = member.reclaimable != facts.reclaimable
    if member.priority != facts.needs.priority and held is not None:
        world.flush(queue.domain)
    if held is not None and held.queue is queue and not changed and held.admission == admission:
        return
    if held is not None:
        before = charging.release(world, member)
        if before is not None:
            world.flush(before.domain)
    cells = (
        charges_of(queue.node, admission, facts.needs.shape, facts.reclaimable)
        if queue.node is not None
        else []
    )
    charging.charge(world, member, queue, admission, cells)


def _remember(world: SchedulerState, member: WorkloadInfo, facts: Facts) -> None:
    needs = facts.needs
    local = (member.key[0], needs.queue)
    if member.local != local or member.shape is None:
        before = world.locals.get(member.local)
        if before is not None:
            before.pop(member, None)
            if not before:
                del world.locals[member.local]
        # The key is shared by all workloads of the LocalQueue.
        here = world.locals.get(local)
        if here is None:
            here = world.locals[local] = {}
            member.local = local
        else:
            member.local = next(iter(here)).local if here else local
        here[member] = None
    world.take_out(member)
    member.priority = needs.priority
    if member.shape is not needs.shape:
        member.shape = needs.shape
        member.cursor = None
    member.stamp = facts.stamp
    if member.family is not None and member.family.parent is not None:
        member.stamp = member.family.parent.stamp or facts.stamp  # Siblings stand together.
    member.created = facts.created
    member.requeue_at = facts.requeue_at
    member.waits = facts.waits
    member.problem = facts.problem
    member.reclaimable = facts.reclaimable
    member.competes = facts.competes
    member.closed_gate = facts.closed_gate
    member.signature = facts.signature
    member.state = facts.state


def undo(world: SchedulerState, member: WorkloadInfo, domain: Domain, now: datetime) -> None:
    """What was decided about the member does not hold: as if it never had been. A decision
    about several ends for all of them."""
    joint = world.joint_of.get(member)
    if joint is not None:
        member = joint.member
    member = migration.taker(member)
    was = member.inflight
    if not was:
        return
    before = world.replanned.get(member)
    world.landed(member, domain)
    if was is InFlight.ASSIGNED:
        world.starts(member, False)
        charging.release(world, member)
        planned.keep(world, member, None)
        joint = world.joint_of.get(member)
        if joint is not None:
            quota_handover.end(world, joint)
        migration.end(world, member, taken=False)
        world.flush(domain)
        world.requeue(member, now)
    elif was in (InFlight.CONFIRMED, InFlight.PLANNED):
        world.starts(member, False)
        if before is not None:
            planned.keep(world, member, before)
        world.look_again(member)
    elif was in (InFlight.PREEMPTED, InFlight.REVOKED):
        # Whoever preempted it looks for room anew.
        world.stir(domain)
        if member.state == "QuotaReserved":
            world.look_again(member)
    elif member.queue is not None:
        member.queue.note_untold(member, now)
        world.changed(member.queue)
    if member.family is not None:
        siblings.touched(world, member.family, now)
