"""What the scheduler's state assumes of its decisions in flight: a decision counts as stored from
the moment it is made.

Each of the `assume` functions begins an `Assumption`. It ends when the new stored state of its
workload arrives (`end`), or when the decision was refused or lost (`undo`, the inverse of all
`assume` functions).

Handover of quota: one decision passes quota on from victims (givers) to their preemptor (the
receiver), and succeeds or fails as a whole. The workload-controller writes the receiver and all
givers in one batch or not at all. In the batch the givers come first, so that the scheduler has
read all givers when it reads the receiver. Until the scheduler has read the receiver, it makes no
other decision in the domain: if the batch is refused, the victims keep their quota, and another
workload that was admitted meanwhile would exceed the quota.

Migration: one decision gives quota to a variant and stops its admitted sibling (``replaced``)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from admittance.events.shapes import Admission, PendingPreemption
from admittance.quota.cell import Cell
from admittance.scheduling.state.held import charging
from admittance.scheduling.state.held.shared_quota import FamilyQuota, remove_usage, restore_usage
from admittance.scheduling.state.queue import schedule_refusal
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import (
    Assumption,
    Domain,
    FamilyInfo,
    GivenQuota,
    Queue,
    WorkloadInfo,
)


def assume_assigned(
    state: SchedulerState,
    domain: Domain,
    workload: WorkloadInfo,
    queue: Queue,
    admission: Admission,
    cells: list[tuple[Cell, int]],
    *,
    givers: Sequence[WorkloadInfo],
    plan: PendingPreemption | None,
    migrates_from: WorkloadInfo | None,
    now: datetime,
) -> None:
    """Assumes the decision that assigns quota to a workload, and charges the workload for the
    admission.

    ``givers``: victims that hand their quota over to the workload; ``plan``: victims that are
    preempted later; ``migrates_from``: the admitted sibling that the workload replaces."""
    assumption = Assumption(workload, domain, state.seen)
    if givers:
        _take_from(state, assumption, givers)
    charging.charge(state, workload, queue, admission, cells)
    charging.set_plan(state, workload, plan)
    if migrates_from is not None:
        assumption.replaced = migrates_from
        state.set_in_flight(migrates_from, domain, InFlight.MIGRATED, assumption)
    else:
        if (
            state.config.block_admission
            and workload.pending_preemption is None
            and not state.catalog.checks_to_pass(queue.name, admission)
        ):
            # Without checks to pass, the workload is admitted together with its reservation.
            state.pods_ready.assume_admitted(workload, queue.domain)
        state.add_candidate(workload, now)
    state.set_in_flight(workload, domain, InFlight.ASSIGNED, assumption)


def assume_planned(
    state: SchedulerState, domain: Domain, workload: WorkloadInfo, plan: PendingPreemption | None
) -> None:
    """Assumes the decision that a reservation has another plan of preemption."""
    state.set_in_flight(workload, domain, InFlight.PLANNED)
    _replace_plan(state, workload, plan)


def assume_confirmed(state: SchedulerState, domain: Domain, workload: WorkloadInfo) -> None:
    """Assumes the decision that a reservation is admitted."""
    state.set_in_flight(workload, domain, InFlight.CONFIRMED)
    state.pods_ready.assume_admitted(workload, domain)
    _replace_plan(state, workload, None)


def _replace_plan(
    state: SchedulerState, workload: WorkloadInfo, plan: PendingPreemption | None
) -> None:
    assert workload.assumption is not None
    if workload.pending_preemption is not None:
        workload.assumption.replaced_plan = workload.pending_preemption
        charging.set_plan(state, workload, plan)


def _take_from(
    state: SchedulerState, assumption: Assumption, givers: Sequence[WorkloadInfo]
) -> None:
    """Begins a handover: releases the quota of the givers. Must be called before the receiver is
    charged for its quota."""
    domain = assumption.domain
    assert domain.handover is None
    domain.handover = assumption
    assumption.given = {}
    for giver in givers:
        assert giver.charge is not None
        assumption.given[giver] = GivenQuota(giver.charge, giver.candidate)
        charging.release(state, giver)
        state.set_in_flight(giver, domain, InFlight.HANDED_ON, assumption)


def domain_of(workload: WorkloadInfo) -> Domain | None:
    """Returns the domain of the quota that the workload holds or hands over, or of the queue in
    which it waits."""
    charge = workload.charge
    if workload.in_flight is InFlight.HANDED_ON and workload.assumption is not None:
        charge = workload.assumption.given[workload].charge
    queue = charge.queue if charge is not None else workload.queue
    return queue.domain if queue is not None else None


def end(state: SchedulerState, workload: WorkloadInfo, *, taken: bool) -> Queue | None:
    """Ends what is assumed about the workload, because a new state of the workload was stored.
    ``taken``: the decision was a migration to this workload and was stored, so quota is promised to
    the workload; the replaced variant then stays in flight until its own new state arrives.

    If the workload had to hand its quota over to another workload, returns the queue of that quota;
    else None. The caller sets the quota that the workload holds now, from its new stored state."""
    assumption = workload.assumption
    if assumption is None:
        return None
    state.clear_in_flight(workload, domain_of(workload))
    if assumption.workload is workload:
        _end_of_others(state, assumption, taken=taken)
        return None
    given = assumption.given.pop(workload, None)
    return given.charge.queue if given is not None else None


def undo(
    state: SchedulerState,
    assumption: Assumption,
    workload: WorkloadInfo,
    domain: Domain,
    now: datetime,
) -> WorkloadInfo:
    """Undoes the decision in flight about the workload, for all workloads that the decision is
    about. Returns the workload to which the decision gave or from which it took."""
    if assumption.workload.assumption is assumption:
        workload = assumption.workload
    was = workload.in_flight
    state.clear_in_flight(workload, domain)
    if was is InFlight.ASSIGNED:
        state.note_pods_ready(workload, False)
        charging.release(state, workload)
        charging.set_plan(state, workload, None)
        _end_of_others(state, assumption)
        state.flush(domain)
        state.requeue(workload, now)
    elif was in (InFlight.CONFIRMED, InFlight.PLANNED):
        state.note_pods_ready(workload, False)
        if assumption.replaced_plan is not None:
            charging.set_plan(state, workload, assumption.replaced_plan)
        state.schedule_recheck(workload)
    elif was in (InFlight.PREEMPTED, InFlight.REVOKED):
        # The decision that took the workload's quota is undone, so the preemptor must search for
        # victims again.
        state.schedule_cycle(domain)
        if workload.state == "QuotaReserved":
            state.schedule_recheck(workload)
    elif workload.queue is not None:
        schedule_refusal(workload.queue, workload, now)
        state.queue_changed(workload.queue)
    return workload


def _end_of_others(state: SchedulerState, assumption: Assumption, *, taken: bool = False) -> None:
    """Ends what is assumed about the givers and the replaced variant of a decision. Givers for
    which no new stored state has arrived get back exactly the quota that they held before.
    ``taken``: the migration was stored."""
    replaced, assumption.replaced = assumption.replaced, None
    if replaced is not None and replaced.assumption is assumption and not taken:
        state.clear_in_flight(replaced, domain_of(replaced))
    for giver, (held, candidate) in assumption.given.items():
        state.clear_in_flight(giver, held.queue.domain)
        charging.charge(state, giver, held.queue, held.admission, held.cells)
        if candidate is not None:
            insort(held.queue.candidates, candidate)
            giver.candidate = candidate
    assumption.given.clear()
    if assumption.domain.handover is assumption:
        assumption.domain.handover = None
        state.schedule_cycle(assumption.domain)


@contextmanager
def without_handover(assumption: Assumption) -> Iterator[None]:
    """Moves the quota of a handover from the receiver back to the givers, as if the handover had
    failed, until the end of the ``with`` block."""
    families: dict[FamilyInfo, FamilyQuota[WorkloadInfo]] = {}

    def quota_of(family: FamilyInfo) -> FamilyQuota[WorkloadInfo]:
        return family.quota or families.setdefault(family, FamilyQuota())

    remove_usage(assumption.workload)
    for giver, given in assumption.given.items():
        for cell, amount in given.charge.cells:
            cell.charge(amount)
        if giver.family is not None:
            quota_of(giver.family).join(giver, given.charge.cells)
    yield
    restore_usage(assumption.workload)
    for giver, given in assumption.given.items():
        for cell, amount in given.charge.cells:
            cell.charge(-amount)
        if giver.family is not None:
            quota_of(giver.family).leave(giver, given.charge.cells)
