"""Invariants of timed events: never too early, counted once. docs/spec/lifecycle.md#6."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from admittance.workload.conditions import Type, find, is_true
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.stored import StoredWorkload, head

PODS: dict[str, str] = {
    "PodsReadyTimeout": "its pods are not ready",
    "DeactivatedDueToRequeuingLimitExceeded": "its pods are not ready for the last time",
}
TOO_LONG = "DeactivatedDueToMaximumExecutionTimeExceeded"


def broken(
    before: StoredWorkload, after: StoredWorkload, now: datetime, limits: Limits
) -> Iterator[str]:
    """The problems of a write that only a timer caused. ``now``: the latest that any clock
    may show."""
    was, evicted = find(before, Type.EVICTED), find(after, Type.EVICTED)
    reason = evicted.reason if evicted is not None and evicted.status == "True" else ""
    same = was is not None and (was.status, was.reason) == ("True", reason)
    if reason in PODS and not same:
        yield from _pods(before, reason, now, limits.pods_ready)
    if reason == TOO_LONG and not same:
        yield from _execution(before, now)
    if before.status.admission is not None and after.status.admission is None:
        yield from _release(before, reason, now, limits)
    yield from _count(before, after, reason if not same else "", limits.pods_ready)


def _since(workload: StoredWorkload, kind: Type) -> datetime | None:
    condition = find(workload, kind)
    return condition.last_transition_time if condition is not None else None


def _pods(
    before: StoredWorkload, reason: str, now: datetime, limits: PodsReadyLimits | None
) -> Iterator[str]:
    if limits is None:
        yield f"it was evicted with {reason}, and no timeout of pods is configured"
        return
    if not is_true(before, Type.ADMITTED) or is_true(before, Type.PODS_READY):
        yield f"it was evicted with {reason}, and {PODS[reason]} is not so"
        return
    ready = find(before, Type.PODS_READY)
    recovers = ready is not None and ready.reason == "WaitForRecovery"
    since = _since(before, Type.PODS_READY if recovers else Type.ADMITTED)
    wait = limits.recovery if recovers else limits.timeout
    if wait is None:
        yield f"it was evicted with {reason}, and recovery has no timeout"
    elif since is not None and now < since + wait:
        yield f"it was evicted with {reason} {(since + wait - now).total_seconds()} s too early"


def _execution(before: StoredWorkload, now: datetime) -> Iterator[str]:
    most = head(before).maximum_execution_time_seconds
    since = _since(before, Type.ADMITTED)
    if most is None or since is None or not is_true(before, Type.ADMITTED):
        yield "it ran too long, and has no limit"
        return
    spent = timedelta(seconds=before.status.accumulated_past_execution_time_seconds or 0)
    if now - since + spent < timedelta(seconds=most):
        yield f"it ran too long after {now - since + spent}, of {most} s"


def _release(before: StoredWorkload, reason: str, now: datetime, limits: Limits) -> Iterator[str]:
    since = _since(before, Type.EVICTED)
    if is_true(before, Type.EVICTED) and since is not None and now < since + limits.drain:
        yield f"the quota of {reason} was set free before its job has stopped, and too early"


def _count(
    before: StoredWorkload, after: StoredWorkload, reason: str, limits: PodsReadyLimits | None
) -> Iterator[str]:
    state, new = before.status.requeue_state, after.status.requeue_state
    count = (state.count if state is not None else None) or 0
    now = (new.count if new is not None else None) or 0
    if reason == "PodsReadyTimeout":
        if now != count + 1:
            yield f"the eviction number {count + 1} for its pods counts as {now}"
        if limits is not None and limits.backoff_limit is not None and now > limits.backoff_limit:
            yield f"it was evicted {now} times for its pods, {limits.backoff_limit} are allowed"
    elif head(after).active and now != count:
        yield f"it counts {now} evictions for its pods after {count}"


__all__ = ["broken"]
