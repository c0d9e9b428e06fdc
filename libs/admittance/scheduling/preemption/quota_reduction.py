"""What has to go when quota is cut, a limit changes, or a flavor is taken away.

A reservation without a job goes back to the queue, the worst first: lowest priority, then newest
reservation. What is admitted runs on, above quota too, and is there to be reclaimed; unless its
ClusterQueue says ``onQuotaCut: evict``. Looked at after an edit of a ClusterQueue or a cohort and
when a domain is taken over, never in between. Source: `docs/spec/lifecycle.md#T09, #6`.

A node is over quota when it uses more than its limit: at the root of a tree what all of it has,
below a borrowing limit what that allows. Whoever is part of the cause goes first: its queue, and
every cohort below the node that is over, take more than is theirs. Only if that does not help do
reservations go that are within their queue's own: while the tree is in debt none could be made.

Of a family only so much is a cause as would be free without the one that is looked at: variants
that hold the same go together, when it is the turn of the last of them, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from admittance.api.units import render
from admittance.events.facts import Revoked
from admittance.events.shapes import Shortfall
from admittance.quota.amounts import UNLIMITED, plus
from admittance.quota.cell import Cell, CellNode, FlavorResource, is_over
from admittance.quota.tree import Node
from admittance.scheduling.state import planned
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.shared_quota import (
    remove_all_usage,
    remove_usage,
    restore_all_usage,
    restore_usage,
)
from admittance.scheduling.state.workload_info import Domain, InFlight, Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import PROMISED

QUOTA_CHANGED: Final = "QuotaChanged"
FLAVORS_CHANGED: Final = "FlavorsChanged"
EVICT: Final = "evict"
_NOT_RUNNING: Final = frozenset({"QuotaReserved", PROMISED})


class Overload(NamedTuple):
    """A node that uses more of one flavor and resource than its limit, as it was found."""

    node: CellNode
    fr: FlavorResource
    limit: int
    usage: int


class Revocation(NamedTuple):
    """Who loses its reservation, and why."""

    workload: WorkloadInfo
    reason: str
    message: str
    shortfalls: tuple[Shortfall, ...]


def due(state: SchedulerState, domain: Domain, now: datetime) -> list[Revoked]:
    """What is to be stated about the domain since its quotas changed; each is on its way from now
    on. Costs a look at every quota of the tree, and at workloads only where one is exceeded."""
    domain.quota_reduced = False
    if state.config.as_kueue:
        return []
    stated: list[Revoked] = []
    for loss in workloads_to_revoke(state, domain):
        workload = loss.workload
        state.set_in_flight(workload, domain, InFlight.REVOKED)
        state.bump_version(domain)
        stated.append(
            Revoked(
                **state.decision_fields(workload, domain, now),
                reason=loss.reason,
                message=loss.message,
                shortfalls=loss.shortfalls,
            )
        )
    if stated:
        # Who is on the way out is looked at first by whoever looks for victims.
        domain.version += 1
    return stated


def workloads_to_revoke(state: SchedulerState, domain: Domain) -> list[Revocation]:
    """Who has to go as the quotas are now: no more than need be. The state is as before."""
    queues = [queue for queue in domain.queues if queue.node is not None]
    if not queues or queues[0].node is None or queues[0].in_cycle:
        return []  # The sums of a cycle mean nothing: whoever holds quota keeps it.
    root = queues[0].node.root()
    out: list[WorkloadInfo] = []
    found: list[Revocation] = []
    for queue in queues:
        for loss in _without_flavor(state, queue):
            found.append(loss)
            out.append(loss.workload)
    overloads: dict[tuple[CellNode, FlavorResource], Overload] = {
        (one.node, one.fr): one for one in overloaded(root)
    }
    if not overloads:
        return found
    out += [one for queue in queues for one in queue.holding if one.is_leaving]
    for workload in out:
        remove_usage(workload)
    taken = _make_fit(state, queues, set(out))
    for workload, _ in taken:
        restore_usage(workload)
    for workload in out:
        restore_usage(workload)
    found += [_loss(workload, overloads, cell) for workload, cell in taken]
    return found


# Flavors. -----------------------------------------------------------------------------------


def flavors_not_offered(workload: WorkloadInfo) -> list[FlavorResource]:
    """Flavors and resources that the workload holds quota of and its ClusterQueue does not list."""
    charge = workload.charge
    if charge is None or charge.queue.node is None:
        return []
    return [cell.fr for cell, _ in charge.cells if not cell.named]


def _without_flavor(state: SchedulerState, queue: Queue) -> Iterator[Revocation]:
    assert queue.node is not None
    if all(cell.named for cell in queue.node.cells.values()):
        return
    for workload in queue.holding:
        if _may_go(state, queue, workload) and (missing := flavors_not_offered(workload)):
            names = ", ".join(f"{resource} in flavor {flavor}" for flavor, resource in missing)
            message = f"ClusterQueue {queue.name} no longer offers {names}"
            yield Revocation(workload, FLAVORS_CHANGED, message, ())


def _may_go(state: SchedulerState, queue: Queue, workload: WorkloadInfo) -> bool:
    if workload.in_flight:
        return False
    if workload.state in _NOT_RUNNING:
        return True
    return workload.state == "Admitted" and _evicts(state, queue)


def _evicts(state: SchedulerState, queue: Queue) -> bool:
    spec = state.catalog.cluster_queues[queue.name].spec
    return spec.on_quota_cut == EVICT


# Quota. -------------------------------------------------------------------------------------


def limit_of(cell: Cell) -> int | None:
    """The most that the node may use of it; None: as much as its parents let it."""
    if cell.parent is None:
        return cell.subtree
    return None if cell.borrow is None else plus(cell.subtree, cell.borrow)


def excess(cell: Cell) -> int:
    """By how much the node uses more than it may."""
    limit = limit_of(cell)
    return 0 if limit is None or limit >= UNLIMITED else max(0, cell.usage - limit)


def overloaded(node: Node) -> Iterator[Overload]:
    """Everything of which some node at or below this one uses more than it may."""
    for cell in node.cells.values():
        if excess(cell):
            limit = limit_of(cell)
            assert limit is not None
            yield Overload(node, cell.fr, limit, cell.usage)
    for queue in node.members.values():
        yield from overloaded(queue)
    for cohort in node.cohorts.values():
        yield from overloaded(cohort)


def exceeded_cell(workload: WorkloadInfo, *, guilty: bool) -> Cell | None:
    """What is exceeded and would be less so without the workload; None: nothing. guilty: only where
    its queue, and every cohort in between, takes more than is its own."""
    assert workload.charge is not None
    held = (
        workload.charge.cells
        if workload.family_quota is None
        else workload.family_quota.frees(workload)
    )
    for cell, amount in held:
        here = cell if amount > 0 else None
        while here is not None:
            if excess(here):
                return here
            if here.usage <= here.guaranteed or (guilty and not is_over(here)):
                break
            here = here.parent
    return None


def _exceeds(
    state: SchedulerState, workload: WorkloadInfo, away: set[WorkloadInfo], *, guilty: bool
) -> Cell | None:
    """The same, of one that plans to preempt as it will be when its victims have gone: what they
    use above the limit is not the planner's. ``away``: who is taken out already."""
    if workload.pending_preemption is None:
        return exceeded_cell(workload, guilty=guilty)
    going = [one for one in planned.outstanding_victims(state, workload) if one not in away]
    held = remove_all_usage(going)
    found = exceeded_cell(workload, guilty=guilty)
    restore_all_usage(going, held)
    return found


def _exceed_together(
    state: SchedulerState,
    workload: WorkloadInfo,
    fellows: list[WorkloadInfo],
    away: set[WorkloadInfo],
    *,
    guilty: bool,
) -> Cell | None:
    """The same, if others of its family that were spared went along: what all of them hold is free
    only then."""
    if not fellows:
        return None
    held = remove_all_usage(fellows)
    cell = _exceeds(state, workload, away.union(fellows), guilty=guilty)
    restore_all_usage(fellows, held)
    return cell


def _make_fit(
    state: SchedulerState, queues: list[Queue], out: set[WorkloadInfo]
) -> list[tuple[WorkloadInfo, Cell]]:
    """Who was taken out so that the rest fits, and for what. Whoever is admitted and may not be
    evicted stays, fit or not. ``out``: who was taken out before."""
    reserved: list[WorkloadInfo] = []
    admitted: list[WorkloadInfo] = []
    for queue in queues:
        evicts = _evicts(state, queue)
        for entry in queue.candidates:
            workload = entry[4]
            if workload.in_flight or flavors_not_offered(workload):
                continue
            if workload.state == "QuotaReserved":
                reserved.append(workload)
            elif evicts and workload.state == "Admitted":
                admitted.append(workload)
        if queue.rules is not None:
            reserved += [
                one
                for one in queue.holding
                if one.state == PROMISED and not one.in_flight and not flavors_not_offered(one)
            ]
    reserved.sort(key=_rank)
    admitted.sort(key=_rank)
    taken: list[tuple[WorkloadInfo, Cell]] = []
    gone: set[WorkloadInfo] = set()
    away = set(out)
    spared: dict[WorkloadInfo, None] = {}
    for workloads, guilty in ((reserved, True), (admitted, True), (reserved, False)):
        for workload in workloads:
            if workload in gone:
                continue
            going = [workload]
            cell = _exceeds(state, workload, away, guilty=guilty)
            if cell is None and workload.family_quota is not None:
                fellows = [one for one in spared if one.family_quota is workload.family_quota]
                fellows = [one for one in fellows if one is not workload and one not in gone]
                cell = _exceed_together(state, workload, fellows, away, guilty=guilty)
                going = [*fellows, workload]
                spared[workload] = None
            if cell is None:
                continue
            for one in going:
                remove_usage(one)
                taken.append((one, cell))
                gone.add(one)
                away.add(one)
    # Whoever turns out to fit beside the others after all comes back, the last ones taken first.
    for index in range(len(taken) - 2, -1, -1):
        workload = taken[index][0]
        restore_usage(workload)
        if exceeded_cell(workload, guilty=False) is None:
            del taken[index]
        else:
            remove_usage(workload)
    return taken


def _rank(workload: WorkloadInfo) -> tuple[int, float, str]:
    """The worst first. What is only promised is newer than any reservation."""
    if workload.candidate is None:
        return workload.priority, float("-inf"), workload.uid
    return workload.candidate[:3]


def _loss(
    workload: WorkloadInfo, overloads: dict[tuple[CellNode, FlavorResource], Overload], cell: Cell
) -> Revocation:
    assert workload.charge is not None
    held = sum(amount for one, amount in workload.charge.cells if one.fr == cell.fr)
    found = overloads.get((cell.node, cell.fr))
    if found is None:
        found = Overload(cell.node, cell.fr, limit_of(cell) or 0, cell.usage)
    flavor, resource = found.fr
    kind = "cohort" if found.node.is_cohort else "ClusterQueue"
    message = (
        f"{resource} in flavor {flavor}: {kind} {found.node.name} may use "
        f"{render(resource, found.limit)}, and {render(resource, found.usage)} are reserved; "
        f"{render(resource, held)} of it by this workload"
    )
    short = Shortfall(
        pod_set="",
        flavor=flavor,
        resource=resource,
        requested=held,
        available=max(0, held - (found.usage - found.limit)),
        reason=QUOTA_CHANGED,
        message=message,
    )
    return Revocation(workload, QUOTA_CHANGED, message, (short,))
