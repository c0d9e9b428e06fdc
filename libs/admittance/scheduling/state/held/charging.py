"""Charges workloads for quota and gives quota back, and keeps what depends on charges up to date:
plans of preemption, the shared quota of a family, and the usage of LocalQueues.

A reservation may be stored before its victims have stopped, so that its checks can decide first.
The reservation (the planner) counts as usage, and quota that the victims hold and the planner will
get counts once: see `plan_quota.PlanQuota`, which is recomputed when a plan, the quota of a
planner or victim, or the cohort tree changes. Plans are read from stored workloads, so the next
leader continues with the same plans. Source: `docs/spec/lifecycle.md#2.7`, `docs/decisions/0016-…`.

While a family of variants holds quota, its other variants request only what the family does not
hold yet. Variants of a family with quota wait in classes of their own and are tried again when the
quota of the family changes. Source: `docs/spec/lifecycle.md#4.6, #4.11`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from admittance.events.shapes import Admission, PendingPreemption, PlannedVictim
from admittance.family import rules_of
from admittance.quota.cell import Cell
from admittance.scheduling.state.held.plan_quota import Plan, PlanLevel, PlanQuota, connected
from admittance.scheduling.state.held.shared_quota import FamilyQuota, remove_usage, restore_usage
from admittance.scheduling.state.queue import enqueue, is_in_own_class, remove_from_queue
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import (
    Charge,
    Domain,
    FamilyInfo,
    Queue,
    Victim,
    WorkloadInfo,
)

# Plans of preemption. -----------------------------------------------------------------------


def set_plan(
    state: SchedulerState, planner: WorkloadInfo, pending: PendingPreemption | None
) -> None:
    """Sets a workload's plan of preemption: the victims for which its reservation waits; None: it
    waits for no victim."""
    if pending is not None and not pending.victims:
        pending = None
    before = planner.pending_preemption
    if before == pending:
        return
    if before is not None:
        for victim in before.victims:
            planners = state.planners_by_victim[victim.namespace, victim.name]
            planners.pop(planner, None)
            if not planners:
                del state.planners_by_victim[victim.namespace, victim.name]
    planner.pending_preemption = pending
    if pending is not None:
        for victim in pending.victims:
            state.planners_by_victim.setdefault((victim.namespace, victim.name), {})[planner] = None
    charge = planner.charge
    domain = charge.queue.domain if charge is not None else None
    if domain is not None:
        add_planner(state, domain, planner)
        share_quota(state, domain)
        state.bump_version(domain)


def add_planner(state: SchedulerState, domain: Domain, workload: WorkloadInfo) -> None:
    """Adds the workload to the planners of its domain if it has a plan to preempt victims."""
    if workload.pending_preemption is not None:
        domain.planners[workload] = None
        state.planning_domains[domain] = None
    else:
        remove_planner(state, domain, workload)


def remove_planner(state: SchedulerState, domain: Domain, workload: WorkloadInfo) -> None:
    """Removes the workload from the planners of the domain."""
    domain.planners.pop(workload, None)
    if not domain.planners:
        state.planning_domains.pop(domain, None)


def may_plan(domain: Domain | None) -> bool:
    """Returns whether reservations may be stored before their victims have stopped.

    In a domain with a lending limit, the victims must stop before the reservation is stored. With a
    lending limit the usage that counts at a cohort depends on the order in which workloads come and
    go, so no shared amount is right for every order in which plans may end. Kueue always stores a
    reservation after its victims have stopped."""
    if domain is None:
        return False
    if domain.lending_limited is None or domain.lending_limited[0] != domain.generation:
        domain.lending_limited = domain.generation, _keeps_for_itself(domain)
    return not domain.lending_limited[1]


def _keeps_for_itself(domain: Domain) -> bool:
    """Returns whether a queue or cohort of the domain does not lend all of its quota."""
    for queue in domain.queues:
        for cell in queue.node.cells.values() if queue.node is not None else ():
            here = cell
            while here.parent is not None:
                if here.guaranteed:
                    return True
                here = here.parent
    return False


def pending_preemption_of(victims: Iterable[Victim], *, issued: bool) -> PendingPreemption:
    """Returns the plan to preempt the given victims, in its stored form."""
    return PendingPreemption(
        victims=tuple(
            [
                PlannedVictim(
                    namespace=victim.workload.key[0],
                    name=victim.workload.key[1],
                    uid=victim.workload.uid,
                    since=victim.workload.reserved_at,
                    reason=victim.reason,
                )
                for victim in victims
            ]
        ),
        issued=issued,
    )


def outstanding_victims(state: SchedulerState, planner: WorkloadInfo) -> Iterator[WorkloadInfo]:
    """Yields the victims of the planner that still hold quota which the planner will get."""
    plan = planner.pending_preemption
    for planned in plan.victims if plan is not None else ():
        workload = state.workloads.get((planned.namespace, planned.name))
        if workload is None or workload.charge is None or workload is planner:
            continue
        if workload.uid == planned.uid and planned.since in (None, workload.reserved_at):
            yield workload


# Shared quota. ------------------------------------------------------------------------------


def share_quota(state: SchedulerState, domain: Domain, absent: WorkloadInfo | None = None) -> None:
    """Recomputes the quota that the domain's planners share with their victims. ``absent``: a
    workload to treat as if it had no usage."""
    unshare_quota(domain)
    domain.plan_quota_varies = False
    plans = list(_measured_plans(state, domain, absent))
    if not domain.plan_quota_varies:
        for chained in connected(plans):
            _share(domain, PlanQuota(chained))
        return
    # What a workload adds to the usage of a cell depends on the others, so each plan is measured
    # beside what those before it share.
    for plan in _measured_plans(state, domain, absent):
        _share(domain, PlanQuota([plan]))


def _measured_plans(
    state: SchedulerState, domain: Domain, absent: WorkloadInfo | None
) -> Iterator[Plan[WorkloadInfo]]:
    for planner in sorted(domain.planners, key=_oldest_first):
        if planner.charge is not None:
            victims = [
                victim for victim in outstanding_victims(state, planner) if victim is not absent
            ]
            for cell, _ in planner.charge.cells if victims else ():
                plan = _measured_plan(domain, planner, cell, victims)
                if plan is not None:
                    yield plan


def _share(domain: Domain, shared: PlanQuota[WorkloadInfo]) -> None:
    domain.plan_quotas.append(shared)
    for workload in shared.members:
        workload.shared_quotas = [*(workload.shared_quotas or ()), shared]


def remove_planner_usage(state: SchedulerState, domain: Domain, planner: WorkloadInfo) -> None:
    """Subtracts the usage of the planner, and ignores its plan, until `restore_planner_usage`."""
    assert planner.charge is not None
    unshare_quota(domain)
    domain.planners.pop(planner, None)
    remove_usage(planner)
    share_quota(state, domain, absent=planner)


def restore_planner_usage(state: SchedulerState, domain: Domain, planner: WorkloadInfo) -> None:
    """Undoes `remove_planner_usage`: charges the planner, with quota that it shares with its
    victims."""
    unshare_quota(domain)
    restore_usage(planner)
    add_planner(state, domain, planner)
    share_quota(state, domain)


def unshare_quota(domain: Domain) -> None:
    """Ends all shared quota of the domain's planners and victims: each of them is charged
    in full."""
    for shared in domain.plan_quotas:
        shared.end()
        for member in shared.members:
            member.shared_quotas = (
                [member.family_quota] if member.family_quota is not None else None
            )
    domain.plan_quotas.clear()


def unshare_all_quota(state: SchedulerState) -> None:
    """Charges the planners and victims of all domains in full while a cohort tree changes, until
    `share_all_quota`."""
    for domain in state.planning_domains:
        unshare_quota(domain)


def share_all_quota(state: SchedulerState) -> None:
    """Undoes `unshare_all_quota`: recomputes the shared quota of all domains in the cohort trees as
    they are now."""
    for domain in list(state.planning_domains):
        share_quota(state, domain)


def _oldest_first(planner: WorkloadInfo) -> tuple[float, str]:
    since = planner.reserved_at
    return (since.timestamp() if since is not None else float("inf")), planner.uid


def _measured_plan(
    domain: Domain, planner: WorkloadInfo, cell: Cell, victims: list[WorkloadInfo]
) -> Plan[WorkloadInfo] | None:
    """Measures what planner and victims add to the usage of the cells above them, of one flavor and
    resource, by subtracting them for a while. Returns None if planner and victims share no quota of
    that flavor and resource."""
    path: list[Cell] = []
    here: Cell | None = cell
    while here is not None:
        path.append(here)
        here = here.parent
    met = {victim: at for victim in victims if (at := _meeting(domain, path, victim)) is not None}
    if not met:
        return None
    cells = path[min(met.values()) :]
    before = [
        plan
        for shared in (domain.plan_quotas if domain.plan_quota_varies else ())
        for plan in shared.plans
        if plan.levels[-1].cell is path[-1]
    ]
    # Usage below a node does not count above it while it fits into quota that the node does not
    # lend. Therefore each of two planners below one node may seem to add to the parent's usage what
    # only both of them together add.
    own = {planner, *met}
    others = dict.fromkeys(plan.planner for plan in before if plan.planner not in own)
    mine = _falls(cells, [*others, planner])[planner]
    if not any(mine):
        return None
    others = dict.fromkeys(other for plan in before for other in plan.victims if other not in own)
    falls = _falls(cells, [*others, *met])
    levels = [
        PlanLevel(above, mine[at], {victim: falls[victim][at] for victim in met})
        for at, above in enumerate(cells)
    ]
    return Plan(planner, list(met), levels)


def _meeting(domain: Domain, path: list[Cell], victim: WorkloadInfo) -> int | None:
    """Returns the index in ``path``, the planner's cells up to the root, of the lowest cell that is
    also above the victim; None: the victim holds no such quota."""
    assert victim.charge is not None
    there = next((cell for cell, _ in victim.charge.cells if cell.fr == path[0].fr), None)
    private = False
    while there is not None and there not in path:
        private = private or bool(there.guaranteed)
        there = there.parent
    if there is None:
        return None
    at = path.index(there)
    domain.plan_quota_varies = (
        domain.plan_quota_varies or private or any(cell.guaranteed for cell in path[:-1])
    )
    return at


def _falls(cells: list[Cell], workloads: list[WorkloadInfo]) -> dict[WorkloadInfo, list[int]]:
    """Subtracts the usage of the workloads one after the other. Returns for each workload by how
    much the usage of each cell fell. Restores all usage at the end."""
    falls: dict[WorkloadInfo, list[int]] = {}
    for workload in workloads:
        falls[workload] = [cell.usage for cell in cells]
        remove_usage(workload)
        for at, cell in enumerate(cells):
            falls[workload][at] -= cell.usage
    for workload in reversed(workloads):
        restore_usage(workload)
    return falls


# Quota of families. --------------------------------------------------------------------------


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
    """Takes a variant out of the shared quota of its family and returns the family. The caller must
    have given the variant's charge back in full before, or detach the variant from the family, and
    must call `family_quota_changed` afterwards."""
    family, overlap = workload.family, workload.family_quota
    assert family is not None and overlap is not None and workload.charge is not None
    overlap.leave(workload, workload.charge.cells)
    workload.family_quota = None
    workload.shared_quotas = [
        shared for shared in workload.shared_quotas or () if shared is not overlap
    ] or None
    if not overlap.members:
        family.quota = None
    return family


def choose_counted(state: SchedulerState, family: FamilyInfo) -> None:
    """Chooses anew which variant of the family counts in shares. Must be called after another
    variant may have been admitted."""
    if family.quota is not None:
        family.quota.count(_counted_variant(state, family.quota))


def family_quota_changed(state: SchedulerState, family: FamilyInfo) -> None:
    """Puts the waiting variants of the family into the classes where they belong now. Must be
    called after the quota of the family changed."""
    choose_counted(state, family)
    waiting: list[tuple[Queue, WorkloadInfo]] = []
    for variant in family.variants:
        variant.saved_search = None
        queue = variant.queue
        if queue is not None and variant.entry is not None and is_in_own_class(queue, variant):
            waiting.append((queue, variant))
            remove_from_queue(queue, variant)
    for queue, variant in waiting:
        enqueue(queue, variant, state.now)
        state.queue_changed(queue)


def _counted_variant(state: SchedulerState, held: FamilyQuota[WorkloadInfo]) -> WorkloadInfo | None:
    """Returns the variant of the family that counts in shares: the admitted variant, or if none is
    admitted, the variant with quota that has the best place in the order of preference."""
    workloads = list(held.members)
    if len(workloads) < 2:
        return workloads[0] if workloads else None
    admitted = [variant for variant in workloads if variant.admitted_at is not None]
    if admitted:
        # Two variants of a family are admitted for a short time in a migration: until the eviction
        # of the replaced variant is stored.
        return max(admitted, key=lambda variant: (variant.admitted_at, variant.uid))
    return min(workloads, key=lambda variant: (_place(state, variant), variant.uid))


def _place(state: SchedulerState, workload: WorkloadInfo) -> int:
    family, charge = workload.family, workload.charge
    if family is None or charge is None or workload not in family.variants:
        return len(state.workloads)
    queue = state.catalog.cluster_queues.get(charge.queue.name)
    rules = rules_of(queue.spec) if queue is not None else None
    tag = rules.tag(family.tag(workload)) if rules is not None else None
    return tag.place if tag is not None else len(state.workloads)


# Charging. -----------------------------------------------------------------------------------


def charge(
    state: SchedulerState,
    workload: WorkloadInfo,
    queue: Queue,
    admission: Admission,
    cells: list[tuple[Cell, int]],
) -> None:
    """Charges the workload for the amounts in ``cells``."""
    for cell, amount in cells:
        cell.charge(amount)
    workload.charge = Charge(queue, admission, cells)
    if workload.family is not None:
        join_family_quota(state, workload)
    queue.holding[workload] = None
    domain = queue.domain
    if domain is not None:
        if workload.pending_preemption is not None:
            add_planner(state, domain, workload)
        if domain.plan_quota_varies or (
            state.planning_domains and _concerns_a_plan(state, workload)
        ):
            share_quota(state, domain)
    state.bump_version(domain)
    if queue.limits is not None:
        queue.limits.update(workload)
    if state.accounts is not None:
        state.accounts.update_bills(workload, state.now, is_new_amount=True)


def release(state: SchedulerState, workload: WorkloadInfo) -> Queue | None:
    """Gives back exactly the amounts for which the workload was charged. Returns the queue that was
    charged; None: the workload held no quota."""
    held = workload.charge
    if held is None:
        return None
    domain = held.queue.domain
    tied = domain is not None and (domain.plan_quota_varies or workload.shared_quotas is not None)
    if domain is not None and tied:
        unshare_quota(domain)
    for cell, amount in held.cells:
        cell.charge(-amount)
    family = leave_family_quota(workload) if workload.family_quota is not None else None
    workload.charge = None
    if family is not None:
        family_quota_changed(state, family)
    held.queue.holding.pop(workload, None)
    if domain is not None:
        remove_planner(state, domain, workload)
        if tied:
            share_quota(state, domain)
    if workload.candidate is not None:
        held.queue.remove_candidate(workload)
    state.bump_version(held.queue.domain)
    if held.queue.limits is not None:
        held.queue.limits.update(workload)
    if state.accounts is not None:
        state.accounts.update_bills(workload, state.now)
    return held.queue


def count_person(workload: WorkloadInfo) -> None:
    """Counts the quota of the workload for its persons again, after what they are read from or the
    family of the workload may have changed."""
    if workload.charge is not None and workload.charge.queue.limits is not None:
        workload.charge.queue.limits.update(workload)


def _concerns_a_plan(state: SchedulerState, workload: WorkloadInfo) -> bool:
    """Returns whether a plan of preemption depends on what the workload holds. The answer is True
    for a variant with family quota, because plans of its siblings may depend on that quota."""
    return (
        workload.pending_preemption is not None
        or workload.key in state.planners_by_victim
        or workload.family_quota is not None
    )
