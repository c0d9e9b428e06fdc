"""What becomes of a reservation whose victims have not gone yet.
Source: `docs/spec/lifecycle.md#2.7, #2.8, #T07`.

Looked at whenever something happened to it or to one of its victims: whoever has gone, or need not
go any more, is no victim. Where somebody may not be preempted any longer, victims are sought anew,
and where nobody can be, the reservation is taken back. Nobody is touched before the checks that
ask for that have passed, or one of its checks wants it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from admittance.api.units import render
from admittance.events.facts import Planned, Preempted, Revoked
from admittance.events.shapes import PendingPreemption, Shortfall, Taken
from admittance.quota.cell import available
from admittance.scheduling.cycle.cycle import DEFERS, Cycle
from admittance.scheduling.cycle.outcomes import reasons
from admittance.scheduling.preemption.candidates import allows, is_over_any
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.preemption.quota_reduction import QUOTA_CHANGED, exceeded_cell
from admittance.scheduling.preemption.room import Need, fits, shortfalls
from admittance.scheduling.state import planned
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.shared_quota import (
    remove_all_usage,
    remove_usage,
    restore_all_usage,
    restore_usage,
)
from admittance.scheduling.state.workload_info import Domain, InFlight, Victim, WorkloadInfo

READY: Final = "Ready"

Pursued = Planned | Preempted | Revoked


def pursue(
    state: SchedulerState, domain: Domain, cycle: Cycle, workload: WorkloadInfo, now: datetime
) -> list[Pursued] | None:
    """What is to be stated of the reservation and its victims, each on its way from now on. None:
    it has room, and nobody has to go for it."""
    victims, short = _sought(state, domain, cycle, workload)
    if not short:
        return None
    if not victims:
        return [_revoked(state, domain, workload, short, now)]
    touches = (
        workload.pending_preemption is not None and workload.pending_preemption.issued
    ) or not is_deferred(state, workload)
    staying = [one for one in victims if not one.workload.is_leaving] if touches else []
    if staying and workload.family is not None and workload.closed_gate:
        # A sibling got the gate since: it has to ask again before anybody goes for it.
        return [_revoked(state, domain, workload, short, now)]
    if any(one.workload.in_flight for one in staying):
        # What was decided of it is not written yet: said now, it would name a revision that is
        # about to move. It stirs the domain when it lands.
        for one in staying:
            one.workload.preemptor_waits = True
        state.schedule_recheck(workload)
        return []
    stated: list[Pursued] = []
    plan = planned.pending_preemption_of(victims, issued=touches)
    before = workload.pending_preemption
    same = before is not None and before.issued == plan.issued
    if not same or before is None or set(before.victims) != set(plan.victims):
        stated.append(replan(state, domain, workload, plan, now))
    assert workload.charge is not None
    queue = workload.charge.queue
    loops = LoopGuard(state)
    for victim, why, message in reasons(queue, workload, staying, short):
        state.set_in_flight(victim.workload, domain, InFlight.PREEMPTED)
        stated.append(
            Preempted(
                **state.decision_fields(victim.workload, domain, now),
                reason=victim.reason,
                message=loops.told(workload, victim, message),
                by=f"{workload.key[0]}/{workload.key[1]}",
                by_uid=workload.uid,
                grounds=why,
                times=loops.times(workload, victim.workload),
                planned=True,
            )
        )
    return stated


def is_deferred(state: SchedulerState, workload: WorkloadInfo) -> bool:
    """Its victims are not to be touched yet."""
    assert workload.charge is not None
    admission = workload.charge.admission
    states = dict(workload.checks)
    checks = state.catalog.checks_to_pass(admission.cluster_queue, admission)
    if any(name in workload.preemption_required_by for name in checks):
        return False
    return any(
        check.spec.preemption_policy == DEFERS and states.get(name) != READY
        for name, check in checks.items()
    )


def replan(
    state: SchedulerState,
    domain: Domain,
    workload: WorkloadInfo,
    plan: PendingPreemption,
    now: datetime,
) -> Planned:
    """The plan is this one from now on, as far as is assumed."""
    state.set_in_flight(workload, domain, InFlight.PLANNED)
    planned.assume_plan(state, workload, plan)
    return Planned(**state.decision_fields(workload, domain, now), pending_preemption=plan)


def _sought(
    state: SchedulerState, domain: Domain, cycle: Cycle, workload: WorkloadInfo
) -> tuple[list[Victim], tuple[Taken, ...]]:
    """Who has to go for it as things are now, and of what there is too little without that."""
    charge = workload.charge
    assert charge is not None
    need = dict(charge.cells)
    kept = _still_good(state, workload)
    planned.remove_planner_usage(state, domain, workload)
    if workload.family_quota is not None:
        need = workload.family_quota.adds(need)
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
        victims = _no_more_than_need_be(kept, need)
    elif lack and charge.queue.plan is not None:
        victims = cycle.search(charge.queue, workload).victims(need, dict.fromkeys(lack))
    planned.restore_planner_usage(state, domain, workload)
    return victims, short


def _still_good(state: SchedulerState, workload: WorkloadInfo) -> list[Victim]:
    """Those of the plan that have not gone, if they are enough and each may still be preempted;
    empty: others have to be sought."""
    pending = workload.pending_preemption
    if pending is None:
        return []
    rules = {(one.namespace, one.name): one.reason for one in pending.victims}
    found = [Victim(one, rules[one.key]) for one in planned.outstanding_victims(state, workload)]
    if not all(_may_go(workload, one.workload) for one in found):
        return []
    # Asked as it will be: there may be more in use than there is, until they have gone.
    going = [one.workload for one in found]
    held = remove_all_usage(going)
    enough = exceeded_cell(workload, only_borrowing=False) is None
    restore_all_usage(going, held)
    return found if enough else []


def _may_go(workload: WorkloadInfo, victim: WorkloadInfo) -> bool:
    assert workload.charge is not None and victim.charge is not None
    if victim.is_leaving:
        return True
    queue, theirs = workload.charge.queue, victim.charge.queue
    if queue.plan is None or theirs.node is None:
        return False
    policy = queue.plan.policy
    if theirs is queue:
        return allows(policy.within, workload, victim)
    contested = [cell.fr for cell, _ in workload.charge.cells]
    return allows(policy.reclaim, workload, victim) and is_over_any(theirs.node, contested)


def _no_more_than_need_be(victims: list[Victim], need: Need) -> list[Victim]:
    """Spares whoever need not go any more since others have; the state is as before."""
    left = list(victims)
    for one in left:
        remove_usage(one.workload)
    if fits(need, borrowing=True):
        for one in reversed(victims):
            restore_usage(one.workload)
            if len(left) > 1 and fits(need, borrowing=True):
                left.remove(one)
            else:
                remove_usage(one.workload)
    for one in left:
        restore_usage(one.workload)
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
        f"{one.resource} in flavor {one.flavor}, {render(one.resource, one.amount)} reserved, "
        f"{render(one.resource, one.available)} free"
        for one in short
    )
    message = f"There is nobody left to preempt for it: {lack}"
    return Revoked(
        **state.decision_fields(workload, domain, now),
        reason=QUOTA_CHANGED,
        message=message,
        shortfalls=tuple(
            Shortfall(
                pod_set="",
                flavor=one.flavor,
                resource=one.resource,
                requested=one.amount,
                available=one.available,
                reason=QUOTA_CHANGED,
                message=message,
            )
            for one in short
        ),
    )
