"""What a new stored state of a workload changes in the scheduler's state, and how a decision that
does not hold is undone. Source: `docs/spec/scheduling.md#3.1, #3.5`.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.api.units import BadQuantity
from admittance.scheduling import families
from admittance.scheduling.cycle import recheck
from admittance.scheduling.preemption import quota_handover
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.state import charging, in_flight, planned
from admittance.scheduling.state.assignment import charges_of
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.queue import schedule_refusal
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain, InFlight, Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import WorkloadView, view_of
from admittance.workload.stored import StoredWorkload


def apply_workload(
    state: SchedulerState, key: Key, stored: StoredWorkload | None, revision: int, *, now: datetime
) -> None:
    """The workload is so, as of revision; None: it is gone. What is older than what is known
    changes nothing."""
    workload = state.workloads.get(key)
    before = workload.family if workload is not None else None
    _apply(state, key, workload, stored, revision, now)
    workload = state.workloads.get(key)
    after = workload.family if workload is not None else None
    for family in (before, after) if before is not after else (after,):
        if family is not None:
            families.family_changed(state, family, now)


def _apply(
    state: SchedulerState,
    key: Key,
    workload: WorkloadInfo | None,
    stored: StoredWorkload | None,
    revision: int,
    now: datetime,
) -> None:
    if workload is not None and revision <= workload.revision:
        return
    if stored is None:
        if workload is not None:
            drop(state, workload)
        return
    try:
        facts = view_of(stored, state.shapes, state.config)
    except (msgspec.MsgspecError, BadQuantity, ValueError, TypeError):
        # No door let this in. It cannot be placed; it must not stop the others either. Quota that
        # it holds it keeps: its job may run.
        if workload is not None and workload.charge is None:
            drop(state, workload)
        return
    if facts.finished:
        if workload is not None:
            drop(state, workload)
        return
    if workload is not None and workload.uid != stored.metadata.uid:
        drop(state, workload)
        workload = None
    if workload is None:
        workload = state.workloads[key] = WorkloadInfo(key)
        workload.uid = stored.metadata.uid
    workload.revision = revision
    was_assumed = workload.in_flight is InFlight.ASSIGNED
    domain = _domain_of(state, workload)
    given = _land(state, workload, taken=facts.promised is not None)
    if facts.parent is not None or facts.variant is not None or workload.family is not None:
        families.join_family(state, workload, facts)
    workload.status_reason = facts.status_reason
    state.note_pods_ready(workload, facts.awaits_pods_ready)
    workload.checks = facts.checks
    workload.preemption_required_by = facts.preemption_required_by
    workload.reserved_at = facts.reserved_at if facts.admission is not None else None
    LoopGuard(state).note(workload, facts.preemptions)
    held_before = workload.charge
    waited = workload.queue
    if facts.admission is not None or facts.promised is not None:
        _hold(state, workload, facts)
    elif held_before is not None:
        queue = charging.release(state, workload)
        if queue is not None:
            queue.generation += 1
            state.flush(queue.domain)
    elif given is not None:
        # More may have come free than what was handed on.
        given.generation += 1
        state.flush(given.domain)
    planned.set_plan(state, workload, facts.pending_preemption)
    workload.admitted_at = facts.admitted_at
    if workload.family is not None:
        charging.choose_counted(state, workload.family)
    if state.accounts is not None:
        state.accounts.heard(workload, now)
    if workload.preemptor_waits and facts.state != "Evicting":
        workload.preemptor_waits = False
        state.schedule_cycle(domain)
    unchanged = (
        workload.signature == facts.signature
        and held_before is None
        and given is None
        and workload.charge is None
        and facts.parent is None
    )
    if unchanged and not was_assumed:
        in_flight.note_preemptor(
            state.victims_by_preemptor, state.workloads, workload, facts.preempted_by
        )
        # Such as a refusal that was written: it stays where it is.
        if workload.queue is not None:
            schedule_refusal(workload.queue, workload, now)
            state.queue_changed(workload.queue)
        return
    if workload.competes and not facts.competes and workload.charge is None and workload.queue:
        # Deactivated, held or gated: heads that lost to it may go on.
        state.flush(workload.queue.domain)
    if not facts.competes and waited is not None:
        waited.forget_preemptor(workload)
    _remember(state, workload, facts)
    in_flight.note_preemptor(
        state.victims_by_preemptor, state.workloads, workload, facts.preempted_by
    )
    if workload.charge is not None:
        if state.accounts is not None:
            state.accounts.heard(workload, now)
        if facts.promised is None:
            state.add_candidate(workload, facts.reserved_at or now)
        else:
            workload.charge.queue.remove_candidate(
                workload
            )  # What is promised to somebody is taken by nobody.
    recheck.note_recheck(state, workload)
    state.recheck_planners(workload)
    state.requeue(workload, now)


def drop(state: SchedulerState, workload: WorkloadInfo) -> None:
    """The workload is no more: finished, deleted, or a namesake came."""
    given = _land(state, workload, taken=False)
    state.note_pods_ready(workload, False)
    in_flight.note_preemptor(state.victims_by_preemptor, state.workloads, workload, None)
    LoopGuard(state).note(workload, ())
    queue = charging.release(state, workload) or given
    planned.set_plan(state, workload, None)
    state.recheck_planners(workload)
    if queue is not None:
        queue.generation += 1
        state.flush(queue.domain)
        if queue.domain is not None:
            queue.domain.rechecks.pop(workload, None)
    waited = workload.queue
    if waited is not None:
        waited.forget_preemptor(workload)
    state.dequeue(workload)
    if workload.family is not None:
        families.leave_family(state, workload)
    # Upstream wakes the tree for any workload that goes; one that waited held nothing back, but
    # heads that lost to it may go on.
    local = state.catalog.local_queues.get(workload.local_queue)
    here = waited or (state.queues.get(local.spec.cluster_queue) if local is not None else None)
    if here is not None:
        state.flush(here.domain)
    state.workloads.pop(workload.key, None)
    fellows = state.by_local_queue.get(workload.local_queue)
    if fellows is not None:
        fellows.pop(workload, None)
        if not fellows:
            del state.by_local_queue[workload.local_queue]


def _land(state: SchedulerState, workload: WorkloadInfo, *, taken: bool) -> Queue | None:
    """Nothing is on its way to the workload any more. ``taken``: it is promised quota. Returns the
    queue whose quota it was to hand on: what it holds now is for its new state to say."""
    if not workload.in_flight:
        return None
    state.clear_in_flight(workload, _domain_of(state, workload))
    if workload.family is not None:
        families.end_migration(state, workload, taken=taken)
    joint = state.handover_of.get(workload)
    if joint is None:
        return None
    if joint.receiver is not workload:
        return quota_handover.remove_giver(state, workload)
    quota_handover.end(state, joint)
    return None


def _domain_of(state: SchedulerState, workload: WorkloadInfo) -> Domain | None:
    joint = state.handover_of.get(workload)
    if joint is not None and joint.receiver is not workload:
        return joint.given[workload].charge.queue.domain
    if workload.charge is not None:
        return workload.charge.queue.domain
    return workload.queue.domain if workload.queue is not None else None


def _hold(state: SchedulerState, workload: WorkloadInfo, facts: WorkloadView) -> None:
    """Charges what the admission says, unless it is charged already."""
    admission = facts.admission or facts.promised
    assert admission is not None
    state.dequeue(workload)
    held = workload.charge
    queue = state.queue(admission.cluster_queue)
    queue.generation += 1
    changed = workload.reclaimable != facts.reclaimable
    if workload.priority != facts.needs.priority and held is not None:
        state.flush(queue.domain)
    if held is not None and held.queue is queue and not changed and held.admission == admission:
        return
    if held is not None:
        before = charging.release(state, workload)
        if before is not None:
            state.flush(before.domain)
    cells = (
        charges_of(queue.node, admission, facts.needs.shape, facts.reclaimable)
        if queue.node is not None
        else []
    )
    charging.charge(state, workload, queue, admission, cells)


def _remember(state: SchedulerState, workload: WorkloadInfo, facts: WorkloadView) -> None:
    needs = facts.needs
    local = (workload.key[0], needs.queue)
    if workload.local_queue != local or workload.shape is None:
        before = state.by_local_queue.get(workload.local_queue)
        if before is not None:
            before.pop(workload, None)
            if not before:
                del state.by_local_queue[workload.local_queue]
        # The key is shared by all workloads of the LocalQueue.
        here = state.by_local_queue.get(local)
        if here is None:
            here = state.by_local_queue[local] = {}
            workload.local_queue = local
        else:
            workload.local_queue = next(iter(here)).local_queue if here else local
        here[workload] = None
    state.dequeue(workload)
    workload.priority = needs.priority
    if workload.shape is not needs.shape:
        workload.shape = needs.shape
        workload.cursor = None
    workload.queued_at = facts.queued_at
    if workload.family is not None and workload.family.parent is not None:
        workload.queued_at = (
            workload.family.parent.queued_at or facts.queued_at
        )  # Siblings stand together.
    workload.created_at = facts.created_at
    workload.requeue_at = facts.requeue_at
    workload.requeue_blocked = facts.requeue_blocked
    workload.problem = facts.problem
    workload.reclaimable = facts.reclaimable
    workload.competes = facts.competes
    workload.closed_gate = facts.closed_gate
    workload.signature = facts.signature
    workload.state = facts.state


def undo(state: SchedulerState, workload: WorkloadInfo, domain: Domain, now: datetime) -> None:
    """What was decided about the workload does not hold: as if it never had been. A decision
    about several ends for all of them."""
    joint = state.handover_of.get(workload)
    if joint is not None:
        workload = joint.receiver
    workload = families.decided_with(workload)
    was = workload.in_flight
    if not was:
        return
    before = state.replaced_plans.get(workload)
    state.clear_in_flight(workload, domain)
    if was is InFlight.ASSIGNED:
        state.note_pods_ready(workload, False)
        charging.release(state, workload)
        planned.set_plan(state, workload, None)
        joint = state.handover_of.get(workload)
        if joint is not None:
            quota_handover.end(state, joint)
        families.end_migration(state, workload, taken=False)
        state.flush(domain)
        state.requeue(workload, now)
    elif was in (InFlight.CONFIRMED, InFlight.PLANNED):
        state.note_pods_ready(workload, False)
        if before is not None:
            planned.set_plan(state, workload, before)
        state.schedule_recheck(workload)
    elif was in (InFlight.PREEMPTED, InFlight.REVOKED):
        # Whoever preempted it looks for room anew.
        state.schedule_cycle(domain)
        if workload.state == "QuotaReserved":
            state.schedule_recheck(workload)
    elif workload.queue is not None:
        schedule_refusal(workload.queue, workload, now)
        state.queue_changed(workload.queue)
    if workload.family is not None:
        families.family_changed(state, workload.family, now)
