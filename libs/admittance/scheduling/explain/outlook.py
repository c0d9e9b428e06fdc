"""What the next cycle would say of a workload that waits, if it were its turn, and why it is not
admitted yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from admittance.events.shapes import Refusal
from admittance.events.why import Going, Outlook
from admittance.scheduling.cycle.cycle import Cycle, refusal_for
from admittance.scheduling.cycle.reasons import of_workloads, refusal_of
from admittance.scheduling.explain import flavor_report
from admittance.scheduling.explain.flavor_report import VICTIMS_MAX, Seen, going_of
from admittance.scheduling.state.assignment import FIT, NO_FIT, Assignment
from admittance.scheduling.state.in_flight import WAITS_FOR_PODS_READY
from admittance.scheduling.state.queue import Queue
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import BACKOFF, Victim, WorkloadInfo
from admittance.scheduling.state.workload_view import GATED


class Look(NamedTuple):
    """One look at a workload that waits."""

    outlook: Outlook
    assignment: Assignment
    seen: Seen
    victims: Sequence[Victim]


def hindered(
    state: SchedulerState, workload: WorkloadInfo, queue: Queue | None, now: datetime
) -> Refusal | None:
    """Why it would not be considered at all; None: it would."""
    activity = state.catalog.local_queue_activity(*workload.local_queue)
    if workload.problem is not None:
        return Refusal(reason=workload.problem.reason, message=workload.problem.message)
    if not workload.competes:
        return Refusal(
            reason=workload.status_reason or "Suspended", message="It does not compete for quota"
        )
    if not activity.active:
        of_queue = state.catalog.activity(queue.name) if queue is not None else None
        if activity.reason == "ClusterQueueIsInactive" and of_queue is not None:
            return Refusal(reason=of_queue.reason, message=of_queue.message)
        return Refusal(reason=of_workloads(activity.reason), message=activity.message)
    if not workload.is_due(now):
        at = workload.requeue_at
        until = f" until {at:%Y-%m-%dT%H:%M:%SZ}" if at is not None else ""
        return Refusal(reason="Backoff", message=f"Waits{until} before it competes again")
    if workload.inadmissible is not None and workload.inadmissible is not BACKOFF:
        return refusal_for(workload)
    return None


def look_at(
    state: SchedulerState, cycle: Cycle, queue: Queue, workload: WorkloadInfo, why: Refusal | None
) -> Look:
    """Looks at it as the next cycle would. ``why``: what keeps it from being considered."""
    hindrance, (assignment, victims), search = cycle.consider(queue, workload)
    closed = ""
    if queue.in_cycle:
        closed = f"ClusterQueue {queue.name} is in a cycle of cohorts"
    seen = flavor_report.see(state, queue, workload, assignment, search, closed=closed)
    if why is None and hindrance is not None:
        why = Refusal(reason=hindrance.reason, message=hindrance.message)
    if why is None and assignment.mode == FIT and queue.domain is not None:
        why = WAITS_FOR_PODS_READY if state.pods_ready.blocks(queue.domain) else None
    flavors = {place.name: place.flavors for place in assignment.places}
    asked = {ps.name: ps.count for ps in workload.shape.pod_sets} if workload.shape else {}
    counts = {one.name: one.count for one in assignment.places if one.count != asked[one.name]}
    if why is not None:
        outlook = Outlook(outcome="Hindered", reason=why.reason, message=why.message)
    elif assignment.mode == FIT:
        outlook = Outlook(outcome="Fits", flavors=flavors, counts=counts, level=assignment.level)
    elif victims:
        outlook = Outlook(
            outcome="Preempts",
            flavors=flavors,
            counts=counts,
            level=assignment.level,
            victims=tuple(going_of(one) for one in victims[:VICTIMS_MAX]),
            victims_left_out=max(0, len(victims) - VICTIMS_MAX),
        )
    else:
        refusal = refusal_of(assignment, workload.reported_flavors)
        outlook = Outlook(
            outcome="NoFit" if assignment.mode == NO_FIT else "NoCandidates",
            reason=refusal.reason,
            message=refusal.message,
            flavors=flavors if assignment.mode != NO_FIT else {},
            level=assignment.level,
        )
    return Look(outlook, assignment, seen, victims)


def of_turn(
    queue: Queue, workload: WorkloadInfo, look: Look, waits_for: Sequence[Going], position: int
) -> Refusal:
    """Why it is not admitted, though it is considered when its turn comes."""
    outlook = look.outlook
    if outlook.outcome in ("NoFit", "NoCandidates", "Hindered"):
        return Refusal(reason=outlook.reason, message=outlook.message)
    if workload.closed_gate and outlook.outcome == "Preempts":
        return Refusal(
            reason=GATED,
            message="Others would have to go for it, and its preemption gate "
            f"{workload.closed_gate} is closed",
        )
    if waits_for:
        return Refusal(
            reason="WaitingForPreemptedWorkloads",
            message=f"Waits for {several(len(waits_for), 'workload')} to go, told so for it",
        )
    parked = refusal_for(workload)
    if parked is not None and queue.domain is not None and not queue.domain.flush:
        return parked
    turn = f"Number {position} in its ClusterQueue"
    head = queue.head()
    if queue.lanes is not None and head is not None:
        less = queue.lanes.before(workload, head)
        turn += f": {less}" if less else ""
    if outlook.outcome == "Preempts":
        going = several(len(outlook.victims) + outlook.victims_left_out, "workload")
        return Refusal(
            reason="PendingEvaluation", message=f"{turn}; there is room once {going} went for it"
        )
    return Refusal(reason="PendingEvaluation", message=f"{turn}; there is room for it")


def several(count: int, what: str) -> str:
    """``1 workload``, ``2 workloads``."""
    return f"1 {what}" if count == 1 else f"{count} {what}s"
