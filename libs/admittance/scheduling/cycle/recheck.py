"""The look at a reservation before it becomes an admission.
Source: `docs/spec/lifecycle.md#2.8, #T08, #T09`.

Whether a reservation has passed its checks is found out when it, or what it has to pass, changes;
those that have are kept in ``Domain.rechecks``, and looked at before the heads of the next cycle.
Nothing is charged by a confirmation, so that as many go into one batch as there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from admittance.events.facts import Confirmed
from admittance.events.shapes import PendingPreemption
from admittance.quota.catalog import Catalog
from admittance.scheduling.cycle.cycle import Cycle
from admittance.scheduling.cycle.outcomes import Decided
from admittance.scheduling.cycle.pursuit import READY, pursue, replan
from admittance.scheduling.families import siblings
from admittance.scheduling.preemption import quota_reduction
from admittance.scheduling.state import planned
from admittance.scheduling.state.queue import Domain, Queue
from admittance.scheduling.state.shared_quota import put_all, take_all
from admittance.scheduling.state.state import SchedulerState
from admittance.scheduling.state.workload_info import InFlight, WorkloadInfo


def note(world: SchedulerState, member: WorkloadInfo) -> None:
    """The workload is stored anew: it is to be looked at, or no longer."""
    charge = member.charge
    if charge is None or world.config.as_kueue:
        return
    if member.state == "QuotaReserved" and (
        member.pending is not None or has_passed(world.catalog, member)
    ):
        world.look_again(member)
    elif charge.queue.domain is not None:
        charge.queue.domain.rechecks.pop(member, None)


def note_all(world: SchedulerState, queue: Queue) -> None:
    """What its reservations have to pass may be something else now."""
    for member in queue.holding:
        if member.state == "QuotaReserved":
            note(world, member)


def has_passed(catalog: Catalog, member: WorkloadInfo) -> bool:
    """Every check that its reservation has to pass says Ready, by name."""
    assert member.charge is not None
    admission = member.charge.admission
    states = dict(member.checks)
    names = catalog.checks_to_pass(admission.cluster_queue, admission)
    return all(states.get(name) == READY for name in names)


def may_go_on(world: SchedulerState, member: WorkloadInfo) -> bool:
    """The queues admit what is reserved there. One that is inactive because a check cannot judge at
    the moment makes no new reservation, but a verdict that was given counts; without its flavor or
    check a workload waits for that to come back."""
    charge = member.charge
    assert charge is not None
    catalog = world.catalog
    queue = catalog.cluster_queues.get(charge.queue.name)
    local = catalog.local_queues.get(member.local)
    if queue is None or local is None or charge.queue.node is None or charge.queue.in_cycle:
        return False
    if queue.metadata.deletion_timestamp is not None:
        return False
    if any(one.spec.stop_policy not in ("", "None") for one in (queue, local)):
        return False
    flavors = {
        name for place in charge.admission.pod_set_assignments for name in place.flavors.values()
    }
    checks = catalog.checks_to_pass(queue.metadata.name, charge.admission)
    return flavors <= catalog.flavors.keys() and checks.keys() <= catalog.checks.keys()


def due(
    world: SchedulerState,
    domain: Domain,
    cycle: Cycle,
    now: datetime,
    only: Sequence[WorkloadInfo] | None = None,
) -> list[Decided]:
    """What is to be stated of reservations that have passed their checks, or plan to preempt; each
    is on its way from now on. Whoever has to wait for others to leave is looked at again when they
    have. ``only``: of these, in this order."""
    stated: list[Decided] = []
    waiting: list[WorkloadInfo] = []
    unsure = False
    for member in _best_first(domain.rechecks) if only is None else only:
        charge = member.charge
        domain.rechecks.pop(member, None)
        if charge is None or charge.queue.domain is not domain or member.inflight:
            continue
        if member.state != "QuotaReserved" or not may_go_on(world, member):
            continue
        passed = has_passed(world.catalog, member)
        if member.pending is not None:
            if domain in world.joints:
                # Who is a victim for whom is not certain yet.
                waiting.append(member)
                continue
            pursued = pursue(world, domain, cycle, member, now)
            if pursued is not None:
                stated += pursued
                continue
            if not passed:
                stated.append(replan(world, domain, member, PendingPreemption(), now))
        if not passed:
            continue
        if member.family is not None and not siblings.may_be_admitted(world, member):
            # Whatever changes that lets it be looked at again.
            continue
        if quota_reduction.offered_no_more(member) or is_too_much(member):
            unsure = True
            waiting.append(member)
        else:
            stated.append(_confirmed(world, domain, member, now))
    if unsure:
        # The same question as after an edit, so that no more go than need be.
        stated += quota_reduction.due(world, domain, now)
    for member in waiting:
        if not member.inflight:
            domain.rechecks[member] = None
    return stated


def _best_first(members: Iterable[WorkloadInfo]) -> list[WorkloadInfo]:
    """In the given order, but of one family the best variant first: only that one goes on."""
    found = list(members)
    if any(one.family is not None for one in found):
        first: dict[str, int] = {}
        for at, one in enumerate(found):
            first.setdefault(one.family.uid if one.family is not None else one.uid, at)
        found.sort(
            key=lambda one: (
                first[one.family.uid if one.family is not None else one.uid],
                siblings.place(one),
            )
        )
    return found


def is_too_much(member: WorkloadInfo) -> bool:
    """With it there is more in use than there may be. Siblings that are merely reserved are no
    excuse for that: they go once it is admitted."""
    rivals: list[WorkloadInfo] = []
    if member.overlap is not None:
        rivals = [
            one
            for one in member.overlap.members
            if one is not member and one.state == "QuotaReserved"
        ]
    held = take_all(rivals)
    found = quota_reduction.burdened(member, guilty=False)
    put_all(rivals, held)
    return found is not None


def _confirmed(
    world: SchedulerState, domain: Domain, member: WorkloadInfo, now: datetime
) -> Confirmed:
    world.under_way(member, domain, InFlight.CONFIRMED)
    world.starting.begins(member, domain)
    planned.suppose(world, member, None)
    if member.family is not None:
        siblings.touched(world, member.family, now)
    return Confirmed(**world.about(member, domain, now))
