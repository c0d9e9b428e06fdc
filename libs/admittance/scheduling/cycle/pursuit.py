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
from admittance.scheduling.preemption.loop_guard import LoopGuard
from admittance.scheduling.preemption.quota_reduction import QUOTA_CHANGED, burdened
from admittance.scheduling.preemption.room import Need, fits, lacking
from admittance.scheduling.preemption.victims import allows, is_over_any
from admittance.scheduling.state import planned
from admittance.scheduling.state.queue import Domain
from admittance.scheduling.state.shared_quota import put_all, put_back, take_all, take_out
from admittance.scheduling.state.state import SchedulerState
from admittance.scheduling.state.workload_info import InFlight, Victim, WorkloadInfo

READY: Final = "Ready"

Pursued = Planned | Preempted | Revoked


def pursue(
    world: SchedulerState, domain: Domain, cycle: Cycle, member: WorkloadInfo, now: datetime
) -> list[Pursued] | None:
    """What is to be stated of the reservation and its victims, each on its way from now on. None:
    it has room, and nobody has to go for it."""
    victims, short = _sought(world, domain, cycle, member)
    if not short:
        return None
    if not victims:
        return [_revoked(world, domain, member, short, now)]
    touches = (member.pending is not None and member.pending.issued) or not is_deferred(
        world, member
    )
    staying = [one for one in victims if not one.member.is_leaving] if touches else []
    if staying and member.family is not None and member.closed_gate:
        # A sibling got the gate since: it has to ask again before anybody goes for it.
        return [_revoked(world, domain, member, short, now)]
    if any(one.member.inflight for one in staying):
        # What was decided of it is not written yet: said now, it would name a revision that is
        # about to move. It stirs the domain when it lands.
        for one in staying:
            one.member.awaited = True
        world.look_again(member)
        return []
    stated: list[Pursued] = []
    plan = planned.plan_of(victims, issued=touches)
    before = member.pending
    same = before is not None and before.issued == plan.issued
    if not same or before is None or set(before.victims) != set(plan.victims):
        stated.append(replan(world, domain, member, plan, now))
    assert member.charge is not None
    queue = member.charge.queue
    loops = LoopGuard(world)
    for victim, why, message in reasons(queue, member, staying, short):
        world.under_way(victim.member, domain, InFlight.PREEMPTED)
        stated.append(
            Preempted(
                **world.about(victim.member, domain, now),
                reason=victim.reason,
                message=loops.told(member, victim, message),
                by=f"{member.key[0]}/{member.key[1]}",
                by_uid=member.uid,
                grounds=why,
                times=loops.times(member, victim.member),
                planned=True,
            )
        )
    return stated


def is_deferred(world: SchedulerState, member: WorkloadInfo) -> bool:
    """Its victims are not to be touched yet."""
    assert member.charge is not None
    admission = member.charge.admission
    states = dict(member.checks)
    checks = world.catalog.checks_to_pass(admission.cluster_queue, admission)
    if any(name in member.asking for name in checks):
        return False
    return any(
        check.spec.preemption_policy == DEFERS and states.get(name) != READY
        for name, check in checks.items()
    )


def replan(
    world: SchedulerState,
    domain: Domain,
    member: WorkloadInfo,
    plan: PendingPreemption,
    now: datetime,
) -> Planned:
    """The plan is this one from now on, as far as is assumed."""
    world.under_way(member, domain, InFlight.PLANNED)
    planned.suppose(world, member, plan)
    return Planned(**world.about(member, domain, now), pending_preemption=plan)


def _sought(
    world: SchedulerState, domain: Domain, cycle: Cycle, member: WorkloadInfo
) -> tuple[list[Victim], tuple[Taken, ...]]:
    """Who has to go for it as things are now, and of what there is too little without that."""
    charge = member.charge
    assert charge is not None
    need = dict(charge.cells)
    kept = _still_good(world, member)
    planned.without(world, domain, member)
    if member.overlap is not None:
        need = member.overlap.adds(need)
    lack = lacking(need)
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
        victims = cycle.search(charge.queue, member).victims(need, dict.fromkeys(lack))
    planned.with_it(world, domain, member)
    return victims, short


def _still_good(world: SchedulerState, member: WorkloadInfo) -> list[Victim]:
    """Those of the plan that have not gone, if they are enough and each may still be preempted;
    empty: others have to be sought."""
    pending = member.pending
    if pending is None:
        return []
    rules = {(one.namespace, one.name): one.reason for one in pending.victims}
    found = [Victim(one, rules[one.key]) for one in planned.outstanding(world, member)]
    if not all(_may_go(member, one.member) for one in found):
        return []
    # Asked as it will be: there may be more in use than there is, until they have gone.
    going = [one.member for one in found]
    held = take_all(going)
    enough = burdened(member, guilty=False) is None
    put_all(going, held)
    return found if enough else []


def _may_go(member: WorkloadInfo, victim: WorkloadInfo) -> bool:
    assert member.charge is not None and victim.charge is not None
    if victim.is_leaving:
        return True
    queue, theirs = member.charge.queue, victim.charge.queue
    if queue.plan is None or theirs.node is None:
        return False
    policy = queue.plan.policy
    if theirs is queue:
        return allows(policy.within, member, victim)
    contested = [cell.fr for cell, _ in member.charge.cells]
    return allows(policy.reclaim, member, victim) and is_over_any(theirs.node, contested)


def _no_more_than_need_be(victims: list[Victim], need: Need) -> list[Victim]:
    """Spares whoever need not go any more since others have; the picture is as before."""
    left = list(victims)
    for one in left:
        take_out(one.member)
    if fits(need, borrowing=True):
        for one in reversed(victims):
            put_back(one.member)
            if len(left) > 1 and fits(need, borrowing=True):
                left.remove(one)
            else:
                take_out(one.member)
    for one in left:
        put_back(one.member)
    return left


def _revoked(
    world: SchedulerState,
    domain: Domain,
    member: WorkloadInfo,
    short: tuple[Taken, ...],
    now: datetime,
) -> Revoked:
    world.under_way(member, domain, InFlight.REVOKED)
    lack = ", ".join(
        f"{one.resource} in flavor {one.flavor}, {render(one.resource, one.amount)} reserved, "
        f"{render(one.resource, one.available)} free"
        for one in short
    )
    message = f"There is nobody left to preempt for it: {lack}"
    return Revoked(
        **world.about(member, domain, now),
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
