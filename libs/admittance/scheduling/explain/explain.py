"""Explains why a workload waits: the decision of the next cycle, the workloads in its way, and what
would unblock it.

The functions that make the scheduler's decisions also compute the explanations. Functions that try
an assignment or a preemption restore the scheduler's state afterwards, so an explanation has no
effect. One explanation costs as much as one nomination, a check of each flavor, a limited number of
holders of missing quota, and each class of the workload's queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.events import reasons
from admittance.events.requests.explanation import (
    Ahead,
    ExplainReply,
    FlavorVerdict,
    Holder,
    OpenCheck,
    Outlook,
    PreemptionVictim,
    with_remedies,
)
from admittance.events.requests.remedies import Remedy, RemedyKind
from admittance.events.shapes import Refusal
from admittance.quota.catalog import inactive_because
from admittance.scheduling.cycle.cycle import Cycle, refusal_for
from admittance.scheduling.cycle.decisions import NAMED_MAX
from admittance.scheduling.cycle.refusals import refusal_of
from admittance.scheduling.explain import family_summary, promised_start, remedies, user_limits
from admittance.scheduling.explain.flavor_report import (
    VICTIMS_MAX,
    FlavorReport,
    holders,
    preemption_victim_of,
    report_flavors,
)
from admittance.scheduling.explain.preemption_blockers import count_with_noun
from admittance.scheduling.explain.queue_status import is_parked, why_inactive
from admittance.scheduling.preemption.min_run import when_old, youth_of
from admittance.scheduling.state.assignment import FIT, NO_FIT, Assignment
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.held import charging
from admittance.scheduling.state.object_errors import is_set_aside
from admittance.scheduling.state.promise import NoPromise, Promise
from admittance.scheduling.state.queue import in_listed_order, keeps_first_place, position_in
from admittance.scheduling.state.scheduler_state import WAITS_FOR_PODS_READY, SchedulerState
from admittance.scheduling.state.workload_info import Queue, Victim, WorkloadInfo
from admittance.scheduling.state.workload_view import BACKOFF, PROMISED

AHEAD_MAX: Final = 3
CLASSES_MAX: Final = 256
"""If a queue has more classes and inadmissible workloads together than this number, an explanation
names only the head of the queue, not all workloads ahead of the explained one."""


def explain(state: SchedulerState, cycle: Cycle, key: Key, *, now: datetime) -> ExplainReply:
    """Returns why the workload waits, or what quota it holds. The explanation of a parent has one
    part for each variant."""
    workload = state.workloads.get(key)
    if workload is None or workload.shape is None:
        return ExplainReply(error=f"no unfinished workload {key[0]}/{key[1]} is known")
    local = state.catalog.local_queues.get(workload.local_queue)
    name = local.spec.cluster_queue if local is not None else ""
    queue = state.queues.get(name)
    if workload.is_parent:
        of_variant = partial(explain, state, cycle, now=now)
        return family_summary.explain(state, workload, queue, now, of_variant)
    explanation = _explain_holder(state, workload)
    if explanation is None:
        explanation = _explain_pending(state, cycle, workload, name, queue, now)
    family = workload.family
    if family is None or family.parent is None:
        return explanation
    return replace(explanation, parent=family.parent.key[1])


def _explain_pending(
    state: SchedulerState,
    cycle: Cycle,
    workload: WorkloadInfo,
    name: str,
    queue: Queue | None,
    now: datetime,
) -> ExplainReply:
    why = why_not_considered(state, workload, queue, now)
    if queue is None or queue.plan is None or queue.node is None or is_set_aside(workload):
        # A workload that is set aside would make the explanation raise the same exception.
        assert why is not None, "it has no queue"
        reply = ExplainReply(
            phase="Pending",
            reason=why.reason,
            message=why.message,
            cluster_queue=name,
            local_queue=workload.local_queue[1],
            priority=workload.priority,
            waiting_since=workload.queued_at,
            preempted_by=workload.preempted_by,
            seen=state.seen,
        )
        return with_remedies(reply, remedies.to_be_considered(state, workload, None, now))
    promise = promised_start.promise_of(state, cycle, queue, now)
    evaluation = evaluate(state, cycle, queue, workload, why, promise)
    is_held_back = evaluation.outlook.reason == reasons.WAITING_FOR_PROMISED_START
    start = promised_start.expected_start(
        state, promise, queue, workload, now, is_held_back=is_held_back
    )
    waits_for = _waits_for(state, workload, evaluation)
    position = position_in(queue, workload)
    ahead = _ahead(queue, workload, position)
    if why is None:
        why = why_not_admitted(queue, workload, evaluation, waits_for, position)
    excess = None
    if why.reason == reasons.WAITING_FOR_USER_LIMIT:
        excess = user_limits.excess_of(queue, workload)
    if excess is not None:
        held_by = user_limits.holders(queue, workload, excess)
    else:
        held_by = holders(state, evaluation.report.needs)
    if excess is not None:
        changes = tuple(user_limits.remedies(excess, queue, held_by))
    elif is_held_back and start is not None:
        changes = tuple(promised_start.remedies_of(start, workload))
    else:
        changes = _remedies(state, workload, queue, evaluation, held_by, waits_for, now)
    cohort = queue.node.parent
    verdicts = _of_allowed_flavors(workload, evaluation.report.verdicts)
    reply = ExplainReply(
        phase="Pending" if workload.is_due(now) else "Backoff",
        reason=why.reason,
        message=why.message + promised_start.sentence(state, start, workload),
        cluster_queue=name,
        local_queue=workload.local_queue[1],
        cohort=cohort.name if cohort is not None else "",
        strategy="StrictFIFO" if queue.strict else "BestEffortFIFO",
        position=position,
        pending=queue.pending,
        parked=is_parked(workload),
        priority=workload.priority,
        waiting_since=workload.queued_at,
        requeue_at=workload.requeue_at if not workload.is_due(now) else None,
        outlook=evaluation.outlook,
        ahead=ahead,
        flavors=tuple(verdicts),
        holders=tuple(dict.fromkeys(f"{holder.namespace}/{holder.name}" for holder in held_by)),
        held_by=held_by,
        waits_for=waits_for,
        preempted_by=workload.preempted_by,
        checks=_checks(state, workload),
        promise=start,
        seen=state.seen,
    )
    return with_remedies(reply, changes)


def _explain_holder(state: SchedulerState, workload: WorkloadInfo) -> ExplainReply | None:
    """Returns the explanation of a workload with quota; None: the workload holds no quota."""
    charge = workload.charge
    if charge is None:
        return None
    if workload.state == PROMISED:
        reply = ExplainReply(
            phase="Pending",
            reason=reasons.WAITING_FOR_PREEMPTED_WORKLOADS,
            message=f"Quota in ClusterQueue {charge.queue.name} is held for it until the job of "
            "its sibling variant has stopped",
            cluster_queue=charge.queue.name,
            local_queue=workload.local_queue[1],
            priority=workload.priority,
            seen=state.seen,
        )
        sibling = Remedy(text="stop of the job of its sibling variant", kind=RemedyKind.STOP)
        return with_remedies(reply, (sibling,))
    phase = "QuotaReserved" if workload.state == "Pending" else workload.state
    message = f"Holds quota in ClusterQueue {charge.queue.name}"
    open_checks = [name for name, is_now in workload.checks if is_now != "Ready"]
    unblocked = [remedies.of_open_check(state, name) for name in open_checks]
    waits_for = tuple(
        _going(victim)
        for victim in state.victims_by_preemptor.get(workload.uid, ())
        if victim.charge is not None
    )
    checks = _checks(state, workload)
    if phase == "QuotaReserved" and open_checks:
        message += f" and waits for {count_with_noun(len(open_checks), 'admission check')}"
        silent = [check for check in checks if check.inactive and check.name in open_checks]
        message += "".join(f"; {check.name} is inactive ({check.inactive})" for check in silent)
    if phase == "QuotaReserved":
        plans = [
            victim
            for victim in charging.outstanding_victims(state, workload)
            if not victim.is_leaving
        ]
        if plans:
            names = remedies.first_names(["/".join(victim.key) for victim in plans], NAMED_MAX)
            message += f"; it will then preempt {count_with_noun(len(plans), 'workload')}: {names}"
        elif not (open_checks or waits_for or workload.is_leaving):
            message += " and waits for the recheck before admission"
    if waits_for and phase == "QuotaReserved":
        unblocked += list(remedies.of_victims(waits_for, Outlook(outcome="Fits")))
    youth = youth_of(state.min_runs, workload, state.now)
    if youth is not None:
        message += f"; may be preempted {when_old(youth, state.now)}"
        if not youth.rule.is_required:
            message += ", and before if no other workloads make enough room"
    if workload.is_leaving:
        if workload.preempted_by is not None:
            message += f"; preempted by workload {workload.preempted_by.by}"
        text = "stop of its job; after that it competes for quota again"
        unblocked = [Remedy(text=text, kind=RemedyKind.STOP)]
    reply = ExplainReply(
        phase=phase,
        reason=phase,
        message=message,
        cluster_queue=charge.queue.name,
        local_queue=workload.local_queue[1],
        priority=workload.priority,
        waits_for=waits_for,
        preempted_by=workload.preempted_by,
        checks=checks,
        seen=state.seen,
    )
    return with_remedies(reply, unblocked)


def _checks(state: SchedulerState, workload: WorkloadInfo) -> tuple[OpenCheck, ...]:
    """Returns the checks in the rows of the workload, and which of them give no verdict now."""
    rows = []
    for name, is_now in workload.checks:
        check = state.catalog.checks.get(name)
        inactive = inactive_because(check) if check is not None else None
        rows.append(OpenCheck(name=name, state=is_now, inactive=inactive or ""))
    return tuple(rows)


class Evaluation(NamedTuple):
    """The decision that the next cycle would make about a pending workload."""

    outlook: Outlook
    assignment: Assignment
    report: FlavorReport
    victims: Sequence[Victim]


def why_not_considered(
    state: SchedulerState, workload: WorkloadInfo, queue: Queue | None, now: datetime
) -> Refusal | None:
    """Returns why no cycle considers the workload; None: cycles consider it."""
    if workload.problem is not None:
        return Refusal(reason=workload.problem.reason, message=workload.problem.message)
    if not workload.competes:
        return Refusal(
            reason=workload.status_reason or reasons.SUSPENDED,
            message="It does not compete for quota",
        )
    inactive = why_inactive(state, workload, queue)
    if inactive is not None:
        return inactive
    if not workload.is_due(now):
        at = workload.requeue_at
        until = f" until {at:%Y-%m-%dT%H:%M:%SZ}" if at is not None else ""
        return Refusal(reason=reasons.BACKOFF, message=f"Waits{until} before it competes again")
    alone = workload.inadmissible
    if alone is None or alone is BACKOFF or alone.reason == reasons.WAITING_FOR_PROMISED_START:
        return None  # Whether a promise still holds the workload back is computed anew.
    return refusal_for(workload)


def evaluate(
    state: SchedulerState,
    cycle: Cycle,
    queue: Queue,
    workload: WorkloadInfo,
    why: Refusal | None,
    promise: Promise | NoPromise | None = None,
) -> Evaluation:
    """Returns the decision that the next cycle would make about the workload. ``why``: the reason
    why no cycle considers the workload; None: cycles consider it. ``promise``: the promise that the
    cycle keeps."""
    inadmissible, (assignment, victims), search = cycle.consider(queue, workload)
    closed = ""
    if queue.in_cycle:
        closed = f"ClusterQueue {queue.name} is in a cycle of cohorts"
    report = report_flavors(state, queue, workload, assignment, search, closed=closed)
    if why is None and inadmissible is not None:
        why = Refusal(reason=inadmissible.reason, message=inadmissible.message)
    if why is None and assignment.mode == FIT and queue.domain is not None:
        why = WAITS_FOR_PODS_READY if state.pods_ready.blocks(queue.domain) else None
    if why is None and (assignment.mode == FIT or victims):
        why = promised_start.why_held_back(state, promise, queue, workload, (assignment, victims))
    flavors = {place.name: place.flavors for place in assignment.places}
    asked = {ps.name: ps.count for ps in workload.shape.pod_sets} if workload.shape else {}
    counts = {
        place.name: place.count for place in assignment.places if place.count != asked[place.name]
    }
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
            victims=tuple(preemption_victim_of(victim) for victim in victims[:VICTIMS_MAX]),
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
    return Evaluation(outlook, assignment, report, victims)


def why_not_admitted(
    queue: Queue,
    workload: WorkloadInfo,
    evaluation: Evaluation,
    waits_for: Sequence[PreemptionVictim],
    position: int,
) -> Refusal:
    """Returns why a workload that cycles consider is not admitted yet."""
    outlook = evaluation.outlook
    if outlook.outcome in ("NoFit", "NoCandidates", "Hindered"):
        return Refusal(reason=outlook.reason, message=outlook.message)
    if workload.closed_gate and outlook.outcome == "Preempts":
        return Refusal(
            reason=reasons.ADMISSION_GATED,
            message="It needs preemption, and its preemption gate "
            f"{workload.closed_gate} is closed",
        )
    if waits_for:
        return Refusal(
            reason=reasons.WAITING_FOR_PREEMPTED_WORKLOADS,
            message=f"Waits until {count_with_noun(len(waits_for), 'preempted workload')} stopped",
        )
    parked = refusal_for(workload)
    if parked is not None and queue.domain is not None and not queue.domain.flush:
        return parked
    turn = f"At position {position} of its ClusterQueue"
    head = queue.head()
    if queue.lanes is not None and head is not None:
        less = queue.lanes.before(workload, head)
        turn += f": {less}" if less else ""
    if outlook.outcome == "Preempts":
        going = count_with_noun(len(outlook.victims) + outlook.victims_left_out, "workload")
        return Refusal(
            reason=reasons.PENDING_EVALUATION,
            message=f"{turn}; it fits once it has preempted {going}",
        )
    return Refusal(reason=reasons.PENDING_EVALUATION, message=f"{turn}; it fits")


# Other workloads. -------------------------------------------------------------------------


def _waits_for(
    state: SchedulerState, workload: WorkloadInfo, evaluation: Evaluation
) -> tuple[PreemptionVictim, ...]:
    """Returns the victims of ``workload`` that are being preempted and still hold quota."""
    going = {
        victim.workload: preemption_victim_of(victim)
        for victim in evaluation.victims
        if victim.workload.is_leaving
    }
    for other in state.victims_by_preemptor.get(workload.uid, ()):
        if other.charge is not None and other not in going and other.is_leaving:
            going[other] = _going(other)
    return tuple(islice(going.values(), VICTIMS_MAX))


def _going(workload: WorkloadInfo) -> PreemptionVictim:
    preempted = workload.preempted_by
    return preemption_victim_of(Victim(workload, preempted.rule if preempted is not None else ""))


def _ahead(queue: Queue, workload: WorkloadInfo, position: int) -> tuple[Ahead, ...]:
    """Returns the first workloads that are ahead of the given workload in its queue. The reasons of
    workloads of other namespaces are left out, as in the answer of `pending`."""
    if position == 1:
        return ()
    head = _row_of(queue, queue.head())
    if len(queue.classes) + len(queue.parked_workloads) <= CLASSES_MAX or queue.parents:
        front: Iterator[tuple[int, WorkloadInfo]] = enumerate(in_listed_order(queue), start=1)
        first = list(islice(front, AHEAD_MAX if not position else min(AHEAD_MAX, position - 1)))
        if head is not None and all(other is not head for _, other in first):
            at = position_in(queue, head)
            if not position or at < position:
                first.append((at, head))
    else:
        first = [(0, head)] if head is not None and head is not workload else []
    return tuple(
        Ahead(
            namespace=other.key[0],
            name=other.key[1],
            position=at,
            priority=other.priority,
            holds_place=keeps_first_place(queue, other),
            reason=refusal.reason
            if other.key[0] == workload.key[0] and (refusal := refusal_for(other)) is not None
            else "",
        )
        for at, other in first
    )


def _row_of(queue: Queue, workload: WorkloadInfo | None) -> WorkloadInfo | None:
    """Returns the workload that lists of pending workloads show for ``workload``: for a variant its
    parent, if the parent is pending in the queue, else ``workload`` itself."""
    parent = (
        workload.family.parent if workload is not None and workload.family is not None else None
    )
    return parent if parent is not None and parent.queue is queue else workload


def _remedies(
    state: SchedulerState,
    workload: WorkloadInfo,
    queue: Queue,
    evaluation: Evaluation,
    held_by: Sequence[Holder],
    waits_for: Sequence[PreemptionVictim],
    now: datetime,
) -> tuple[Remedy, ...]:
    changes = list(remedies.to_be_considered(state, workload, queue, now))
    kept_back = list(family_summary.of_variant(state, queue, workload))
    if kept_back:
        return (*changes, *kept_back)
    if workload.closed_gate and evaluation.victims:
        text = f"opening of preemption gate {workload.closed_gate}"
        changes.append(Remedy(text=text, kind=RemedyKind.GATE))
        changes += [
            remedies.free_quota(state, need.cell, need.wanted, held_by)
            for need in evaluation.report.needs.values()
        ]
    elif evaluation.outlook.outcome != "Hindered" or not changes:
        changes += remedies.of_victims(waits_for, evaluation.outlook)
        if evaluation.outlook.outcome in ("Fits", "Preempts"):
            changes += remedies.of_queue(queue, workload, queue.head())
        else:
            if evaluation.outlook.outcome == "Hindered":
                changes.append(remedies.of_obstacle(evaluation.outlook.message))
            needs = evaluation.report.needs.values()
            for verdict in _of_allowed_flavors(workload, evaluation.report.verdicts):
                changes += remedies.of_flavor(state, verdict, needs, held_by)
    return tuple(remedies.first_remedies(changes))


def _of_allowed_flavors(
    workload: WorkloadInfo, verdicts: Sequence[FlavorVerdict]
) -> Sequence[FlavorVerdict]:
    """Returns only the verdicts on flavors that the workload may use if it is a variant; for other
    workloads all verdicts."""
    among = workload.reported_flavors
    if among is None:
        return verdicts
    return [
        verdict for verdict in verdicts if not verdict.flavor or verdict.flavor in among
    ] or verdicts
