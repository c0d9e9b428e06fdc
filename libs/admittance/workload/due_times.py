"""The times at which a workload is due, one time per kind of timer, computed from the stored
object.

A timer only starts a new computation, so a timer that is late, repeated or set for an earlier state
changes nothing. docs/spec/lifecycle.md#1.4, #3.2, #6.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from admittance.api.validation.pods_ready import WAIT_FOR_PODS_READY
from admittance.events import reasons
from admittance.workload.conditions import Type, find, find_false
from admittance.workload.limits import Limits, pods_ready_limits
from admittance.workload.phase import Phase, is_stopping, phase
from admittance.workload.stored import VARIANT, StoredWorkload, head
from admittance.workload.transition_context import TimeRules

WAITS: frozenset[str] = frozenset({reasons.ADMISSION_CHECK, reasons.PODS_READY_TIMEOUT})
"""Reasons of Requeued=False that end after a time."""


class TimerKind(StrEnum):
    """What a timer of a workload is set for. The value of each kind is a token of the timer's
    subject."""

    REQUEUE = "requeue"
    """The backoff of the workload ends, and the workload competes again (T20)."""
    PODS_READY = "pods-ready"
    """The pods were not ready, or not ready again, in time (T13, T14)."""
    EXECUTION = "execution"
    """The maximum execution time is over (T15)."""
    DRAIN = "drain"
    """No runner reported in time that the job of an evicted workload has stopped (T19)."""
    CHECKS = "checks"
    """A check sent no verdict in time (`checkTimeoutSeconds`)."""
    LEASE = "lease"
    """The program that holds the quota has not renewed its lease in time (T32)."""
    FAMILY = "family"
    """The desired state of a variant changes. Only parents have a timer of this kind."""


MARKS: Final[Mapping[TimerKind, bytes]] = {
    TimerKind.REQUEUE: b'"Requeued"',
    TimerKind.PODS_READY: f'"{WAIT_FOR_PODS_READY}"'.encode(),
    TimerKind.EXECUTION: b'"maximumExecutionTimeSeconds"',
    TimerKind.DRAIN: b'"Evicted"',
    TimerKind.CHECKS: b'"admissionChecks"',
    TimerKind.LEASE: b'"leaseDurationSeconds"',
    TimerKind.FAMILY: b'"nextChangeAt"',
}
"""For each kind the text that the bytes of every stored workload with a due time of that kind
contain. `marks_of` adds the mark of a deployment that limits how long pods may take to be ready."""
ADMITTED: Final = b'"Admitted"'
ESCAPE: Final = b"\\u"
"""A value with an escape may contain a mark in another form. This version never writes one of a
mark."""


def marks_of(limits: Limits) -> tuple[bytes, ...]:
    """The texts of which every stored workload with a due time, or with a check that may give it
    one, contains at least one."""
    always = () if limits.pods_ready is None else (ADMITTED,)
    return (*MARKS.values(), *always, ESCAPE)


def due_times(
    workload: StoredWorkload, now: datetime, queues: TimeRules
) -> dict[TimerKind, datetime]:
    """The due times of the workload, by kind. ``now`` is used only to determine the workload's
    phase. Times that concern a family's job are due times of the parent, because a variant has no
    job."""
    where = phase(workload, now)
    times: dict[TimerKind, datetime | None] = {}
    if where in (Phase.BACKOFF, Phase.PENDING):
        times[TimerKind.REQUEUE] = _requeue(workload)
    if is_stopping(workload) and owns_job(workload):
        times[TimerKind.DRAIN] = _since(workload, Type.EVICTED, queues.limits.drain)
    if where in (Phase.ADMITTED, Phase.RUNNING) and owns_job(workload):
        times[TimerKind.PODS_READY] = _pods_ready(workload, queues)
        times[TimerKind.EXECUTION] = execution_end(workload)
    if where is Phase.QUOTA_RESERVED:
        times[TimerKind.CHECKS] = _checks(workload, queues)
    if where is not Phase.FINISHED and owns_job(workload):
        times[TimerKind.LEASE] = lease_end(workload)
    if workload.status.next_change_at is not None and where is not Phase.FINISHED:
        times[TimerKind.FAMILY] = workload.status.next_change_at
    return {kind: at for kind, at in times.items() if at is not None}


def owns_job(workload: StoredWorkload) -> bool:
    """Whether a job runs for the workload itself: a variant has no job."""
    return head(workload).role != VARIANT


def _since(workload: StoredWorkload, kind: Type, wait: timedelta) -> datetime | None:
    condition = find(workload, kind)
    since = condition.last_transition_time if condition is not None else None
    return since + wait if since is not None else None


def _requeue(workload: StoredWorkload) -> datetime | None:
    waits = find_false(workload, Type.REQUEUED)
    if waits is None or waits.reason not in WAITS:
        return None
    state = workload.status.requeue_state
    if state is not None and state.requeue_at is not None:
        return state.requeue_at
    # No transition leaves such a Requeued=False without a time, so another program wrote the
    # condition, and the wait is over at once.
    return waits.last_transition_time


def _pods_ready(workload: StoredWorkload, queues: TimeRules) -> datetime | None:
    limits = pods_ready_limits(workload.metadata.annotations, queues.limits)
    if limits is None or head(workload).lease_duration_seconds is not None:
        return None
    ready = find(workload, Type.PODS_READY)
    if ready is not None and ready.status == "True":
        return None
    if ready is None or ready.reason != reasons.WAIT_FOR_RECOVERY:
        return _since(workload, Type.ADMITTED, limits.timeout)
    return _since(workload, Type.PODS_READY, limits.recovery) if limits.recovery else None


def execution_end(workload: StoredWorkload) -> datetime | None:
    """When the maximum execution time of an admitted workload is over; None: it has none."""
    longest = head(workload).maximum_execution_time_seconds
    if longest is None:
        return None
    spent = workload.status.accumulated_past_execution_time_seconds or 0
    return _since(workload, Type.ADMITTED, timedelta(seconds=max(0, longest - spent)))


def lease_end(workload: StoredWorkload) -> datetime | None:
    """When the lease of the program that holds the quota ends; None: no program holds it."""
    seconds = head(workload).lease_duration_seconds
    since = workload.status.renewed_at or workload.metadata.creation_timestamp
    if seconds is None or since is None:
        return None
    return since + timedelta(seconds=seconds)


def _checks(workload: StoredWorkload, queues: TimeRules) -> datetime | None:
    return min(check_ends(workload, queues).values(), default=None)


def check_ends(workload: StoredWorkload, queues: TimeRules) -> dict[str, datetime]:
    """The deadline of each Pending check with a timeout: counted from the reservation of quota, or
    from the time when the check's row became Pending if that was later."""
    ends: dict[str, datetime] = {}
    for row in workload.status.admission_checks:
        rules = queues.check(row.name) if row.state == "Pending" else None
        if rules is None or not rules.timeout_seconds or rules.missing:
            continue
        wait = timedelta(seconds=rules.timeout_seconds)
        end = _since(workload, Type.QUOTA_RESERVED, wait)
        if end is None:
            continue
        since = row.last_transition_time
        ends[row.name] = max(end, since + wait) if since is not None else end
    return ends
