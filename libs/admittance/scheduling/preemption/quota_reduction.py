"""Revokes reservations when quota is reduced, a borrowing or lending limit changes, or a flavor is
removed. Source: `docs/spec/lifecycle.md#T09, #6`.

Reservations without a job are revoked in this order: lowest priority, then newest reservation. An
admitted workload keeps running above the quota, where other queues may reclaim from it, unless its
ClusterQueue has ``onQuotaCut: evict``. The check for reduced quota runs only after an edit of a
ClusterQueue or cohort and when a scheduler takes over a domain.

A node of a cohort tree is over its limit when it uses more than its quota (at the root) or than its
borrowing limit allows. Reservations that cause the overuse are revoked first: those of queues that
borrow, with every cohort between the queue and the overused node borrowing too. If that is not
enough, other reservations are revoked too, because no new reservation could be made while the
cohort tree uses more than its quota.

Revoking one variant frees only the quota that no other variant of its family holds. Variants that
hold the same quota are revoked together or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from admittance.api.fields.units import render
from admittance.events import reasons
from admittance.events.facts import Revoked
from admittance.events.shapes import Shortfall
from admittance.quota.cell import UNLIMITED, Cell, CellNode, FlavorResource, is_over, plus
from admittance.quota.tree import Node
from admittance.scheduling.state.held import charging
from admittance.scheduling.state.held.shared_quota import WithoutUsage, remove_usage, restore_usage
from admittance.scheduling.state.object_errors import is_set_aside
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.stored_fields import InFlight
from admittance.scheduling.state.workload_info import Domain, Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import PROMISED

EVICT: Final = "evict"
REVOKE: Final = "revoke"
"""The step of this module, in the error that names the workload of an exception."""
_NOT_RUNNING: Final = frozenset({"QuotaReserved", PROMISED})


class Overload(NamedTuple):
    """A node of a cohort tree that uses more of one flavor and resource than the node's limit."""

    node: CellNode
    fr: FlavorResource
    limit: int
    usage: int


class Revocation(NamedTuple):
    """A workload that loses its reservation because quota was reduced, and the reason."""

    workload: WorkloadInfo
    reason: str
    message: str
    shortfalls: tuple[Shortfall, ...]


def due_revocations(state: SchedulerState, domain: Domain, now: datetime) -> list[Revoked]:
    """Returns the decisions that revoke reservations after the quotas of the domain changed, and
    marks them as in flight. Checks every quota of the domain's tree, but workloads only if a quota
    is exceeded."""
    domain.quota_reduced = False
    if state.config.as_kueue:
        return []
    stated: list[Revoked] = []
    for revocation in workloads_to_revoke(state, domain):
        workload = revocation.workload
        state.at_work = REVOKE, workload
        state.set_in_flight(workload, domain, InFlight.REVOKED)
        # A search for victims prefers workloads that are being evicted, so nominations from before
        # the revocation are outdated.
        state.bump_version(domain)
        stated.append(
            Revoked(
                **state.decision_fields(workload, domain, now),
                reason=revocation.reason,
                message=revocation.message,
                shortfalls=revocation.shortfalls,
            )
        )
    state.at_work = None
    return stated


def workloads_to_revoke(state: SchedulerState, domain: Domain) -> list[Revocation]:
    """Returns the fewest workloads with reservations that must be revoked so that usage fits into
    the present quotas. Leaves the scheduler's state unchanged."""
    queues = [queue for queue in domain.queues if queue.node is not None]
    if not queues or queues[0].node is None or queues[0].in_cycle:
        # Quotas of cohorts that are parents of each other have no meaningful sums, so no
        # reservation is revoked.
        return []
    root = queues[0].node.root()
    out: list[WorkloadInfo] = []
    revocations: list[Revocation] = []
    for queue in queues:
        for revocation in _without_flavor(state, queue):
            revocations.append(revocation)
            out.append(revocation.workload)
    overloads: dict[tuple[CellNode, FlavorResource], Overload] = {
        (overload.node, overload.fr): overload for overload in overloaded_nodes(root)
    }
    if not overloads:
        return revocations
    out += [workload for queue in queues for workload in queue.holding if workload.is_leaving]
    with WithoutUsage(out):
        taken = _make_fit(state, queues, set(out))
        for workload, _ in taken:
            restore_usage(workload)
    for workload, cell in taken:
        state.at_work = REVOKE, workload
        revocations.append(_revocation(workload, overloads, cell))
    return revocations


# Flavors. -----------------------------------------------------------------------------------


def flavors_not_offered(workload: WorkloadInfo) -> list[FlavorResource]:
    """Returns the flavors and resources of which the workload holds quota although its ClusterQueue
    does not list them any more."""
    charge = workload.charge
    if charge is None or charge.queue.node is None:
        return []
    return [cell.fr for cell, _ in charge.cells if not cell.named]


def _without_flavor(state: SchedulerState, queue: Queue) -> Iterator[Revocation]:
    assert queue.node is not None
    if all(cell.named for cell in queue.node.cells.values()):
        return
    for workload in queue.holding:
        state.at_work = REVOKE, workload
        if _may_go(state, queue, workload) and (missing := flavors_not_offered(workload)):
            names = ", ".join(f"{resource} in flavor {flavor}" for flavor, resource in missing)
            message = f"ClusterQueue {queue.name} no longer offers {names}"
            yield Revocation(workload, reasons.FLAVORS_CHANGED, message, ())


def _may_go(state: SchedulerState, queue: Queue, workload: WorkloadInfo) -> bool:
    if workload.in_flight or is_set_aside(workload):
        return False
    if workload.state in _NOT_RUNNING:
        return True
    return workload.state == "Admitted" and _evicts(state, queue)


def _evicts(state: SchedulerState, queue: Queue) -> bool:
    spec = state.catalog.cluster_queues[queue.name].spec
    return spec.on_quota_cut == EVICT


# Quota. -------------------------------------------------------------------------------------


def limit_of(cell: Cell) -> int | None:
    """Returns the largest amount that the cell's node may use; None: only the nodes above limit its
    usage."""
    if cell.parent is None:
        return cell.subtree
    return None if cell.borrow is None else plus(cell.subtree, cell.borrow)


def excess(cell: Cell) -> int:
    """Returns by how much the cell's node exceeds its limit."""
    limit = limit_of(cell)
    return 0 if limit is None or limit >= UNLIMITED else max(0, cell.usage - limit)


def overloaded_nodes(node: Node) -> Iterator[Overload]:
    """Yields each node, among the given node and the nodes below it, that uses more of a flavor and
    resource than its limit."""
    for cell in node.cells.values():
        if excess(cell):
            limit = limit_of(cell)
            assert limit is not None
            yield Overload(node, cell.fr, limit, cell.usage)
    for queue in node.members.values():
        yield from overloaded_nodes(queue)
    for cohort in node.cohorts.values():
        yield from overloaded_nodes(cohort)


def exceeded_cell(workload: WorkloadInfo, *, only_borrowing: bool) -> Cell | None:
    """Returns a cell with exceeded quota that the workload uses; None: the workload uses none.
    ``only_borrowing``: consider only cells where the workload's queue borrows, and every cohort
    between the queue and the exceeded cell too."""
    assert workload.charge is not None
    held = (
        workload.charge.cells
        if workload.family_quota is None
        else workload.family_quota.freed_without(workload)
    )
    for cell, amount in held:
        here = cell if amount > 0 else None
        while here is not None:
            if excess(here):
                return here
            if here.usage <= here.guaranteed or (only_borrowing and not is_over(here)):
                break
            here = here.parent
    return None


def _exceeds(
    state: SchedulerState, workload: WorkloadInfo, away: set[WorkloadInfo], *, only_borrowing: bool
) -> Cell | None:
    """Returns a cell with exceeded quota that the workload uses, like `exceeded_cell`. A workload
    that plans to preempt is judged as if its victims had stopped, because the usage of the victims
    is not its own. ``away``: workloads with usage that is already subtracted from the scheduler's
    state."""
    if workload.pending_preemption is None:
        return exceeded_cell(workload, only_borrowing=only_borrowing)
    going = [
        victim for victim in charging.outstanding_victims(state, workload) if victim not in away
    ]
    with WithoutUsage(going):
        return exceeded_cell(workload, only_borrowing=only_borrowing)


def _exceed_together(
    state: SchedulerState,
    workload: WorkloadInfo,
    fellows: list[WorkloadInfo],
    away: set[WorkloadInfo],
    *,
    only_borrowing: bool,
) -> Cell | None:
    """Returns what `_exceeds` returns if ``fellows``, other variants of the workload's family, are
    revoked together with the workload: quota that several variants hold is freed only when all of
    them are revoked."""
    if not fellows:
        return None
    with WithoutUsage(fellows):
        return _exceeds(state, workload, away.union(fellows), only_borrowing=only_borrowing)


def _make_fit(
    state: SchedulerState, queues: list[Queue], out: set[WorkloadInfo]
) -> list[tuple[WorkloadInfo, Cell]]:
    """Subtracts the usage of workloads until the remaining workloads fit into quota; returns the
    subtracted workloads, each with the cell that it exceeded. The usage of an admitted workload
    that may not be evicted is never subtracted. ``out``: the workloads that an earlier call has
    subtracted."""
    reserved: list[WorkloadInfo] = []
    admitted: list[WorkloadInfo] = []
    for queue in queues:
        evicts = _evicts(state, queue)
        for entry in queue.candidates:
            workload = entry[4]
            state.at_work = REVOKE, workload
            if workload.in_flight or is_set_aside(workload) or flavors_not_offered(workload):
                continue
            if workload.state == "QuotaReserved":
                reserved.append(workload)
            elif evicts and workload.state == "Admitted":
                admitted.append(workload)
        if queue.rules is not None:
            reserved += [
                workload
                for workload in queue.holding
                if workload.state == PROMISED
                and not workload.in_flight
                and not is_set_aside(workload)
                and not flavors_not_offered(workload)
            ]
    reserved.sort(key=_rank)
    admitted.sort(key=_rank)
    taken: list[tuple[WorkloadInfo, Cell]] = []
    gone: set[WorkloadInfo] = set()
    away = set(out)
    kept: dict[WorkloadInfo, None] = {}
    for workloads, only_borrowing in ((reserved, True), (admitted, True), (reserved, False)):
        for workload in workloads:
            if workload in gone:
                continue
            state.at_work = REVOKE, workload
            going = [workload]
            cell = _exceeds(state, workload, away, only_borrowing=only_borrowing)
            if cell is None and workload.family_quota is not None:
                fellows = [
                    sibling
                    for sibling in kept
                    if sibling.family_quota is workload.family_quota
                    and sibling is not workload
                    and sibling not in gone
                ]
                cell = _exceed_together(
                    state, workload, fellows, away, only_borrowing=only_borrowing
                )
                going = [*fellows, workload]
                kept[workload] = None
            if cell is None:
                continue
            for loser in going:
                remove_usage(loser)
                taken.append((loser, cell))
                gone.add(loser)
                away.add(loser)
    # Restore, in reverse order, removed workloads that fit into quota together with the workloads
    # that stay.
    for index in reversed(range(len(taken) - 1)):
        workload = taken[index][0]
        state.at_work = REVOKE, workload
        restore_usage(workload)
        if exceeded_cell(workload, only_borrowing=False) is None:
            del taken[index]
        else:
            remove_usage(workload)
    return taken


def _rank(workload: WorkloadInfo) -> tuple[int, float, str]:
    """Sort key by which reservations are revoked, the first one first. Quota that is held for a
    variant until its sibling's job has stopped counts as newer than any reservation."""
    if workload.candidate is None:
        return workload.priority, float("-inf"), workload.uid
    return workload.candidate[:3]


def _revocation(
    workload: WorkloadInfo, overloads: dict[tuple[CellNode, FlavorResource], Overload], cell: Cell
) -> Revocation:
    assert workload.charge is not None
    held = sum(amount for held_cell, amount in workload.charge.cells if held_cell.fr == cell.fr)
    overload = overloads[cell.node, cell.fr]
    flavor, resource = overload.fr
    kind = "cohort" if overload.node.is_cohort else "ClusterQueue"
    message = (
        f"{resource} in flavor {flavor}: {kind} {overload.node.name} may use "
        f"{render(resource, overload.limit)}, and {render(resource, overload.usage)} are reserved; "
        f"{render(resource, held)} of it by this workload"
    )
    short = Shortfall(
        pod_set="",
        flavor=flavor,
        resource=resource,
        requested=held,
        available=max(0, held - (overload.usage - overload.limit)),
        reason=reasons.QUOTA_CHANGED,
        message=message,
    )
    return Revocation(workload, reasons.QUOTA_CHANGED, message, (short,))
