"""The look at a reservation before it becomes an admission.
Source: `docs/spec/lifecycle.md#2.8, #T08, #T09`.

Whether a reservation has passed its checks is found out when it, or what it has to pass, changes;
those that have are kept in ``Domain.rechecks``, and looked at before the heads of the next cycle.
Nothing is charged by a confirmation, so that as many go into one batch as there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from admittance.events.facts import Confirmed
from admittance.events.shapes import PendingPreemption
from admittance.quota.catalog import Catalog
from admittance.scheduling import families
from admittance.scheduling.cycle.cycle import Cycle
from admittance.scheduling.cycle.outcomes import Decided
from admittance.scheduling.cycle.pursuit import READY, pursue, replan
from admittance.scheduling.preemption import quota_reduction
from admittance.scheduling.state import planned
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.shared_quota import remove_all_usage, restore_all_usage
from admittance.scheduling.state.workload_info import Domain, InFlight, Queue, WorkloadInfo


def note(state: SchedulerState, workload: WorkloadInfo) -> None:
    """The workload is stored anew: it is to be looked at, or no longer."""
    charge = workload.charge
    if charge is None or state.config.as_kueue:
        return
    if workload.state == "QuotaReserved" and (
        workload.pending_preemption is not None or has_passed(state.catalog, workload)
    ):
        state.schedule_recheck(workload)
    elif charge.queue.domain is not None:
        charge.queue.domain.rechecks.pop(workload, None)


def note_all(state: SchedulerState, queue: Queue) -> None:
    """What its reservations have to pass may be something else now."""
    for workload in queue.holding:
        if workload.state == "QuotaReserved":
            note(state, workload)


def has_passed(catalog: Catalog, workload: WorkloadInfo) -> bool:
    """Every check that its reservation has to pass says Ready, by name."""
    assert workload.charge is not None
    admission = workload.charge.admission
    states = dict(workload.checks)
    names = catalog.checks_to_pass(admission.cluster_queue, admission)
    return all(states.get(name) == READY for name in names)


def may_go_on(state: SchedulerState, workload: WorkloadInfo) -> bool:
    """The queues admit what is reserved there. One that is inactive because a check cannot judge at
    the moment makes no new reservation, but a verdict that was given counts; without its flavor or
    check a workload waits for that to come back."""
    charge = workload.charge
    assert charge is not None
    catalog = state.catalog
    queue = catalog.cluster_queues.get(charge.queue.name)
    local = catalog.local_queues.get(workload.local_queue)
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
    state: SchedulerState,
    domain: Domain,
    cycle: Cycle,
    now: datetime,
) -> list[Decided]:
    """What is to be stated of reservations that have passed their checks, or plan to preempt; each
    is on its way from now on. Whoever has to wait for others to leave is looked at again when they
    have."""
    stated: list[Decided] = []
    waiting: list[WorkloadInfo] = []
    unsure = False
    for workload in _best_first(domain.rechecks):
        charge = workload.charge
        domain.rechecks.pop(workload, None)
        if charge is None or charge.queue.domain is not domain or workload.in_flight:
            continue
        if workload.state != "QuotaReserved" or not may_go_on(state, workload):
            continue
        passed = has_passed(state.catalog, workload)
        if workload.pending_preemption is not None:
            if domain in state.handovers:
                # Who is a victim for whom is not certain yet.
                waiting.append(workload)
                continue
            pursued = pursue(state, domain, cycle, workload, now)
            if pursued is not None:
                stated += pursued
                continue
            if not passed:
                stated.append(replan(state, domain, workload, PendingPreemption(), now))
        if not passed:
            continue
        if workload.family is not None and not families.may_be_admitted(state, workload):
            # Whatever changes that lets it be looked at again.
            continue
        if quota_reduction.flavors_not_offered(workload) or is_too_much(workload):
            unsure = True
            waiting.append(workload)
        else:
            stated.append(_confirmed(state, domain, workload, now))
    if unsure:
        # The same question as after an edit, so that no more go than need be.
        stated += quota_reduction.due(state, domain, now)
    for workload in waiting:
        if not workload.in_flight:
            domain.rechecks[workload] = None
    return stated


def _best_first(workloads: Iterable[WorkloadInfo]) -> list[WorkloadInfo]:
    """In the given order, but of one family the best variant first: only that one goes on."""
    found = list(workloads)
    if any(one.family is not None for one in found):
        first: dict[str, int] = {}
        for at, one in enumerate(found):
            first.setdefault(one.family.uid if one.family is not None else one.uid, at)
        found.sort(
            key=lambda one: (
                first[one.family.uid if one.family is not None else one.uid],
                families.variant_place(one),
            )
        )
    return found


def is_too_much(workload: WorkloadInfo) -> bool:
    """With it there is more in use than there may be. Siblings that are merely reserved are no
    excuse for that: they go once it is admitted."""
    rivals: list[WorkloadInfo] = []
    if workload.family_quota is not None:
        rivals = [
            one
            for one in workload.family_quota.members
            if one is not workload and one.state == "QuotaReserved"
        ]
    held = remove_all_usage(rivals)
    found = quota_reduction.exceeded_cell(workload, only_borrowing=False)
    restore_all_usage(rivals, held)
    return found is not None


def _confirmed(
    state: SchedulerState, domain: Domain, workload: WorkloadInfo, now: datetime
) -> Confirmed:
    state.set_in_flight(workload, domain, InFlight.CONFIRMED)
    state.pods_ready.assume_admitted(workload, domain)
    planned.assume_plan(state, workload, None)
    if workload.family is not None:
        families.family_changed(state, workload.family, now)
    return Confirmed(**state.decision_fields(workload, domain, now))
