"""Why a workload waits, from memory: what the next cycle would say of it, who is in its way, and
what would let it go on.

The answer is found by the functions that decide. What they try out on the state they put back,
so that asking changes nothing. It costs a nomination, a look at each of the workload's flavors, and
a bounded look at who holds what is short; nothing grows with what else waits, but for a look at
each class of its queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final

from msgspec.structs import replace

from admittance.events.requests import ExplainReply, FlavorVerdict
from admittance.events.why import Ahead, Going, OpenCheck, Outlook
from admittance.scheduling.cycle.cycle import Cycle, refusal_for
from admittance.scheduling.cycle.outcomes import NAMED_MAX
from admittance.scheduling.explain import family_summary, remedies
from admittance.scheduling.explain.flavor_report import VICTIMS_MAX, going_of
from admittance.scheduling.explain.outlook import Look, hindered, look_at, of_turn, several
from admittance.scheduling.explain.pending import pending
from admittance.scheduling.explain.preemption_blockers import Ask
from admittance.scheduling.explain.queue_status import is_parked, queues
from admittance.scheduling.explain.quota_holders import holders
from admittance.scheduling.state import in_flight, planned
from admittance.scheduling.state.queue import Queue
from admittance.scheduling.state.queue_order import is_ahead, listed, position_in
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Key, Victim, WorkloadInfo
from admittance.scheduling.state.workload_view import PROMISED

__all__ = ["explain", "pending", "queues"]

AHEAD_MAX: Final = 3
CLASSES_MAX: Final = 256
"""In a queue of more classes, or with more set aside, only its head is named of those in front."""


def explain(state: SchedulerState, cycle: Cycle, key: Key, *, now: datetime) -> ExplainReply:
    """Why the workload waits, or what it holds; of a parent, variant by variant."""
    workload = state.workloads.get(key)
    if workload is None or workload.shape is None:
        return ExplainReply(error=f"no unfinished workload {key[0]}/{key[1]} is known")
    local = state.catalog.local_queues.get(workload.local_queue)
    name = local.spec.cluster_queue if local is not None else ""
    queue = state.queues.get(name)
    if workload.is_parent:
        of_variant = partial(explain, state, cycle, now=now)
        return family_summary.explain(state, workload, queue, now, of_variant)
    found = _of_holder(state, workload)
    if found is None:
        found = _of_waiting(state, cycle, workload, name, queue, now)
    family = workload.family
    if family is None or family.parent is None:
        return found
    return replace(found, parent=family.parent.key[1])


def _of_waiting(
    state: SchedulerState,
    cycle: Cycle,
    workload: WorkloadInfo,
    name: str,
    queue: Queue | None,
    now: datetime,
) -> ExplainReply:
    why = hindered(state, workload, queue, now)
    if queue is None or queue.plan is None or queue.node is None:
        assert why is not None, "without a queue it is hindered"
        return ExplainReply(
            phase="Pending",
            reason=why.reason,
            message=why.message,
            cluster_queue=name,
            local_queue=workload.local_queue[1],
            priority=workload.priority,
            waiting_since=workload.queued_at,
            preempted_by=workload.preempted_by,
            unblocked_by=tuple(remedies.of_itself(state, workload, None, now)),
            seen=state.seen,
        )
    look = look_at(state, cycle, queue, workload, why)
    waits_for = _waits_for(state, workload, look)
    position = position_in(queue, workload)
    ahead = _ahead(queue, workload, position)
    if why is None:
        why = of_turn(queue, workload, look, waits_for, position)
    held_by = holders(state, look.seen.asks)
    cohort = queue.node.parent
    verdicts = _of_its_own(workload, look.seen.verdicts)
    return ExplainReply(
        phase="Pending" if workload.is_due(now) else "Backoff",
        reason=why.reason,
        message=why.message,
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
        outlook=look.outlook,
        ahead=ahead,
        flavors=tuple(verdicts),
        holders=tuple(dict.fromkeys(f"{one.namespace}/{one.name}" for one in held_by)),
        held_by=held_by,
        waits_for=waits_for,
        preempted_by=workload.preempted_by,
        unblocked_by=_remedies(state, workload, queue, look, waits_for, now),
        seen=state.seen,
    )


def _of_holder(state: SchedulerState, workload: WorkloadInfo) -> ExplainReply | None:
    """It holds quota: what it waits for still, if for anything. None: it holds none."""
    charge = workload.charge
    if charge is None:
        return None
    if workload.state == PROMISED:
        return ExplainReply(
            phase="Pending",
            reason=in_flight.WAITS_FOR_VICTIMS,
            message=f"Quota is kept for it in ClusterQueue {charge.queue.name} until its sibling's "
            "job has stopped",
            cluster_queue=charge.queue.name,
            local_queue=workload.local_queue[1],
            priority=workload.priority,
            unblocked_by=("its sibling's job having stopped",),
            seen=state.seen,
        )
    phase = "QuotaReserved" if workload.state == "Pending" else workload.state
    message = f"Holds quota in ClusterQueue {charge.queue.name}"
    open_checks = [name for name, is_now in workload.checks if is_now != "Ready"]
    unblocked = [remedies.of_open_check(state, name) for name in open_checks]
    waits_for = tuple(
        _going(one)
        for one in state.victims_by_preemptor.get(workload.uid, ())
        if one.charge is not None
    )
    if phase == "QuotaReserved" and open_checks:
        message += f", and waits for {several(len(open_checks), 'admission check')}"
    if phase == "QuotaReserved":
        plans = [one for one in planned.outstanding_victims(state, workload) if not one.is_leaving]
        if plans:
            going = several(len(plans), "workload")
            names = ", ".join("/".join(one.key) for one in plans[:NAMED_MAX])
            rest = f" and {len(plans) - NAMED_MAX} more" if len(plans) > NAMED_MAX else ""
            message += f"; {going} to be preempted for it then: {names}{rest}"
        elif not (open_checks or waits_for or workload.is_leaving):
            message += ", and waits for the recheck before it is admitted"
    if waits_for and phase == "QuotaReserved":
        unblocked += list(remedies.of_victims(waits_for, Outlook(outcome="Fits")))
    if workload.is_leaving:
        told = workload.preempted_by
        if told is not None:
            message += f"; preempted for {told.by}"
        unblocked = ["its job having stopped; then it competes again"]
    return ExplainReply(
        phase=phase,
        reason=phase,
        message=message,
        cluster_queue=charge.queue.name,
        local_queue=workload.local_queue[1],
        priority=workload.priority,
        waits_for=waits_for,
        preempted_by=workload.preempted_by,
        checks=tuple(OpenCheck(name=name, state=is_now) for name, is_now in workload.checks),
        unblocked_by=tuple(unblocked),
        seen=state.seen,
    )


# Who else. ----------------------------------------------------------------------------------


def _waits_for(state: SchedulerState, workload: WorkloadInfo, look: Look) -> tuple[Going, ...]:
    """Who was told to go for it, and still holds quota."""
    found = {one.workload: going_of(one) for one in look.victims if one.workload.is_leaving}
    for other in state.victims_by_preemptor.get(workload.uid, ()):
        if other.charge is not None and other not in found and other.is_leaving:
            found[other] = _going(other)
    return tuple(islice(found.values(), VICTIMS_MAX))


def _going(workload: WorkloadInfo) -> Going:
    told = workload.preempted_by
    return going_of(Victim(workload, told.rule if told is not None else ""))


def _ahead(queue: Queue, workload: WorkloadInfo, position: int) -> tuple[Ahead, ...]:
    """The first of those in front of it."""
    if position == 1:
        return ()
    head, mine = _row_of(queue, queue.head()), _row_of(queue, workload)
    if len(queue.classes) + len(queue.parked_workloads) <= CLASSES_MAX or queue.parents:
        front: Iterator[tuple[int, WorkloadInfo]] = enumerate(listed(queue), start=1)
        first = list(islice(front, AHEAD_MAX if not position else min(AHEAD_MAX, position - 1)))
        if head is not None and head is not mine and all(one is not head for _, one in first):
            at = position_in(queue, head)
            if not position or at < position:
                first.append((at, head))
    else:
        first = [] if head is None or head is mine else [(0, head)]
    return tuple(
        Ahead(
            namespace=one.key[0],
            name=one.key[1],
            position=at,
            priority=one.priority,
            holds_place=is_ahead(queue, one),
            reason=refusal.reason if (refusal := refusal_for(one)) is not None else "",
        )
        for at, one in first
    )


def _row_of(queue: Queue, workload: WorkloadInfo | None) -> WorkloadInfo | None:
    """Who is listed for it among those that wait: for a variant its parent, if that does."""
    parent = (
        workload.family.parent if workload is not None and workload.family is not None else None
    )
    return parent if parent is not None and parent.queue is queue else workload


def _remedies(
    state: SchedulerState,
    workload: WorkloadInfo,
    queue: Queue,
    look: Look,
    waits_for: Sequence[Going],
    now: datetime,
) -> tuple[str, ...]:
    found = list(remedies.of_itself(state, workload, queue, now))
    kept_back = list(family_summary.of_variant(state, queue, workload))
    if kept_back:
        return (*found, *kept_back)
    if workload.closed_gate and look.victims:
        found.append(f"preemption gate {workload.closed_gate} being opened")
        found += _of_asks(look.seen.asks.values())
    elif look.outlook.outcome != "Hindered" or not found:
        found += remedies.of_victims(waits_for, look.outlook)
        if look.outlook.outcome in ("Fits", "Preempts"):
            found += remedies.of_queue(queue, workload, queue.head())
        else:
            if look.outlook.outcome == "Hindered":
                found.append(f"the end of what holds it back: {look.outlook.message}")
            verdicts = _of_its_own(workload, look.seen.verdicts)
            found += _of_flavors(verdicts, list(look.seen.asks.values()))
    return tuple(dict.fromkeys(found))[: remedies.REMEDIES_MAX]


def _of_its_own(
    workload: WorkloadInfo, verdicts: Sequence[FlavorVerdict]
) -> Sequence[FlavorVerdict]:
    """Those of the flavors that a variant tries; of all, for whoever is none."""
    among = workload.reported_flavors
    if among is None:
        return verdicts
    return [one for one in verdicts if not one.flavor or one.flavor in among] or verdicts


def _of_flavors(flavors: Sequence[FlavorVerdict], asks: Sequence[Ask]) -> Iterator[str]:
    for one in flavors:
        yield from remedies.of_flavor(one, asks)


def _of_asks(asks: Iterable[Ask]) -> Iterator[str]:
    for ask in asks:
        yield remedies.freed(ask.cell, ask.wanted)
