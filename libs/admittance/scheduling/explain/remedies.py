"""Lists the changes that would unblock a pending workload, each as a typed value with a phrase that
names the object to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from admittance.api.checks import MACHINES_CONTROLLER
from admittance.api.fields.limits import INT32_MAX
from admittance.api.fields.units import render
from admittance.events import reasons
from admittance.events.requests.explanation import (
    FlavorVerdict,
    Holder,
    Outlook,
    PreemptionVictim,
)
from admittance.events.requests.remedies import Remedy, RemedyKind
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
"""The most sentences about remedies in one explanation."""
NAMED_MAX: Final = 5
HOLDERS_NAMED_MAX: Final = 3


def first_remedies(remedies: Iterable[Remedy]) -> Iterator[Remedy]:
    """Yields each remedy once, as many as have `REMEDIES_MAX` different sentences. Remedies of
    several flavors may have one sentence."""
    texts: set[str] = set()
    for remedy in dict.fromkeys(remedies):
        if remedy.text in texts or len(texts) < REMEDIES_MAX:
            texts.add(remedy.text)
            yield remedy


def to_be_considered(
    state: SchedulerState, workload: WorkloadInfo, queue: Queue | None, now: datetime
) -> Iterator[Remedy]:
    """Yields each change after which the scheduler considers the workload."""
    namespace, local_name = workload.local_queue
    local = state.catalog.local_queues.get(workload.local_queue)
    if local is None:
        text = f"creation of LocalQueue {namespace}/{local_name}"
        yield Remedy(text=text, kind=RemedyKind.CREATION, local_queue=local_name)
        return
    if local.spec.stop_policy not in ("", "None"):
        text = f"removal of stopPolicy {local.spec.stop_policy} from LocalQueue {local_name}"
        yield Remedy(text=text, kind=RemedyKind.STOP_POLICY, local_queue=local_name)
    name = local.spec.cluster_queue
    spec = state.catalog.cluster_queues.get(name)
    if spec is None or queue is None or queue.node is None:
        text = f"creation of ClusterQueue {name}"
        yield Remedy(text=text, kind=RemedyKind.CREATION, queue=name)
        return
    activity = queue.activity
    if not activity.active:
        if activity.reason == reasons.STOPPED:
            text = f"removal of stopPolicy {spec.spec.stop_policy} from ClusterQueue {name}"
            yield Remedy(text=text, kind=RemedyKind.STOP_POLICY, queue=name)
        else:
            checks = "; ".join(_inactive_checks(state, name))
            active = f"ClusterQueue {name} becoming active ({activity.reason})"
            text = f"{active}: {checks}" if checks else active
            yield Remedy(text=text, kind=RemedyKind.ACTIVE_QUEUE, queue=name)
    if queue.in_cycle:
        text = f"removal of one cohort from the cycle above ClusterQueue {name}"
        yield Remedy(text=text, kind=RemedyKind.SETTING, queue=name)
    if not state.catalog.selects_namespace(name, workload.key[0]):
        text = f"labels of namespace {workload.key[0]} that ClusterQueue {name} selects"
        yield Remedy(text=text, kind=RemedyKind.SETTING, queue=name)
    if workload.problem is not None:
        yield of_obstacle(workload.problem.message)
    if not workload.is_due(now):
        if workload.requeue_at is not None and workload.requeue_at > now:
            yield at_time("end of its backoff", workload.requeue_at)
        else:
            text = "end of its wait, see its condition Requeued"
            yield Remedy(text=text, kind=RemedyKind.TIME)


def of_obstacle(message: str) -> Remedy:
    """Returns the remedy for an obstacle of which only its message is known."""
    return Remedy(text=f"removal of this obstacle: {message}", kind=RemedyKind.OBSTACLE)


def at_time(what: str, at: datetime) -> Remedy:
    """Returns the remedy that comes by itself at a time."""
    return Remedy(text=f"{what} at {at:%Y-%m-%dT%H:%M:%SZ}", kind=RemedyKind.TIME, at=at)


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


def of_open_check(state: SchedulerState, name: str) -> Remedy:
    """Returns the verdict which ends the wait for an admission check, with the controller that
    reports the verdict."""
    check = state.catalog.checks.get(name)
    if check is None:
        return Remedy(text=f"verdict Ready of check {name}", kind=RemedyKind.CHECK, check=name)
    kind = RemedyKind.CHECK
    verdict = f"verdict Ready of check {name} by {check.spec.controller_name}"
    if check.spec.controller_name == MACHINES_CONTROLLER:
        kind = RemedyKind.MACHINE
        verdict = f"room on a machine, of which the message of check {name} says what is missing"
    why = inactive_because(check)
    text = verdict if why is None else f"{verdict}, which is inactive ({why})"
    return Remedy(text=text, kind=kind, check=name)


def of_queue(queue: Queue, workload: WorkloadInfo, first: WorkloadInfo | None) -> Iterator[Remedy]:
    """Yields the start of the workload that must go before the pending workload in the same queue,
    if there is one."""
    if first is None or first is workload:
        return
    name = f"{first.key[0]}/{first.key[1]}"
    if queue.lanes is not None and (less := queue.lanes.before(workload, first)):
        text = f"the turn of its {'user' if queue.lanes.users_of else 'LocalQueue'}: {less}"
        yield Remedy(text=text, kind=RemedyKind.TURN)
    if queue.is_first(first):
        yield of_start(name, "for which other workloads are being preempted")
    elif queue.strict:
        yield of_start(name, f"the head of StrictFIFO ClusterQueue {queue.name}")


def of_start(name: str, why: str) -> Remedy:
    """Returns the start of the workload ``name``, which must go first."""
    text = f"start of workload {name}, {why}"
    return Remedy(text=text, kind=RemedyKind.START, workloads=(name,))


def of_victims(waits_for: Iterable[PreemptionVictim], outlook: Outlook) -> Iterator[Remedy]:
    """Yields what ends the preemptions for the pending workload, or begins them."""
    going = [f"{victim.namespace}/{victim.name}" for victim in waits_for]
    if going:
        names = first_names(going, NAMED_MAX)
        text = f"stop of {names}, which {'is' if len(going) == 1 else 'are'} being preempted for it"
        yield Remedy(text=text, kind=RemedyKind.STOP, workloads=tuple(going[:NAMED_MAX]))
    elif outlook.outcome == "Preempts":
        count = len(outlook.victims) + outlook.victims_left_out
        text = f"its turn: {count_with_noun(count, 'workload')} can be preempted for it"
        yield Remedy(text=text, kind=RemedyKind.TURN)


def of_flavor(
    state: SchedulerState,
    verdict: FlavorVerdict,
    needs: Iterable[QuotaNeed],
    held_by: Sequence[Holder],
) -> Iterator[Remedy]:
    """Yields each change after which the workload fits into the flavor."""
    if verdict.outcome == "Ineligible":
        yield from _of_ineligible(verdict)
        return
    if verdict.outcome == "Preempts" or verdict.fits:
        return
    by_resource = {need.cell.fr[1]: need for need in needs if need.cell.fr[0] == verdict.flavor}
    for room in verdict.rooms:
        wanted = plus(room.taken, room.requested)
        if room.reason == reasons.EXCEEDS_MAX_QUOTA:
            amount = wanted - room.potential
            text = (
                f"{render(room.resource, amount)} more {room.resource} quota in flavor "
                f"{verdict.flavor}, which allows at most "
                f"{render(room.resource, room.potential)}, or a smaller request"
            )
            yield Remedy(
                text=text,
                kind=RemedyKind.MORE_QUOTA,
                flavor=verdict.flavor,
                resource=room.resource,
                amount=amount,
            )
        elif room.reason == reasons.WAITING_FOR_QUOTA:
            need = by_resource[room.resource]
            yield free_quota(state, need.cell, need.wanted, held_by)
    for blocker in verdict.barriers:
        lowest = blocker.lowest_priority
        if blocker.rule == "PriorityNotLower" and lowest is not None and lowest < INT32_MAX:
            text = (
                f"a priority above {lowest}, to preempt in ClusterQueue "
                f"{blocker.cluster_queue} under {blocker.policy}"
            )
            yield Remedy(
                text=text,
                kind=RemedyKind.PRIORITY,
                flavor=verdict.flavor,
                queue=blocker.cluster_queue,
                priority=lowest + 1,
            )
        elif blocker.rule == MINIMUM_RUN_TIME:
            text = f"time: {blocker.message}"
            yield Remedy(text=text, kind=RemedyKind.TIME, flavor=verdict.flavor, at=blocker.until)


LABEL_CLASH: Final = " another value of node label "
"""Part of the message of a flavor that has another node label than a flavor chosen before."""


def _of_ineligible(verdict: FlavorVerdict) -> Iterator[Remedy]:
    flavor, kind = verdict.flavor, RemedyKind.REQUEST
    if not flavor:
        what = ", ".join(verdict.resources)
        text = f"{what} in a resource group of the ClusterQueue, or a request without {what}"
        kind = RemedyKind.SETTING
    elif verdict.reason == reasons.CONFLICTING_ADMISSION_CHECKS:
        text = f"at most one check of each controller in flavor {flavor}"
        kind = RemedyKind.SETTING
    elif LABEL_CLASH in verdict.message:
        text = (
            f"one value of {verdict.message.split(' another value of ')[1].split(' than ')[0]} in "
            f"the flavors of pod set {verdict.pod_set}"
        )
        # The labels of the flavor chosen before clash too, so the remedy is of no one flavor.
        flavor, kind = "", RemedyKind.SETTING
    elif "not found" in verdict.message:
        text = f"creation of ResourceFlavor {flavor}"
        kind = RemedyKind.CREATION
    elif "taint" in verdict.message:
        taint = verdict.message.split(" taint ")[1].split(" ")[0]
        text = f"a toleration of taint {taint} of flavor {flavor}"
    elif "allowed" in verdict.message:
        text = f"flavor {flavor} in the list of its allowed flavors"
    else:
        text = f"a node selector or affinity that the labels of flavor {flavor} match"
    yield Remedy(text=text, kind=kind, flavor=flavor)


def free_quota(state: SchedulerState, cell: Cell, wanted: int, held_by: Sequence[Holder]) -> Remedy:
    """Returns the amount of quota that must become free, the node of the cohort tree where it is
    missing, and its largest holders."""
    flavor, resource = cell.fr
    node, limited = bound_by(cell)
    missing = wanted - max(0, available(cell))
    kind = "cohort" if node.is_cohort else "ClusterQueue"
    text = f"{render(resource, missing)} more free {resource} in flavor {flavor} "
    text += f"of {kind} {node.name}"
    if limited:
        text += f" with borrowingLimit {render(resource, node.cells[cell.fr].borrow or 0)}"
    below = [
        f"{holder.namespace}/{holder.name}"
        for holder in held_by
        if (holder.flavor, holder.resource) == cell.fr
        and _is_in(state, holder.cluster_queue, node, cell.fr)
    ]
    return Remedy(
        text=f"{text} (held by {first_names(below, HOLDERS_NAMED_MAX)})" if below else text,
        kind=RemedyKind.FREE_QUOTA,
        flavor=flavor,
        resource=resource,
        amount=missing,
        queue="" if node.is_cohort else node.name,
        cohort=node.name if node.is_cohort else "",
        workloads=tuple(below[:HOLDERS_NAMED_MAX]),
    )


def _is_in(state: SchedulerState, queue: str, node: CellNode, fr: FlavorResource) -> bool:
    """Whether the ClusterQueue is the node of the cohort tree, or is below that node."""
    cell = state.catalog.tree.queues[queue].cells.get(fr)
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
