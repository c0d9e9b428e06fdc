"""Rechecks reservations before they are admitted: have their admission checks passed, and have
their victims stopped? Source: `docs/spec/lifecycle.md#2.7, #2.8, #T07, #T08, #T09`.

A reservation is a workload with reserved quota that is not admitted. A reservation is rechecked
when its workload changes, when its checks or queues change, or when one of its victims changes.
`Domain.rechecks` has the reservations that need a recheck, and the next cycle rechecks them before
it processes heads. A confirmation charges nothing, so the number of confirmations in a batch is not
limited.

A victim that has stopped, or that is not needed any more, is removed from the reservation's plan.
If a victim may no longer be preempted, other victims are searched, and if the search finds none,
the reservation is revoked. If a check must pass before preemption, no victim is preempted until
that check has passed or a check requires the preemption."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from admittance.api.checks import PREEMPTS_AFTER_CHECK
from admittance.api.fields.units import render
from admittance.events import reasons
from admittance.events.facts import Confirmed, Planned, Preempted, Revoked
from admittance.events.shapes import PendingPreemption, Shortfall, Taken
from admittance.quota.catalog import Catalog
from admittance.quota.cell import available
from admittance.scheduling import families
from admittance.scheduling.cycle.cycle import Cycle
from admittance.scheduling.cycle.decisions import Decided, preemption_reasons
from admittance.scheduling.preemption import quota_reduction
from admittance.scheduling.preemption.candidates import allows, is_over_any
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.preemption.min_run import may_not_preempt, with_youth
from admittance.scheduling.preemption.quota_reduction import exceeded_cell
from admittance.scheduling.preemption.room import Need, fits, shortfalls
from admittance.scheduling.state.assumption import assume_confirmed, assume_planned
from admittance.scheduling.state.held import charging
from admittance.scheduling.state.held.shared_quota import (
    WithoutUsage,
    remove_usage,
    restore_usage,
)
from admittance.scheduling.state.object_errors import is_set_aside
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import Domain, Queue, Victim, WorkloadInfo

READY: Final = "Ready"


# Which reservations to look at. -------------------------------------------------------------


def note_recheck(state: SchedulerState, workload: WorkloadInfo) -> None:
    """Adds the workload to the rechecks of the next cycle, or removes it, as the workload's new
    stored state requires."""
    charge = workload.charge
    if charge is None or state.config.as_kueue:
        return
    if workload.state == "QuotaReserved" and (
        workload.pending_preemption is not None or has_passed(state.catalog, workload)
    ):
        state.schedule_recheck(workload)
    elif charge.queue.domain is not None:
        charge.queue.domain.rechecks.pop(workload, None)


def note_all_rechecks(state: SchedulerState, queue: Queue) -> None:
    """Adds the reservations of a queue that need a recheck to the rechecks of the next cycle. Must
    be called after the checks that the reservations must pass may have changed."""
    for workload in queue.holding:
        if workload.state == "QuotaReserved":
            note_recheck(state, workload)


def has_passed(catalog: Catalog, workload: WorkloadInfo) -> bool:
    """Returns whether every admission check that the reservation must pass is Ready."""
    assert workload.charge is not None
    admission = workload.charge.admission
    states = dict(workload.checks)
    names = catalog.checks_to_pass(admission.cluster_queue, admission)
    return all(states.get(name) == READY for name in names)


# Decisions. ---------------------------------------------------------------------------------


def due_decisions(
    state: SchedulerState, domain: Domain, cycle: Cycle, now: datetime
) -> list[Decided]:
    """Rechecks the reservations in `Domain.rechecks`. Returns the decisions about these
    reservations, and marks the decisions as in flight. A reservation that must wait stays in
    `Domain.rechecks`."""
    made: list[Decided] = []
    waiting: list[WorkloadInfo] = []
    is_unsure = False
    for workload in _best_first(domain.rechecks):
        state.at_work = "recheck", workload
        charge = workload.charge
        domain.rechecks.pop(workload, None)
        if is_set_aside(workload):
            continue
        if charge is None or charge.queue.domain is not domain or workload.in_flight:
            continue
        if workload.state != "QuotaReserved" or not queues_admit(state, workload):
            continue
        passed = has_passed(state.catalog, workload)
        if workload.pending_preemption is not None:
            if domain.handover is not None:
                # During a handover of quota it is not certain which victims the reservation needs.
                waiting.append(workload)
                continue
            about_victims = decide_victims(state, domain, cycle, workload, now)
            if about_victims is not None:
                made += about_victims
                continue
            if not passed:
                made.append(_replan(state, domain, workload, PendingPreemption(), now))
        if not passed:
            continue
        if workload.family is not None and not families.may_be_admitted(state, workload):
            # The variant must wait for its family. The change of the family that allows the
            # variant's admission adds the variant to the rechecks again.
            continue
        if quota_reduction.flavors_not_offered(workload) or exceeds_quota(workload):
            is_unsure = True
            waiting.append(workload)
        else:
            made.append(_confirmed(state, domain, workload, now))
    state.at_work = None
    if is_unsure:
        # A reservation cannot be confirmed because quota was reduced or a flavor was removed.
        # `quota_reduction` decides which reservations are revoked, so that no more are revoked than
        # needed.
        made += quota_reduction.due_revocations(state, domain, now)
    for workload in waiting:
        if not workload.in_flight:
            domain.rechecks[workload] = None
    return made


def queues_admit(state: SchedulerState, workload: WorkloadInfo) -> bool:
    """Returns whether the ClusterQueue and the LocalQueue of the reservation still admit the
    reservation.

    An admission check that is inactive makes its ClusterQueue inactive, but does not prevent the
    admission: the verdict that the check gave before counts. If a flavor or check does not exist,
    the workload waits for it."""
    charge = workload.charge
    assert charge is not None
    catalog = state.catalog
    queue = catalog.cluster_queues.get(charge.queue.name)
    local = catalog.local_queues.get(workload.local_queue)
    if queue is None or local is None or charge.queue.node is None or charge.queue.in_cycle:
        return False
    if queue.metadata.deletion_timestamp is not None:
        return False
    if any(queue_object.spec.stop_policy not in ("", "None") for queue_object in (queue, local)):
        return False
    flavors = {
        name for place in charge.admission.pod_set_assignments for name in place.flavors.values()
    }
    checks = catalog.checks_to_pass(queue.metadata.name, charge.admission)
    return flavors <= catalog.flavors.keys() and checks.keys() <= catalog.checks.keys()


def _best_first(workloads: Iterable[WorkloadInfo]) -> list[WorkloadInfo]:
    """Returns the workloads in the given order, except that the variants of a family are together,
    the best first, because only one of them is admitted."""
    ordered = list(workloads)
    if any(workload.family is not None for workload in ordered):
        first: dict[str, int] = {}
        for at, workload in enumerate(ordered):
            first.setdefault(
                workload.family.uid if workload.family is not None else workload.uid, at
            )
        ordered.sort(
            key=lambda workload: (
                first[workload.family.uid if workload.family is not None else workload.uid],
                families.variant_place(workload),
            )
        )
    return ordered


def exceeds_quota(workload: WorkloadInfo) -> bool:
    """Returns whether any cell that the workload uses is over its limit.
    Usage of siblings that are reserved and not admitted does not count, because they are evicted
    once the workload is admitted."""
    reserved: list[WorkloadInfo] = []
    if workload.family_quota is not None:
        reserved = [
            sibling
            for sibling in workload.family_quota.members
            if sibling is not workload and sibling.state == "QuotaReserved"
        ]
    with WithoutUsage(reserved):
        return quota_reduction.exceeded_cell(workload, only_borrowing=False) is not None


def _confirmed(
    state: SchedulerState, domain: Domain, workload: WorkloadInfo, now: datetime
) -> Confirmed:
    assume_confirmed(state, domain, workload)
    if workload.family is not None:
        families.family_changed(state, workload.family, now)
    return Confirmed(**state.decision_fields(workload, domain, now))


# Victims of a reservation. ------------------------------------------------------------------


def decide_victims(
    state: SchedulerState, domain: Domain, cycle: Cycle, workload: WorkloadInfo, now: datetime
) -> list[Decided] | None:
    """Returns the decisions about a reservation with planned victims, and about the victims, and
    marks these decisions as in flight.

    Returns None if the reservation fits and needs no victim any more."""
    victims, short = _search(state, domain, cycle, workload, now)
    if not short:
        return None
    if not victims:
        return [_revoked(state, domain, workload, short, now)]
    before = workload.pending_preemption
    issued = (before is not None and before.issued) or not is_deferred(state, workload)
    staying = [victim for victim in victims if not victim.workload.is_leaving] if issued else []
    if staying and workload.family is not None and workload.closed_gate:
        # The preemption gate of the variant was closed after it got its reservation, because a
        # sibling's gate was opened. The variant must compete again before it may preempt.
        return [_revoked(state, domain, workload, short, now)]
    if any(victim.workload.in_flight for victim in staying):
        # A decision about a victim is not stored yet, so a preemption now would name a revision of
        # the victim that is about to change. When the decision about the victim is stored, the
        # domain gets a cycle.
        for victim in staying:
            victim.workload.preemptor_waits = True
        state.schedule_recheck(workload)
        return []
    made: list[Decided] = []
    plan = charging.pending_preemption_of(victims, issued=issued)
    if before is None or before.issued != plan.issued or set(before.victims) != set(plan.victims):
        made.append(_replan(state, domain, workload, plan, now))
    assert workload.charge is not None
    queue = workload.charge.queue
    loops = LoopGuard(state)
    for victim, why, message in preemption_reasons(queue, workload, staying, short):
        text = with_youth(message, state.min_runs, victim.workload, now)
        state.set_in_flight(victim.workload, domain, InFlight.PREEMPTED)
        made.append(
            Preempted(
                **state.decision_fields(victim.workload, domain, now),
                reason=victim.reason,
                message=loops.with_consequence(workload, victim, text),
                by=f"{workload.key[0]}/{workload.key[1]}",
                by_uid=workload.uid,
                grounds=why,
                times=loops.times(workload, victim.workload),
                planned=True,
            )
        )
    return made


def is_deferred(state: SchedulerState, workload: WorkloadInfo) -> bool:
    """Returns whether the victims of the reservation must not be preempted yet, because a check
    must pass first."""
    assert workload.charge is not None
    admission = workload.charge.admission
    states = dict(workload.checks)
    checks = state.catalog.checks_to_pass(admission.cluster_queue, admission)
    if any(name in workload.preemption_required_by for name in checks):
        return False
    return any(
        check.spec.preemption_policy == PREEMPTS_AFTER_CHECK and states.get(name) != READY
        for name, check in checks.items()
    )


def _replan(
    state: SchedulerState,
    domain: Domain,
    workload: WorkloadInfo,
    plan: PendingPreemption,
    now: datetime,
) -> Planned:
    """Returns the decision that replaces the reservation's plan of preemption by ``plan``, and
    assumes it."""
    assume_planned(state, domain, workload, plan)
    return Planned(**state.decision_fields(workload, domain, now), pending_preemption=plan)


def _search(
    state: SchedulerState, domain: Domain, cycle: Cycle, workload: WorkloadInfo, now: datetime
) -> tuple[list[Victim], tuple[Taken, ...]]:
    """Returns the victims that must stop before the reservation fits, and the quota that it lacks
    until then."""
    charge = workload.charge
    assert charge is not None
    need = dict(charge.cells)
    kept = _valid_victims(state, workload, now)
    charging.remove_planner_usage(state, domain, workload)
    if workload.family_quota is not None:
        need = workload.family_quota.missing_for(need)
    lack = shortfalls(need)
    short = tuple(
        [
            Taken(
                flavor=cell.fr[0],
                resource=cell.fr[1],
                amount=amount,
                available=max(0, available(cell)),
            )
            for cell, amount in need.items()
            if cell.fr in lack
        ]
    )
    victims: list[Victim] = []
    if lack and kept:
        victims = _fewest(kept, need)
    elif lack:
        search = cycle.search(charge.queue, workload, now)
        victims = search.victims(need, dict.fromkeys(lack))
        if not victims and search.yields():
            victims = search.victims(need, dict.fromkeys(lack))
    charging.restore_planner_usage(state, domain, workload)
    return victims, short


def _valid_victims(state: SchedulerState, workload: WorkloadInfo, now: datetime) -> list[Victim]:
    """Returns the planned victims of the reservation that still hold quota, if they are enough and
    each may still be preempted; empty: other victims must be searched."""
    pending = workload.pending_preemption
    if pending is None:
        return []
    rules = {(victim.namespace, victim.name): victim.reason for victim in pending.victims}
    victims = [
        Victim(victim, rules[victim.key])
        for victim in charging.outstanding_victims(state, workload)
    ]
    if not all(_may_preempt(workload, victim.workload) for victim in victims):
        return []
    if any(may_not_preempt(state.min_runs, victim.workload, now) for victim in victims):
        return []
    # Until the victims have stopped, usage may exceed quota, so the usage of the victims is
    # subtracted while this function checks whether they are enough.
    with WithoutUsage([victim.workload for victim in victims]):
        enough = exceeded_cell(workload, only_borrowing=False) is None
    return victims if enough else []


def _may_preempt(workload: WorkloadInfo, victim: WorkloadInfo) -> bool:
    assert workload.charge is not None and victim.charge is not None
    queue, theirs = workload.charge.queue, victim.charge.queue
    if victim.is_leaving or theirs.node is None:
        # A victim in a deleted queue holds nothing, so it is not needed.
        return True
    assert queue.plan is not None, "the queue admits the reservation"
    policy = queue.plan.policy
    if theirs is queue:
        return allows(policy.within, workload, victim)
    contested = [cell.fr for cell, _ in workload.charge.cells]
    return allows(policy.reclaim, workload, victim) and is_over_any(theirs.node, contested)


def _fewest(victims: list[Victim], need: Need) -> list[Victim]:
    """Returns those of the planned victims that are still needed, after other planned victims have
    stopped. Leaves all usage unchanged."""
    left = list(victims)
    for victim in left:
        remove_usage(victim.workload)
    for victim in reversed(victims):
        restore_usage(victim.workload)
        if fits(need, borrowing=True):
            left.remove(victim)
        else:
            remove_usage(victim.workload)
    for victim in left:
        restore_usage(victim.workload)
    return left


def _revoked(
    state: SchedulerState,
    domain: Domain,
    workload: WorkloadInfo,
    short: tuple[Taken, ...],
    now: datetime,
) -> Revoked:
    state.set_in_flight(workload, domain, InFlight.REVOKED)
    lack = ", ".join(
        f"{quota.resource} in flavor {quota.flavor}, "
        f"{render(quota.resource, quota.amount)} reserved, "
        f"{render(quota.resource, quota.available)} free"
        for quota in short
    )
    message = f"No workload is left that it may preempt: {lack}"
    return Revoked(
        **state.decision_fields(workload, domain, now),
        reason=reasons.QUOTA_CHANGED,
        message=message,
        shortfalls=tuple(
            Shortfall(
                pod_set="",
                flavor=quota.flavor,
                resource=quota.resource,
                requested=quota.amount,
                available=quota.available,
                reason=reasons.QUOTA_CHANGED,
                message=message,
            )
            for quota in short
        ),
    )
