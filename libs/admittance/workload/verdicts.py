"""What a verdict of a check makes of a workload. LIFECYCLE 2.5, 2.6, 3.2."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from admittance.api.workload import CheckState, RequeueState
from admittance.events import facts
from admittance.workload.change import Change, applied, ignored, refused, with_status
from admittance.workload.conditions import MESSAGE_MAX, Type, find, is_false, put
from admittance.workload.leave import deactivate, evict, no_wait
from admittance.workload.occasion import Occasion
from admittance.workload.phase import REJECTION, Phase, holds_quota, is_stopping, phase
from admittance.workload.rows import Rows, cleared, replaced
from admittance.workload.stored import Say, StoredWorkload, head

STATES: Final = ("Pending", "Ready", "Retry", "Rejected")
DELAY_MAX: Final = timedelta(days=7)
"""A longer delay is cut to this, as LIFECYCLE 3.6 recommends."""


def weigh(workload: StoredWorkload, fact: facts.CheckReported, at: Occasion) -> Change:
    """A verdict on one row. Whatever is not of the current cycle, or not of a row that the
    workload has, is stale and changes nothing."""
    if fact.state not in STATES:
        return refused(workload, "UnknownState", f"no check state is called {fact.state!r}")
    if fact.requeue_after_seconds is not None and fact.requeue_after_seconds < 0:
        return refused(workload, "BadDelay", "requeueAfterSeconds is negative")
    row = next((r for r in workload.status.admission_checks if r.name == fact.check), None)
    if row is None:
        return ignored(workload, "NoSuchCheck", f"the workload has no check {fact.check}")
    if fact.cycle != workload.status.admission_cycle:
        return ignored(
            workload,
            "Stale",
            f"cycle {fact.cycle}, now {workload.status.admission_cycle}",
        )
    match fact.state:
        case "Rejected":
            return _reject(workload, fact, at)
        case "Retry":
            return _retry(workload, row, fact, at)
        case "Ready":
            return _ready(workload, row, fact, at)
    return _store(workload, row, fact, at)


def _store(
    workload: StoredWorkload, row: CheckState, fact: facts.CheckReported, at: Occasion
) -> Change:
    moved = row.state != fact.state
    # Back to Pending after admission is no eviction: only False suspends.
    new = CheckState(
        name=row.name,
        state=fact.state,
        message=fact.message,
        reason=fact.reason if fact.state == "Pending" else "",
        last_transition_time=at.now if moved else row.last_transition_time,
        retry_count=0 if fact.state == "Ready" else row.retry_count,
        pod_set_updates=fact.pod_set_updates if fact.state == "Ready" else (),
    )
    if new == row:
        return ignored(workload, "Repeated")
    rows = replaced(workload.status.admission_checks, new)
    return applied(with_status(workload, admission_checks=rows))


def _ready(
    workload: StoredWorkload, row: CheckState, fact: facts.CheckReported, at: Occasion
) -> Change:
    where = phase(workload, at.now)
    if where is Phase.PENDING:
        # Given before the flavor is known, it proves nothing.
        return ignored(workload, "NoReservation", "a Ready without a reservation counts nothing")
    # Also the last one is only written down: the scheduler looks again before it admits.
    return _store(workload, row, fact, at)


def _retry(
    workload: StoredWorkload, row: CheckState, fact: facts.CheckReported, at: Occasion
) -> Change:
    delay = fact.requeue_after_seconds or None
    if delay is not None:
        delay = min(delay, int(DELAY_MAX.total_seconds()))
    if not holds_quota(workload) and delay is None:
        return ignored(workload, "NoReservation", "a Retry without a delay holds nobody")
    same = row.state == "Retry" and delay == row.requeue_after_seconds
    new = CheckState(
        name=row.name,
        state="Retry",
        message=fact.message,
        last_transition_time=row.last_transition_time if same else at.now,
        requeue_after_seconds=delay,
        retry_count=row.retry_count,
    )
    rows = replaced(workload.status.admission_checks, new)
    held = with_status(workload, admission_checks=rows)
    until = deadline(held)
    state = held.status.requeue_state or RequeueState()
    held = with_status(held, requeue_state=replace(state, requeue_at=until))
    if holds_quota(held) and not is_stopping(held):
        message = f"AdmissionCheck in Retry state: {spoken(rows)}"
        change = evict(held, "AdmissionCheck", message, at, keep_rows=True)
        return wake_if_over(change, at)
    conditions = put(
        held.status.conditions, Type.REQUEUED, False, "AdmissionCheck", fact.message, now=at.now
    )
    return applied(with_status(held, conditions=conditions))


def spoken(rows: Rows) -> str:
    """The rows in Retry, by name, each with what its controller said."""
    said = "; ".join(
        f'"{row.name}" ({row.message})'
        for row in sorted(rows, key=lambda row: row.name)
        if row.state == "Retry"
    )
    return said[:MESSAGE_MAX]


def deadline(workload: StoredWorkload) -> datetime | None:
    """The latest end time over all rows in Retry: not the largest number of seconds."""
    ends = [
        row.last_transition_time + timedelta(seconds=row.requeue_after_seconds)
        for row in workload.status.admission_checks
        if row.state == "Retry" and row.requeue_after_seconds and row.last_transition_time
    ]
    return max(ends, default=None)


def _reject(workload: StoredWorkload, fact: facts.CheckReported, at: Occasion) -> Change:
    """T11, from any phase: it is never lost to an eviction under way."""
    message = f'AdmissionCheck in Rejected state: "{fact.check}" ({fact.message})'
    change = deactivate(workload, REJECTION, message, at)
    return change._replace(
        says=(Say(what="rejected", reason="AdmissionCheckRejected", message=message), *change.says)
    )


def wake(workload: StoredWorkload, at: Occasion) -> Change:
    """T20: the wait is over; all rows start over in a new cycle."""
    requeued = find(workload, Type.REQUEUED)
    waits = requeued is not None and requeued.status == "False"
    if (
        not waits
        or requeued is None
        or requeued.reason
        not in (
            "AdmissionCheck",
            "PodsReadyTimeout",
        )
    ):
        return ignored(workload, "NotWaiting")
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    if until is not None and at.now < until:
        return ignored(workload, "TooEarly", f"not before {until.isoformat()}")
    queue = at.around.cluster_queue(workload.metadata.namespace, head(workload).queue_name)
    required = at.around.required_checks(queue, None) if queue else ()
    counts = dict(workload.status.check_retry_counts)
    counts |= {
        row.name: row.retry_count + (row.state == "Retry")
        for row in workload.status.admission_checks
    }
    rows = tuple(
        replace(row, retry_count=counts.pop(row.name, 0), requeue_after_seconds=None)
        for row in cleared(workload.status.admission_checks, required, now=at.now)
    )
    conditions = put(workload.status.conditions, Type.REQUEUED, True, "BackoffFinished", now=at.now)
    woken = with_status(
        workload,
        conditions=conditions,
        admission_checks=rows,
        admission_cycle=workload.status.admission_cycle + 1,
        check_retry_counts={name: count for name, count in counts.items() if count},
        requeue_state=no_wait(state),
    )
    return applied(woken, Say(what="requeued", reason="BackoffFinished"))


def wake_if_over(change: Change, at: Occasion) -> Change:
    """A release whose wait is over already goes on to compete in the same write."""
    workload = change.workload
    if workload is None or holds_quota(workload) or not is_false(workload, Type.REQUEUED):
        return change
    woken = wake(workload, at)
    if woken.workload is None or woken.workload is workload:
        return change
    return woken._replace(says=(*change.says, *woken.says))
