"""Lists the changes that would unblock a pending workload, each as a phrase that names the object
to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from admittance.api.checks import MACHINES_CONTROLLER
from admittance.api.fields.units import render
from admittance.events import reasons
from admittance.events.requests.explanation import (
    STOP_POLICY_REMOVAL,
    FlavorVerdict,
    Holder,
    Outlook,
    PreemptionVictim,
)
from admittance.quota.catalog import inactive_because
from admittance.quota.cell import Cell, CellNode, FlavorResource, available, plus
from admittance.scheduling.explain.preemption_blockers import (
    MINIMUM_RUN_TIME,
    QuotaNeed,
    count_with_noun,
)
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo

REMEDIES_MAX: Final = 12
NAMED_MAX: Final = 5
HOLDERS_NAMED_MAX: Final = 3


def to_be_considered(
    state: SchedulerState, workload: WorkloadInfo, queue: Queue | None, now: datetime
) -> Iterator[str]:
    """Yields a phrase for each change after which the scheduler considers the workload."""
    namespace, local_name = workload.local_queue
    local = state.catalog.local_queues.get(workload.local_queue)
    if local is None:
        yield f"creation of LocalQueue {namespace}/{local_name}"
        return
    if local.spec.stop_policy not in ("", "None"):
        yield f"{STOP_POLICY_REMOVAL} {local.spec.stop_policy} from LocalQueue {local_name}"
    name = local.spec.cluster_queue
    spec = state.catalog.cluster_queues.get(name)
    if spec is None or queue is None or queue.node is None:
        yield f"creation of ClusterQueue {name}"
        return
    activity = queue.activity
    if not activity.active:
        if activity.reason == reasons.STOPPED:
            yield f"{STOP_POLICY_REMOVAL} {spec.spec.stop_policy} from ClusterQueue {name}"
        else:
            checks = "; ".join(_inactive_checks(state, name))
            active = f"ClusterQueue {name} becoming active ({activity.reason})"
            yield f"{active}: {checks}" if checks else active
    if queue.in_cycle:
        yield f"removal of one cohort from the cycle above ClusterQueue {name}"
    if not state.catalog.selects_namespace(name, workload.key[0]):
        yield f"labels of namespace {workload.key[0]} that ClusterQueue {name} selects"
    if workload.problem is not None:
        yield f"removal of this obstacle: {workload.problem.message}"
    if not workload.is_due(now):
        if workload.requeue_at is not None and workload.requeue_at > now:
            yield f"end of its backoff at {workload.requeue_at:%Y-%m-%dT%H:%M:%SZ}"
        else:
            yield "end of its wait, see its condition Requeued"


def _inactive_checks(state: SchedulerState, queue: str) -> Iterator[str]:
    """Yields a phrase for each change of a check that is needed for the ClusterQueue to become
    active."""
    for name in islice(state.catalog.lists[queue].names(), NAMED_MAX):
        check = state.catalog.checks.get(name)
        if check is None:
            yield f"creation of AdmissionCheck {name}"
        elif (why := inactive_because(check)) is not None:
            yield f"AdmissionCheck {name} becoming active again ({why})"
    pair = state.catalog.lists[queue].conflicting(state.catalog.checks.get)
    if pair is not None:
        yield f"removal of AdmissionCheck {pair[0]} or {pair[1]}, which have one controller"


def of_open_check(state: SchedulerState, name: str) -> str:
    """Returns a phrase that names the verdict which ends the wait for an admission check, and the
    controller that reports the verdict."""
    check = state.catalog.checks.get(name)
    if check is None:
        return f"verdict Ready of check {name}"
    verdict = f"verdict Ready of check {name} by {check.spec.controller_name}"
    if check.spec.controller_name == MACHINES_CONTROLLER:
        verdict = f"room on a machine, of which the message of check {name} says what is missing"
    why = inactive_because(check)
    return verdict if why is None else f"{verdict}, which is inactive ({why})"


def of_queue(queue: Queue, workload: WorkloadInfo, first: WorkloadInfo | None) -> Iterator[str]:
    """Yields a phrase that names the workload that must start before the pending workload in the
    same queue, if there is one."""
    if first is None or first is workload:
        return
    name = f"{first.key[0]}/{first.key[1]}"
    if queue.lanes is not None and (less := queue.lanes.before(workload, first)):
        yield f"the turn of its {'user' if queue.lanes.users_of else 'LocalQueue'}: {less}"
    if queue.is_first(first):
        yield f"start of workload {name}, for which other workloads are being preempted"
    elif queue.strict:
        yield f"start of workload {name}, the head of StrictFIFO ClusterQueue {queue.name}"


def of_victims(waits_for: Iterable[PreemptionVictim], outlook: Outlook) -> Iterator[str]:
    """Yields a phrase for each workload that has to stop before the pending workload can start."""
    going = list(waits_for)
    if going:
        names = first_names([f"{victim.namespace}/{victim.name}" for victim in going], NAMED_MAX)
        yield f"stop of {names}, which {'is' if len(going) == 1 else 'are'} being preempted for it"
    elif outlook.outcome == "Preempts":
        count = len(outlook.victims) + outlook.victims_left_out
        yield f"its turn: {count_with_noun(count, 'workload')} can be preempted for it"


def of_flavor(
    state: SchedulerState,
    verdict: FlavorVerdict,
    needs: Iterable[QuotaNeed],
    held_by: Sequence[Holder],
) -> Iterator[str]:
    """Yields a phrase for each change after which the workload fits into the flavor."""
    if verdict.outcome == "Ineligible":
        yield from _of_ineligible(verdict)
        return
    if verdict.outcome == "Preempts" or verdict.fits:
        return
    by_resource = {need.cell.fr[1]: need for need in needs if need.cell.fr[0] == verdict.flavor}
    for room in verdict.rooms:
        wanted = plus(room.taken, room.requested)
        if room.reason == reasons.EXCEEDS_MAX_QUOTA:
            more = render(room.resource, wanted - room.potential)
            yield (
                f"{more} more {room.resource} quota in flavor {verdict.flavor}, which allows at "
                f"most {render(room.resource, room.potential)}, or a smaller request"
            )
        elif room.reason == reasons.WAITING_FOR_QUOTA and room.resource in by_resource:
            need = by_resource[room.resource]
            yield free_quota(state, need.cell, need.wanted, held_by)
    for blocker in verdict.barriers:
        if blocker.rule == "PriorityNotLower" and blocker.lowest_priority is not None:
            yield (
                f"a priority above {blocker.lowest_priority}, to preempt in ClusterQueue "
                f"{blocker.cluster_queue} under {blocker.policy}"
            )
        elif blocker.rule == MINIMUM_RUN_TIME:
            yield f"time: {blocker.message}"


LABEL_CLASH: Final = " another value of node label "
"""Part of the message of a flavor that has another node label than a flavor chosen before."""


def _of_ineligible(verdict: FlavorVerdict) -> Iterator[str]:
    if not verdict.flavor:
        what = ", ".join(verdict.resources)
        yield f"{what} in a resource group of the ClusterQueue, or a request without {what}"
    elif verdict.reason == reasons.CONFLICTING_ADMISSION_CHECKS:
        yield f"at most one check of each controller in flavor {verdict.flavor}"
    elif LABEL_CLASH in verdict.message:
        yield (
            f"one value of {verdict.message.split(' another value of ')[1].split(' than ')[0]} in "
            f"the flavors of pod set {verdict.pod_set}"
        )
    elif "not found" in verdict.message:
        yield f"creation of ResourceFlavor {verdict.flavor}"
    elif "taint" in verdict.message:
        taint = verdict.message.split(" taint ")[1].split(" ")[0]
        yield f"a toleration of taint {taint} of flavor {verdict.flavor}"
    elif "allowed" in verdict.message:
        yield f"flavor {verdict.flavor} in the list of its allowed flavors"
    else:
        yield f"a node selector or affinity that the labels of flavor {verdict.flavor} match"


def free_quota(state: SchedulerState, cell: Cell, wanted: int, held_by: Sequence[Holder]) -> str:
    """Returns a phrase with the amount of quota that must become free, the node of the cohort tree
    where it is missing, and its largest holders."""
    flavor, resource = cell.fr
    node, limited = bound_by(cell)
    missing = render(resource, wanted - max(0, available(cell)))
    kind = "cohort" if node.is_cohort else "ClusterQueue"
    text = f"{missing} more free {resource} in flavor {flavor} of {kind} {node.name}"
    if limited:
        text += f" with borrowingLimit {render(resource, node.cells[cell.fr].borrow or 0)}"
    below = [
        f"{holder.namespace}/{holder.name}"
        for holder in held_by
        if (holder.flavor, holder.resource) == cell.fr
        and _is_in(state, holder.cluster_queue, node, cell.fr)
    ]
    return f"{text} (held by {first_names(below, HOLDERS_NAMED_MAX)})" if below else text


def _is_in(state: SchedulerState, queue: str, node: CellNode, fr: FlavorResource) -> bool:
    """Whether the ClusterQueue is the node of the cohort tree, or is below that node."""
    known = state.queues.get(queue)
    cell = known.node.cells.get(fr) if known is not None and known.node is not None else None
    while cell is not None and cell.node is not node:
        cell = cell.parent
    return cell is not None


def bound_by(cell: Cell) -> tuple[CellNode, bool]:
    """Returns the node of the cohort tree that limits the available quota of the cell, and whether
    the node's borrowing limit is the reason (True) or its lack of free quota (False)."""
    here: Cell = cell
    while here.parent is not None:
        if here.borrow is not None:
            above = available(here.parent)
            free = available(here) - here.local_free()
            if free < above:
                return here.node, True
        here = here.parent
    return here.node, False


def first_names(names: Sequence[str], most: int) -> str:
    """Returns the first of the names as text, and the number of further names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
