"""Reservations that plan to preempt victims, read from stored workloads so that the next leader
continues. Source: `docs/spec/lifecycle.md#2.7`, `docs/decisions/0016-…`.

A reservation may be stored before its victims have stopped, so that its checks can judge it first.
It counts as usage, and the quota that passes to it from its victims counts once: see
`shared_quota.PlanQuota`. Shared quota is computed again when a plan, the quota of a planner or
victim, or the tree changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from admittance.events.shapes import PendingPreemption, PlannedVictim
from admittance.quota.cell import Cell
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.shared_quota import (
    PlanQuota,
    SharedLevel,
    remove_usage,
    restore_usage,
)
from admittance.scheduling.state.workload_info import Domain, Victim, WorkloadInfo


def set_plan(
    state: SchedulerState, planner: WorkloadInfo, pending: PendingPreemption | None
) -> None:
    """Sets the victims that the planner waits for; None: it waits for none."""
    if pending is not None and not pending.victims:
        pending = None
    before = planner.pending_preemption
    if before == pending:
        return
    if before is not None:
        for one in before.victims:
            planners = state.planners_by_victim[one.namespace, one.name]
            planners.pop(planner, None)
            if not planners:
                del state.planners_by_victim[one.namespace, one.name]
    planner.pending_preemption = pending
    if pending is not None:
        for one in pending.victims:
            state.planners_by_victim.setdefault((one.namespace, one.name), {})[planner] = None
    charge = planner.charge
    domain = charge.queue.domain if charge is not None else None
    if domain is not None:
        add_planner(state, domain, planner)
        share_quota(state, domain)
        state.bump_version(domain)


def assume_plan(
    state: SchedulerState, planner: WorkloadInfo, pending: PendingPreemption | None
) -> None:
    """Sets a plan that is in flight. The stored plan is kept until the new one is stored."""
    if planner.pending_preemption is not None:
        state.replaced_plans[planner] = planner.pending_preemption
        set_plan(state, planner, pending)


def add_planner(state: SchedulerState, domain: Domain, workload: WorkloadInfo) -> None:
    """Adds the workload to the planners of the domain if it has a plan."""
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

    Not below a lending limit. There the usage that a cohort sees depends on the order in which
    workloads come and go, so no amount is right for every way in which plans may end. The victims
    stop first there, as in Kueue.
    """
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
    """Returns the plan to preempt these victims, as it is stored."""
    return PendingPreemption(
        victims=tuple(
            [
                PlannedVictim(
                    namespace=one.workload.key[0],
                    name=one.workload.key[1],
                    uid=one.workload.uid,
                    since=one.workload.reserved_at,
                    reason=one.reason,
                )
                for one in victims
            ]
        ),
        issued=issued,
    )


def outstanding_victims(state: SchedulerState, planner: WorkloadInfo) -> Iterator[WorkloadInfo]:
    """Yields the planned victims that still hold the quota that they are to give up."""
    for one in planner.pending_preemption.victims if planner.pending_preemption is not None else ():
        workload = state.workloads.get((one.namespace, one.name))
        if workload is None or workload.charge is None or workload is planner:
            continue
        if workload.uid == one.uid and one.since in (None, workload.reserved_at):
            yield workload


# Shared quota. ------------------------------------------------------------------------------


def share_quota(state: SchedulerState, domain: Domain, absent: WorkloadInfo | None = None) -> None:
    """Computes the shared quota of the domain's plans again. ``absent``: a workload whose usage is
    removed."""
    unshare_quota(domain)
    domain.plan_quota_varies = False
    for planner in sorted(domain.planners, key=_oldest_first):
        if planner.charge is not None:
            victims = [one for one in outstanding_victims(state, planner) if one is not absent]
            for cell, _ in planner.charge.cells if victims else ():
                _share_plan_quota(domain, planner, cell, victims)


def remove_planner_usage(state: SchedulerState, domain: Domain, planner: WorkloadInfo) -> None:
    """Removes the planner's usage and plan. `restore_planner_usage` undoes it."""
    assert planner.charge is not None
    unshare_quota(domain)
    domain.planners.pop(planner, None)
    remove_usage(planner)
    share_quota(state, domain, absent=planner)


def restore_planner_usage(state: SchedulerState, domain: Domain, planner: WorkloadInfo) -> None:
    """Undoes `remove_planner_usage`."""
    unshare_quota(domain)
    restore_usage(planner)
    add_planner(state, domain, planner)
    share_quota(state, domain)


def unshare_quota(domain: Domain) -> None:
    """Lets all planners and victims of the domain count in full."""
    for shared in domain.plan_quotas:
        shared.exclude(shared.planner)
        for one in (shared.planner, *shared.victims):
            one.shared_quotas = [one.family_quota] if one.family_quota is not None else None
    domain.plan_quotas.clear()


def unshare_all_quota(state: SchedulerState) -> None:
    """Lets all planners and victims count in full while the tree changes. `share_all_quota` ends
    it."""
    for domain in state.planning_domains:
        unshare_quota(domain)


def share_all_quota(state: SchedulerState) -> None:
    """Undoes `unshare_all_quota`, on the tree as it is now."""
    for domain in list(state.planning_domains):
        share_quota(state, domain)


def _oldest_first(planner: WorkloadInfo) -> tuple[float, str]:
    since = planner.reserved_at
    return (since.timestamp() if since is not None else float("inf")), planner.uid


def _share_plan_quota(
    domain: Domain, planner: WorkloadInfo, cell: Cell, victims: list[WorkloadInfo]
) -> None:
    """Lets the quota of the planner and its victims for one flavor and resource count once.

    It tries out how much less would be used without the one side, and without the other.
    """
    path: list[Cell] = []
    here: Cell | None = cell
    while here is not None:
        path.append(here)
        here = here.parent
    met = {one: at for one in victims if (at := _meeting(domain, path, one)) is not None}
    if not met:
        return
    among = list(met)
    cells = path[min(met.values()) :]
    before = (
        [shared for shared in domain.plan_quotas if shared.levels[-1].cell is path[-1]]
        if domain.plan_quota_varies
        else []
    )
    # Quota that is not lent absorbs usage: of two planners, or of the victims of both, each may
    # seem to add what they add together.
    others = list(dict.fromkeys(one.planner for one in before if one.planner not in met))
    mine = _falls(cells, [*(one for one in others if one is not planner), planner])[-1]
    if not any(mine):
        return
    others = list(
        dict.fromkeys(one for shared in before for one in shared.victims if one not in met)
    )
    falls = _falls(cells, [*(one for one in others if one is not planner), *among])[-len(among) :]
    levels = [
        SharedLevel(
            above, mine[at], {one: fall[at] for one, fall in zip(among, falls, strict=True)}
        )
        for at, above in enumerate(cells)
    ]
    shared = PlanQuota(planner, among, levels)
    domain.plan_quotas.append(shared)
    for workload in (planner, *among):
        workload.shared_quotas = [*(workload.shared_quotas or ()), shared]


def _meeting(domain: Domain, path: list[Cell], victim: WorkloadInfo) -> int | None:
    """Returns where the victim's path to the root meets the planner's; None: it holds nothing of
    the kind."""
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


def _falls(cells: list[Cell], workloads: list[WorkloadInfo]) -> list[list[int]]:
    """Returns by how much less is used at the cells without each workload, after the ones before
    it. All usage is restored."""
    found: list[list[int]] = []
    for one in workloads:
        used = [cell.usage for cell in cells]
        remove_usage(one)
        found.append([was - cell.usage for was, cell in zip(used, cells, strict=True)])
    for one in reversed(workloads):
        restore_usage(one)
    return found
