"""What is said to workloads that wait: only when the reason is new, and never in a hurry.

A workload is told after it has been parked, or has been the head that blocks its queue, without a
break for `Config.refusal_delay`, so that in a busy queue, where whatever is parked is woken again
and again, nobody is told anything that is untrue by the time it is written.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Final

from admittance.events.facts import Refused
from admittance.events.shapes import Refusal, Scan
from admittance.scheduling.cycle.outcomes import told
from admittance.scheduling.cycle.reasons import complete, refusal_of
from admittance.scheduling.state.assignment import Assignment
from admittance.scheduling.state.equivalence import EquivalenceClass, ScanRecord, forget_reason
from admittance.scheduling.state.queue import schedule_class_refusal
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import (
    BlockedHead,
    InFlight,
    Queue,
    WorkloadInfo,
    family_quota_of,
)

UNDER_WAY_MAX: Final = 256
"""So many may be on their way: they are not urgent, and where they are written down slowly, more of
them would only keep back what is."""


def due(state: SchedulerState, now: datetime) -> list[Refused]:
    """The refusals to be said now, marked as on their way. What is left over is due at once."""
    refused = _urgent(state, now) if state.urgent_refusals else []
    loud = state.refusal_queue
    latest = now - state.config.refusal_delay
    while loud.items and loud.items[0][0] <= latest:
        room = min(
            state.config.refusals_per_call - len(refused),
            UNDER_WAY_MAX - len(state.refusals_in_flight),
        )
        if room <= 0:
            break
        who = loud.pop()
        if isinstance(who, EquivalenceClass):
            workloads = list(islice(who.unrefused(latest), room))
            refusal = _of_class(who) if workloads else None
            for workload in workloads:
                assert refusal is not None
                forget_reason(workload)
                refused += _refused(state, workload, refusal, now, who.scan)
            first = who.first()
            queue = first[3].queue if first is not None else None
            # Elsewhere whoever decides there says it; a domain that becomes ours is flushed.
            if queue is not None and queue.domain is not None and queue.domain.owned:
                schedule_class_refusal(queue, who)
        elif _is_untold(who, latest):
            assert who.inadmissible is not None, "it is set aside"
            refusal = Refusal(reason=who.inadmissible.reason, message=who.inadmissible.message)
            refused += _refused(state, who, refusal, now)
        elif (standing := untold(who, latest)) is not None:
            refused += _refused(state, who, standing[0], now, standing[1])
    return refused


def _urgent(state: SchedulerState, now: datetime) -> list[Refused]:
    """What is said without waiting whether it stays so: others wait to hear it."""
    refused: list[Refused] = []
    while state.urgent_refusals:
        workload = next(iter(state.urgent_refusals))
        del state.urgent_refusals[workload]
        if _is_untold(workload, now):
            assert workload.inadmissible is not None, "it is set aside"
            refusal = Refusal(
                reason=workload.inadmissible.reason, message=workload.inadmissible.message
            )
            refused += _refused(state, workload, refusal, now)
            continue
        cls = workload.cls
        if cls is None or cls.parked is None or workload.status_reason == cls.parked.reason:
            continue
        if not workload.in_flight:
            forget_reason(workload)
            refused += _refused(state, workload, _of_class(cls), now, cls.scan)
    return refused


def _of_class(cls: EquivalenceClass[WorkloadInfo]) -> Refusal:
    """Why the class is parked, with the numbers of every flavor: also of those that the last scan
    did not come to. They are worked out once for all members, and only when they are said."""
    first = cls.first()
    assert cls.parked is not None and first is not None, "somebody of it is untold"
    return with_all_flavors(first[3], cls.parked)


def with_all_flavors(workload: WorkloadInfo, refusal: Refusal) -> Refusal:
    """The refusal with present numbers of the flavors that the scan did not try."""
    plan = workload.queue.plan if workload.queue is not None else None
    if plan is None or workload.shape is None:
        return refusal
    held = family_quota_of(workload)
    return complete(refusal, plan, workload.shape, own=workload.is_variant, held=held)


def _is_untold(workload: WorkloadInfo, latest: datetime) -> bool:
    aside = workload.inadmissible
    if aside is None or aside.is_silent or workload.status_reason == aside.reason:
        return False
    return workload.parked_since is not None and workload.parked_since <= latest


def _refused(
    state: SchedulerState,
    workload: WorkloadInfo,
    refusal: Refusal,
    now: datetime,
    scanned: ScanRecord[WorkloadInfo] | None = None,
) -> tuple[Refused, ...]:
    domain = workload.queue.domain if workload.queue is not None else None
    if workload.in_flight or domain is None or not domain.owned:
        return ()
    state.set_in_flight(workload, domain, InFlight.REFUSED)
    state.refusals_in_flight[workload] = None
    said = Refused(
        **state.decision_fields(workload, domain, now),
        refusal=refusal,
        scan=_scan(workload, scanned) if scanned is not None else None,
    )
    return (said,)


def _scan(workload: WorkloadInfo, scanned: ScanRecord[WorkloadInfo]) -> Scan:
    """How the workload's class came to be parked, for the log."""
    seen, at, first, cursor = scanned
    name = "" if first is workload else f"{first.key[0]}/{first.key[1]}"
    return Scan(cursor=told(cursor), seen=seen, at=at, head=name)


def earliest(state: SchedulerState) -> datetime | None:
    """When a refusal may be due next; None: there is none to say, or none before some of those on
    their way have been heard of."""
    items = state.refusal_queue.items
    if state.urgent_refusals:
        return state.now - state.config.refusal_delay
    if len(state.refusals_in_flight) >= UNDER_WAY_MAX:
        return None
    return items[0][0] + state.config.refusal_delay if items else None


def stand(
    queue: Queue,
    workload: WorkloadInfo,
    assignment: Assignment,
    scanned: ScanRecord[WorkloadInfo],
    refusal: Refusal | None = None,
) -> None:
    """The head was given nothing, and nobody may pass it. ``refusal``: why, if not for what came
    of the scan."""
    now = queue.blocked_head
    if now is None or now.workload is not workload or now.assignment is not assignment:
        before, now = (
            now,
            BlockedHead(
                workload, assignment, scanned, refusal or refusal_of(assignment), scanned.at
            ),
        )
        if before is not None and before.workload is workload:
            now.is_scheduled = before.is_scheduled
            if before.refusal.reason == now.refusal.reason:
                now.since = before.since
        queue.blocked_head = now
    if not now.is_scheduled and workload.status_reason != now.refusal.reason:
        now.is_scheduled = True
        queue.refusal_queue.put(now.since, workload)


def standing_of(workload: WorkloadInfo) -> BlockedHead | None:
    """How the workload stands at the head of its queue; None: it does not, or gets something."""
    queue = workload.queue
    if queue is None or queue.blocked_head is None or queue.blocked_head.workload is not workload:
        return None
    return queue.blocked_head if queue.head() is workload else None


def untold(
    workload: WorkloadInfo, latest: datetime
) -> tuple[Refusal, ScanRecord[WorkloadInfo]] | None:
    """What the head is to be told, with the numbers of every flavor, and how that came about; None:
    it stands there no longer or not for long enough, or its status says so."""
    queue = workload.queue
    if (
        queue is not None
        and queue.blocked_head is not None
        and queue.blocked_head.workload is workload
    ):
        queue.blocked_head.is_scheduled = False
    found = standing_of(workload)
    if found is None or found.since > latest or workload.status_reason == found.refusal.reason:
        return None
    return with_all_flavors(workload, found.refusal), found.scan
