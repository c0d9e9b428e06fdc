"""What would let a workload go on, in sentences that name who or what has to move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Final

from admittance.api.units import render
from admittance.events.requests import FlavorVerdict
from admittance.events.why import Going, Outlook
from admittance.quota.activity import inactive_because
from admittance.quota.amounts import plus
from admittance.quota.cell import Cell, CellNode, available
from admittance.scheduling.explain.preemption_blockers import Ask
from admittance.scheduling.state.queue import Queue
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import WorkloadInfo

REMEDIES_MAX: Final = 12
NAMED_MAX: Final = 5


def of_itself(
    state: SchedulerState, workload: WorkloadInfo, queue: Queue | None, now: datetime
) -> Iterator[str]:
    """What has to end before it is considered at all."""
    namespace, local_name = workload.local_queue
    local = state.catalog.local_queues.get(workload.local_queue)
    if local is None:
        yield f"LocalQueue {namespace}/{local_name} being created"
        return
    if local.spec.stop_policy not in ("", "None"):
        yield f"stopPolicy {local.spec.stop_policy} of LocalQueue {local_name} being lifted"
    name = local.spec.cluster_queue
    spec = state.catalog.cluster_queues.get(name)
    if spec is None or queue is None or queue.node is None:
        yield f"ClusterQueue {name} being created"
        return
    activity = queue.activity
    if not activity.active:
        if activity.reason == "Stopped":
            yield f"stopPolicy {spec.spec.stop_policy} of ClusterQueue {name} being lifted"
        else:
            lacking = "; ".join(_of_checks(state, name))
            wanted = f"ClusterQueue {name} becoming active ({activity.reason})"
            yield f"{wanted}: {lacking}" if lacking else wanted
    if queue.in_cycle:
        yield f"an edge of the cycle of cohorts above ClusterQueue {name} being taken out"
    if not state.catalog.selects_namespace(name, workload.key[0]):
        yield f"labels of namespace {workload.key[0]} that ClusterQueue {name} selects"
    if workload.problem is not None:
        yield f"the end of what holds it back: {workload.problem.message}"
    if not workload.is_due(now):
        if workload.requeue_at is not None and workload.requeue_at > now:
            yield f"its backoff ending at {workload.requeue_at:%Y-%m-%dT%H:%M:%SZ}"
        else:
            yield "the end of its wait, which its condition Requeued tells"


def _of_checks(state: SchedulerState, queue: str) -> Iterator[str]:
    """What its checks lack before a ClusterQueue takes anybody in."""
    for name in islice(state.catalog.lists[queue].names(), NAMED_MAX):
        check = state.catalog.checks.get(name)
        if check is None:
            yield f"AdmissionCheck {name} being created"
        elif (why := inactive_because(check)) is not None:
            yield f"AdmissionCheck {name} turning active again ({why})"


def of_open_check(state: SchedulerState, name: str) -> str:
    """What ends the wait for a check's verdict, and whose verdict that is."""
    check = state.catalog.checks.get(name)
    if check is None:
        return f"check {name} turning Ready"
    whose = f"check {name} turning Ready, which {check.spec.controller_name} says"
    why = inactive_because(check)
    return whose if why is None else f"{whose}; it is away ({why})"


def of_queue(queue: Queue, workload: WorkloadInfo, first: WorkloadInfo | None) -> Iterator[str]:
    """Who has to go before it, where that is what it waits for."""
    if first is None or first is workload:
        return
    name = f"{first.key[0]}/{first.key[1]}"
    if queue.lanes is not None and (less := queue.lanes.before(workload, first)):
        yield f"the turn of its LocalQueue: {less}"
    if queue.is_first(first):
        yield f"workload {name} starting, for which others are told to make room"
    elif queue.strict:
        yield f"workload {name} starting, the head of StrictFIFO ClusterQueue {queue.name}"


def of_victims(waits_for: Iterable[Going], outlook: Outlook) -> Iterator[str]:
    """Who has to stop for it."""
    going = list(waits_for)
    names = ", ".join(f"{one.namespace}/{one.name}" for one in going[:NAMED_MAX])
    if going:
        more = f" and {len(going) - NAMED_MAX} more" if len(going) > NAMED_MAX else ""
        yield f"the end of {names}{more}, told to go for it"
    elif outlook.outcome == "Preempts":
        count = len(outlook.victims) + outlook.victims_left_out
        yield f"its turn: {_several(count)} can be preempted for it"


def of_flavor(verdict: FlavorVerdict, asks: Iterable[Ask]) -> Iterator[str]:
    """What would make one flavor serve it."""
    if verdict.outcome == "Ineligible":
        yield from _of_ineligible(verdict)
        return
    if verdict.outcome == "Preempts" or verdict.fits:
        return
    by_resource = {ask.cell.fr[1]: ask for ask in asks if ask.cell.fr[0] == verdict.flavor}
    for room in verdict.rooms:
        wanted = plus(room.taken, room.requested)
        if room.reason == "ExceedsMaxQuota":
            more = render(room.resource, wanted - room.potential)
            yield (
                f"{more} more quota of {room.resource} in flavor {verdict.flavor} "
                f"(it can give {render(room.resource, room.potential)} at most), or asking for less"
            )
        elif room.reason == "WaitingForQuota" and room.resource in by_resource:
            yield freed(by_resource[room.resource].cell, wanted)
    for bar in verdict.barriers:
        if bar.rule == "PriorityNotLower" and bar.lowest_priority is not None:
            yield (
                f"a priority above {bar.lowest_priority}, with which {bar.policy} lets it preempt "
                f"in ClusterQueue {bar.cluster_queue}"
            )


def _of_ineligible(verdict: FlavorVerdict) -> Iterator[str]:
    if not verdict.flavor:
        what = ", ".join(verdict.resources)
        yield f"{what} in a resource group of the ClusterQueue, or not asking for it"
    elif verdict.reason == "ConflictingAdmissionChecks":
        yield f"one check of each controller in flavor {verdict.flavor}"
    elif "not found" in verdict.message:
        yield f"ResourceFlavor {verdict.flavor} being created"
    elif "taint" in verdict.message:
        taint = verdict.message.split(" taint ")[1].split(" ")[0]
        yield f"a toleration of taint {taint}, which flavor {verdict.flavor} has"
    elif "allowed" in verdict.message:
        yield f"flavor {verdict.flavor} among its allowed flavors"
    else:
        yield f"a node selector or affinity that the labels of flavor {verdict.flavor} match"


def freed(cell: Cell, wanted: int) -> str:
    """How much has to come free, and where."""
    flavor, resource = cell.fr
    node, limit = bound_by(cell)
    missing = render(resource, wanted - max(0, available(cell)))
    kind = "cohort" if node.is_cohort else "ClusterQueue"
    if limit:
        top = node.cells[cell.fr].borrow
        return (
            f"{missing} of {resource} in flavor {flavor} coming free in {kind} {node.name}, whose "
            f"borrowingLimit is {render(resource, top or 0)}"
        )
    return f"{missing} of {resource} in flavor {flavor} coming free in {kind} {node.name}"


def bound_by(cell: Cell) -> tuple[CellNode, bool]:
    """The node whose numbers decide what is available in the cell; True: its borrowing limit, else
    what there is at all."""
    here: Cell = cell
    while here.parent is not None:
        if here.borrow is not None:
            above = available(here.parent)
            free = available(here) - here.local_free()
            if free < above:
                return here.node, True
        here = here.parent
    return here.node, False


def _several(count: int) -> str:
    return "1 workload" if count == 1 else f"{count} workloads"
