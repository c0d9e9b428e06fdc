"""Applies new stored states of workloads to the scheduler's state, and undoes decisions that were
refused or lost. Source: `docs/spec/scheduling.md#3.1, #3.5`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from sys import intern

import msgspec

from admittance.api.arrays import ARRAY_LABEL, INDEX_LABEL
from admittance.api.fields.units import BadQuantity
from admittance.scheduling import families
from admittance.scheduling.cycle import recheck
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.state import assumption
from admittance.scheduling.state.assignment import charges_of
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.held import charging
from admittance.scheduling.state.queue import schedule_refusal
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import Domain, WorkloadInfo
from admittance.scheduling.state.workload_view import WorkloadView, view_of
from admittance.workload.conditions import Type, is_true
from admittance.workload.stored import StoredWorkload


def apply_workload(
    state: SchedulerState, key: Key, stored: StoredWorkload | None, revision: int, *, now: datetime
) -> None:
    """Applies the state in which a workload was stored at ``revision``; None: the workload was
    deleted. A stored workload with an older revision than the applied one is ignored."""
    workload = state.workloads.get(key)
    before = workload.family if workload is not None else None
    held_back = _held_back_beside(workload) if state.backfill_queues else None
    _apply(state, key, workload, stored, revision, now)
    workload = state.workloads.get(key)
    if state.backfill_queues:
        # The change may have changed the promise that holds workloads back.
        state.schedule_cycle(held_back)
        state.schedule_cycle(_held_back_beside(workload))
    after = workload.family if workload is not None else None
    for family in (before, after) if before is not after else (after,):
        if family is not None:
            families.family_changed(state, family, now)


def _note_labels(workload: WorkloadInfo, labels: Mapping[str, str]) -> None:
    """Notes the labels of a new workload, which never change, except the index of an element."""
    if INDEX_LABEL in labels:
        workload.array = intern(labels.get(ARRAY_LABEL, ""))
    workload.labels = tuple(
        [
            (intern(key), intern(value))
            for key, value in sorted(labels.items())
            if key != INDEX_LABEL
        ]
    )


def _held_back_beside(workload: WorkloadInfo | None) -> Domain | None:
    """Returns the domain of the workload if a promise of a start may hold workloads of that domain
    back."""
    if workload is None:
        return None
    domain = assumption.domain_of(workload)
    return domain if domain is not None and domain.holds_back else None


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
    if stored is None or is_true(stored, Type.FINISHED):
        if workload is not None:
            drop(state, workload)
        return
    try:
        view = view_of(stored, state.shapes, state.config)
    except (msgspec.MsgspecError, BadQuantity, ValueError, TypeError):
        # The workload's stored spec is invalid, although the workload-controller validates every
        # submission. A workload with an invalid stored spec cannot be queued, and must not keep the
        # scheduler from applying other workloads. Quota that such a workload holds stays charged,
        # because its job may run.
        if workload is not None and workload.charge is None:
            drop(state, workload)
        return
    if workload is not None and workload.uid != stored.metadata.uid:
        drop(state, workload)
        workload = None
    if workload is None:
        workload = state.workloads[key] = WorkloadInfo(key)
        workload.uid = stored.metadata.uid
        # Many workloads have the same user and array: one text for all of them saves memory.
        workload.user = intern(stored.status.submitted_by)
        if stored.metadata.labels:
            _note_labels(workload, stored.metadata.labels)
    workload.revision = revision
    was_assumed = workload.in_flight is InFlight.ASSIGNED
    domain = assumption.domain_of(workload)
    given = assumption.end(state, workload, taken=view.promised is not None)
    if view.parent is not None or view.variant is not None or workload.family is not None:
        families.join_family(state, workload, view)
    workload.status_reason = view.status_reason
    state.note_pods_ready(workload, view.awaits_pods_ready)
    workload.checks = view.checks
    workload.preemption_required_by = view.preemption_required_by
    workload.reserved_at = view.reserved_at if view.admission is not None else None
    if workload.preemptions or view.preemptions:
        LoopGuard(state).note(workload, view.preemptions)
    held_before = workload.charge
    waited = workload.queue
    if view.admission is not None or view.promised is not None:
        _hold(state, workload, view)
    elif held_before is not None:
        queue = charging.release(state, workload)
        if queue is not None:
            queue.generation += 1
            state.flush(queue.domain)
    elif given is not None:
        # The workload handed its quota over to another workload, which may have needed less: the
        # rest is free.
        given.generation += 1
        state.flush(given.domain)
    charging.set_plan(state, workload, view.pending_preemption)
    workload.admitted_at = view.admitted_at
    workload.run = view.run
    workload.seconds_left = view.seconds_left
    workload.holder = None
    if workload.family is not None:
        charging.choose_counted(state, workload.family)
    if state.accounts is not None:
        state.accounts.update_bills(workload, now)
    if workload.preemptor_waits and view.state != "Evicting":
        workload.preemptor_waits = False
        state.schedule_cycle(domain)
    unchanged = (
        workload.signature == view.signature
        and held_before is None
        and given is None
        and workload.charge is None
        and view.parent is None
    )
    if unchanged and not was_assumed:
        state.note_preemptor(workload, view.preempted_by)
        # The stored change, for example a refusal, does not affect the queue: the workload keeps
        # its place.
        if workload.queue is not None:
            schedule_refusal(workload.queue, workload, now)
            state.queue_changed(workload.queue)
        return
    if workload.competes and not view.competes and workload.charge is None and workload.queue:
        # The workload was deactivated, held or gated, so heads that lost against it may be tried
        # again.
        state.flush(workload.queue.domain)
    if not view.competes and waited is not None:
        waited.forget_preemptor(workload)
    _copy_view(state, workload, view)
    state.note_preemptor(workload, view.preempted_by)
    if workload.charge is not None:
        charging.count_person(workload)
        if state.accounts is not None:
            state.accounts.update_bills(workload, now)
        if view.promised is None:
            state.add_candidate(workload, view.reserved_at or now)
        else:
            # A workload with promised quota cannot be preempted.
            workload.charge.queue.remove_candidate(workload)
    recheck.note_recheck(state, workload)
    state.recheck_planners(workload)
    state.requeue(workload, now)


def drop(state: SchedulerState, workload: WorkloadInfo) -> None:
    """Removes from the scheduler's state a workload that is finished, deleted, or replaced by
    another workload with the same name."""
    given = assumption.end(state, workload, taken=False)
    state.note_pods_ready(workload, False)
    state.note_preemptor(workload, None)
    LoopGuard(state).note(workload, ())
    queue = charging.release(state, workload) or given
    charging.set_plan(state, workload, None)
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
    # Kueue flushes the cohort tree for every deleted workload. A deleted waiting workload held no
    # quota, but heads that lost against it may be tried again.
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


def _hold(state: SchedulerState, workload: WorkloadInfo, view: WorkloadView) -> None:
    """Charges the workload for its stored admission, unless that admission is charged already."""
    admission = view.admission or view.promised
    assert admission is not None
    state.dequeue(workload)
    held = workload.charge
    queue = state.queue(admission.cluster_queue)
    queue.generation += 1
    changed = workload.reclaimable != view.reclaimable
    if workload.priority != view.needs.priority and held is not None:
        state.flush(queue.domain)
    if held is not None and held.queue is queue and not changed and held.admission == admission:
        return
    if held is not None:
        before = charging.release(state, workload)
        if before is not None:
            state.flush(before.domain)
    cells = (
        charges_of(queue.node, admission, view.needs.shape, view.reclaimable)
        if queue.node is not None
        else []
    )
    charging.charge(state, workload, queue, admission, cells)


def _copy_view(state: SchedulerState, workload: WorkloadInfo, view: WorkloadView) -> None:
    needs = view.needs
    local = (workload.key[0], needs.queue)
    if workload.local_queue != local or workload.shape is None:
        before = state.by_local_queue.get(workload.local_queue)
        if before is not None:
            before.pop(workload, None)
            if not before:
                del state.by_local_queue[workload.local_queue]
        # All workloads of a LocalQueue share one object for the LocalQueue's key, to save memory.
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
    workload.queued_at = view.queued_at
    if workload.family is not None and workload.family.parent is not None:
        # All variants of a family count as queued at their parent's time, so that they are adjacent
        # in the order of the queue.
        workload.queued_at = workload.family.parent.queued_at or view.queued_at
    workload.created_at = view.created_at
    workload.leased = needs.leased
    workload.requeue_at = view.requeue_at
    workload.requeue_blocked = view.requeue_blocked
    workload.problem = state.suspects.get(workload.uid) or view.problem
    workload.reclaimable = view.reclaimable
    workload.competes = view.competes
    workload.closed_gate = view.closed_gate
    workload.signature = view.signature
    workload.state = view.state


def undo(state: SchedulerState, workload: WorkloadInfo, domain: Domain, now: datetime) -> None:
    """Undoes the decision in flight about the workload, for all workloads that the decision is
    about."""
    if workload.assumption is not None:
        decided = assumption.undo(state, workload.assumption, workload, domain, now)
        if decided.family is not None:
            families.family_changed(state, decided.family, now)
