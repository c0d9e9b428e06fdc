"""The effect of due times: T13, T14, T15, T32, the forced end of an eviction (T19), and checks
without a verdict in time. docs/spec/lifecycle.md#6.

A timer only starts a new computation of the due times, so a timer that is late, repeated or set for
an earlier state changes nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from admittance.api.workload import RequeueState
from admittance.events import facts, reasons
from admittance.workload.change import Change, applied, ignored, with_status
from admittance.workload.conditions import Type, find
from admittance.workload.due_times import TimerKind, check_ends, due_times
from admittance.workload.limits import PodsReadyLimits, pods_ready_limits
from admittance.workload.moves.backoff import rounded_up, wake, wake_if_over
from admittance.workload.moves.check_retries import apply_overdue_checks
from admittance.workload.moves.eviction import evict, release, total_seconds
from admittance.workload.moves.parts import end_without_reports
from admittance.workload.moves.requests import deactivate, finish
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import TransitionContext

TIMER_KINDS: Final = frozenset(str(kind) for kind in TimerKind)


def timer_due(workload: StoredWorkload, fact: facts.TimerDue, context: TransitionContext) -> Change:
    """Applies what is due at the timer's time, such as the end of a backoff, if that time is
    over."""
    if fact.kind not in TIMER_KINDS:
        return ignored(
            workload, reasons.OTHER_TIMER, f"no workload waits for a timer {fact.kind[:64]}"
        )
    kind = TimerKind(fact.kind)
    when = due_times(workload, context.now, context.queues).get(kind)
    if when is None:
        return ignored(workload, reasons.NOT_WAITING, f"it waits for no time of the kind {kind}")
    if context.now < when:
        return ignored(workload, reasons.TOO_EARLY, f"not before {when.isoformat()}")
    match kind:
        case TimerKind.REQUEUE:
            return wake(workload, context)
        case TimerKind.PODS_READY:
            return _not_ready(workload, context)
        case TimerKind.EXECUTION:
            return _exceeded_execution_time(workload, context)
        case TimerKind.DRAIN:
            return _forced_release(workload, context)
        case TimerKind.CHECKS:
            return apply_overdue_checks(workload, _late_checks(workload, context), context)
        case TimerKind.LEASE:
            return _lease_expired(workload, context)
        case TimerKind.FAMILY:
            # The timer changes nothing itself: the family is reconciled afterwards, with the
            # current time.
            return applied(workload)


def backoff_seconds(count: int, limits: PodsReadyLimits) -> int:
    """Returns the wait in seconds after the eviction with the number ``count``, counted from 1."""
    # The number of doublings is bounded, because more doublings of the wait would exceed every
    # limit.
    return int(min(limits.backoff_base << min(count - 1, 40), limits.backoff_max))


def _not_ready(workload: StoredWorkload, context: TransitionContext) -> Change:
    """T13: evicts the workload because its pods were not ready in time; T14: deactivates it if its
    requeue limit is reached."""
    limits = pods_ready_limits(workload.metadata.annotations, context.queues.limits)
    assert limits is not None, "a time is due"
    ready = find(workload, Type.PODS_READY)
    recovering = ready is not None and ready.reason == reasons.WAIT_FOR_RECOVERY
    cause = reasons.WAIT_FOR_RECOVERY if recovering else reasons.WAIT_FOR_START
    wait = limits.recovery if recovering and limits.recovery else limits.timeout
    what = "ready again" if recovering else "ready"
    message = f"Exceeded the PodsReady timeout: not all pods were {what} within {_span(wait)}"
    state = workload.status.requeue_state or RequeueState()
    count = (state.count or 0) + 1
    if limits.backoff_limit is not None and count > limits.backoff_limit:
        text = f"Deactivated after {limits.backoff_limit} evictions with a requeue: {message}"
        reason = f"{reasons.DEACTIVATED_DUE_TO}{reasons.REQUEUING_LIMIT_EXCEEDED}"
        return deactivate(workload, reason, text, context, cause=reasons.REQUEUING_LIMIT_EXCEEDED)
    until = rounded_up(context.now + timedelta(seconds=backoff_seconds(count, limits)))
    until = max(until, state.requeue_at or until)
    waiting = with_status(workload, requeue_state=RequeueState(count=count, requeue_at=until))
    return evict(waiting, reasons.PODS_READY_TIMEOUT, message, context, cause=cause)


def _exceeded_execution_time(workload: StoredWorkload, context: TransitionContext) -> Change:
    """T15: deactivates the workload because its maximum execution time is over."""
    longest = head(workload).maximum_execution_time_seconds
    ran = total_seconds(workload, context.now)
    message = f"Exceeded the maximum execution time: it ran {ran} s, {longest} s are allowed"
    reason = reasons.DEACTIVATED_DUE_TO_EXECUTION_TIME
    cause = reasons.MAXIMUM_EXECUTION_TIME_EXCEEDED
    note = OutboxEntry(what="noted", reason=cause, message=message)
    return deactivate(workload, reason, message, context, cause=cause).after(note)


def _forced_release(workload: StoredWorkload, context: TransitionContext) -> Change:
    """Frees the quota of an evicted workload although no runner reported that its job has stopped.
    A later report of the stop names an old revision and is ignored, but a later result of the job
    counts until the workload is admitted again. A job of which a part has failed is finished: T26.
    """
    message = (
        f"No runner reported within {_span(context.queues.limits.drain)} that the job has stopped: "
        "its quota is freed"
    )
    note = OutboxEntry(what="noted", reason=reasons.FORCED_RELEASE, message=message)
    failed = end_without_reports(workload, context.now)
    if failed is not None:
        return finish(workload, failed, context).after(note)
    return wake_if_over(release(workload, context), context).after(note)


def _lease_expired(workload: StoredWorkload, context: TransitionContext) -> Change:
    """T32: finishes the workload, because the program that holds its quota has not renewed its
    lease."""
    seconds = head(workload).lease_duration_seconds
    expired = facts.Finished(
        namespace=workload.metadata.namespace,
        name=workload.metadata.name,
        succeeded=False,
        reason=reasons.LEASE_EXPIRED,
        message=f"The program that held the quota did not renew its lease within {seconds} s",
    )
    return finish(workload, expired, context)


def _late_checks(workload: StoredWorkload, context: TransitionContext) -> tuple[str, ...]:
    ends = check_ends(workload, context.queues)
    return tuple(sorted(name for name, end in ends.items() if end <= context.now))


def _span(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"
