"""Charges a workload for its quota and gives the quota back, with everything that depends on it:
the shared quota of its family, plans of preemption, and the usage of its LocalQueue.

While a family holds quota, its other variants ask only for what the family does not hold yet. They
wait in classes of their own and are tried again when the quota of the family changes. Source:
`docs/spec/lifecycle.md#4.6, #4.11`.
"""

from __future__ import annotations

from admittance.events.shapes import Admission
from admittance.family.policy import rules_of
from admittance.quota.cell import Cell
from admittance.scheduling.state import planned
from admittance.scheduling.state.queue import enqueue, is_in_own_class, remove_from_queue
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.shared_quota import FamilyQuota
from admittance.scheduling.state.workload_info import Charge, FamilyInfo, Queue, WorkloadInfo


def join_family_quota(state: SchedulerState, workload: WorkloadInfo) -> None:
    """Adds a charged variant to the shared quota of its family."""
    family = workload.family
    assert family is not None and workload.charge is not None
    overlap = family.quota
    if overlap is None:
        overlap = family.quota = FamilyQuota(
            state.workloads, shares=state.config.fair_sharing is not None
        )
    overlap.join(workload, workload.charge.cells)
    workload.family_quota = overlap
    workload.shared_quotas = [*(workload.shared_quotas or ()), overlap]
    family_quota_changed(state, family)


def leave_family_quota(workload: WorkloadInfo) -> FamilyInfo:
    """Takes a variant out of the shared quota of its family and returns the family.

    The charge of the variant has been given back in full, or no longer belongs to the family. The
    caller calls `family_quota_changed` once the charge is removed.
    """
    family, overlap = workload.family, workload.family_quota
    assert family is not None and overlap is not None and workload.charge is not None
    overlap.leave(workload, workload.charge.cells)
    workload.family_quota = None
    workload.shared_quotas = [
        one for one in workload.shared_quotas or () if one is not overlap
    ] or None
    if not overlap.members:
        family.quota = None
    return family


def choose_counted(state: SchedulerState, family: FamilyInfo) -> None:
    """Chooses the variant that counts in shares again, after another variant may have been
    admitted."""
    if family.quota is not None:
        family.quota.count(_counted_variant(state, family.quota))


def family_quota_changed(state: SchedulerState, family: FamilyInfo) -> None:
    """Puts the waiting variants into their classes again, after the quota of the family changed."""
    choose_counted(state, family)
    waiting: list[tuple[Queue, WorkloadInfo]] = []
    for one in family.variants:
        one.saved_search = None
        if one.queue is not None and one.entry is not None and is_in_own_class(one):
            waiting.append((one.queue, one))
            remove_from_queue(one.queue, one)
    for queue, one in waiting:
        enqueue(queue, one, state.now)
        state.queue_changed(queue)


def _counted_variant(state: SchedulerState, held: FamilyQuota[WorkloadInfo]) -> WorkloadInfo | None:
    """Returns the variant that counts in shares: the admitted one, else the best one."""
    workloads = list(held.members)
    if len(workloads) < 2:
        return workloads[0] if workloads else None
    admitted = [one for one in workloads if one.admitted_at is not None]
    if admitted:
        # With two, one has taken over and the end of the other is not stored yet.
        return max(admitted, key=lambda one: (one.admitted_at, one.uid))
    return min(workloads, key=lambda one: (_place(state, one), one.uid))


def _place(state: SchedulerState, workload: WorkloadInfo) -> int:
    family, charge = workload.family, workload.charge
    if family is None or charge is None or workload not in family.variants:
        return len(state.workloads)
    queue = state.catalog.cluster_queues.get(charge.queue.name)
    rules = rules_of(queue.spec) if queue is not None else None
    tag = rules.tag(family.tag(workload)) if rules is not None else None
    return tag.place if tag is not None else len(state.workloads)


def charge(
    state: SchedulerState,
    workload: WorkloadInfo,
    queue: Queue,
    admission: Admission,
    cells: list[tuple[Cell, int]],
) -> None:
    """Charges the workload for these amounts."""
    for cell, amount in cells:
        cell.charge(amount)
    workload.charge = Charge(queue, admission, cells)
    if workload.family is not None:
        join_family_quota(state, workload)
    queue.holding[workload] = None
    domain = queue.domain
    if domain is not None:
        if workload.pending_preemption is not None:
            planned.add_planner(state, domain, workload)
        if domain.plan_quota_varies or (
            state.planning_domains and _concerns_a_plan(state, workload)
        ):
            planned.share_quota(state, domain)
    state.bump_version(domain)
    if state.accounts is not None:
        state.accounts.update_bills(workload, state.now, is_new_amount=True)


def release(state: SchedulerState, workload: WorkloadInfo) -> Queue | None:
    """Gives back exactly what the workload was charged. Returns the queue of that quota."""
    held = workload.charge
    if held is None:
        return None
    domain = held.queue.domain
    tied = domain is not None and (domain.plan_quota_varies or workload.shared_quotas is not None)
    if domain is not None and tied:
        planned.unshare_quota(domain)
    for cell, amount in held.cells:
        cell.charge(-amount)
    family = leave_family_quota(workload) if workload.family_quota is not None else None
    workload.charge = None
    if family is not None:
        family_quota_changed(state, family)
    held.queue.holding.pop(workload, None)
    if domain is not None:
        planned.remove_planner(state, domain, workload)
        if tied:
            planned.share_quota(state, domain)
    if workload.candidate is not None:
        held.queue.remove_candidate(workload)
    state.bump_version(held.queue.domain)
    if state.accounts is not None:
        state.accounts.update_bills(workload, state.now)
    return held.queue


def _concerns_a_plan(state: SchedulerState, workload: WorkloadInfo) -> bool:
    """Returns whether a plan of preemption depends on what the workload holds. The quota of a
    variant depends on what its siblings hold."""
    return (
        workload.pending_preemption is not None
        or workload.key in state.planners_by_victim
        or workload.family_quota is not None
    )
