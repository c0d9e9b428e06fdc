"""The wait before a workload competes again: its length, its causes and its end.
docs/spec/lifecycle.md#3.

``status.requeueState.requeueAt`` has two causes: the delays of checks in Retry, and the backoff
after pods that were not ready. During the wait a check can shorten its delay, but not the backoff.

Retries without a delay are paced, because a check that repeats them without a pause would requeue a
workload hundreds of times per second. The first two such Retries in a row are immediate (KEP-3258);
from the third one on the workload waits 1, 2, 4, … seconds. The count of immediate and paced
Retries is stored with the workload. The count is reset by a Ready, an admission, a Retry with a
delay, a deactivation, and an edit of the workload, its queues, the check or its parameters.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from hashlib import blake2b
from typing import Final, NamedTuple

from admittance.api.checks import RetryStrategy
from admittance.api.fields.units import seconds
from admittance.api.workload import CheckState, ImmediateRetries, RequeueState
from admittance.events import reasons
from admittance.events.shapes import DELAY_MAX
from admittance.workload.change import Change, applied, check_note, ignored, with_status
from admittance.workload.checks.rows import Rows, cleared_rows, required_now
from admittance.workload.conditions import (
    MESSAGE_MAX,
    Type,
    find,
    find_false,
    find_true,
    is_false,
    put,
)
from admittance.workload.due_times import WAITS
from admittance.workload.limits import Limits
from admittance.workload.phase import holds_quota
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import CheckRules, TransitionContext

KEPT_REASONS: Final = frozenset(
    {
        reasons.SUSPENDED,
        reasons.MISCONFIGURED,
        reasons.ON_HOLD,
        reasons.ADMISSION_GATED,
        reasons.DEACTIVATED,
    }
)
"""Reasons of QuotaReserved=False that the reason of a wait does not replace."""


def rounded_up(at: datetime) -> datetime:
    """The next whole second: a delay is a minimum, and messages show times in whole seconds."""
    return at if not at.microsecond else at.replace(microsecond=0) + timedelta(seconds=1)


def end_of(row: CheckState) -> datetime | None:
    """The end of the delay in a check's row; None: the row has no delay."""
    if row.state != "Retry" or not row.requeue_after_seconds or row.last_transition_time is None:
        return None
    return rounded_up(row.last_transition_time + timedelta(seconds=row.requeue_after_seconds))


def check_deadline(rows: Rows) -> datetime | None:
    """The latest end of a delay over all check rows in Retry."""
    return max((end for row in rows if (end := end_of(row)) is not None), default=None)


def pods_ready_part(workload: StoredWorkload) -> datetime | None:
    """The end of the backoff after pods that were not ready. A ``requeueAt`` that no row of a check
    explains counts as the end of such a backoff.
    """
    state = workload.status.requeue_state
    if state is None or state.requeue_at is None:
        return None
    if state.pods_ready_until is not None:
        return state.pods_ready_until
    explained = check_deadline(workload.status.admission_checks)
    if explained is not None and state.requeue_at <= explained:
        return None
    return state.requeue_at


def requeue_state_of(before: StoredWorkload, rows: Rows) -> RequeueState | None:
    """Returns the requeue state of a workload with the check rows ``rows``; the requeue count
    stays."""
    pods, checks = pods_ready_part(before), check_deadline(rows)
    state = before.status.requeue_state or RequeueState()
    until = max((end for end in (pods, checks) if end is not None), default=None)
    if until is None and state.count is None:
        return None
    kept = pods if checks is not None else None
    return RequeueState(count=state.count, requeue_at=until, pods_ready_until=kept)


def no_wait(state: RequeueState | None) -> RequeueState | None:
    """The requeue state without its time; the requeue count stays."""
    if state is None or state.count is None:
        return None
    return RequeueState(count=state.count)


# Messages. ----------------------------------------------------------------------


def check_with_message(check: str, why: str) -> str:
    """Returns the name of a check with the message of its controller, as one phrase."""
    return f'"{check}" ({why})' if why else f'"{check}"'


REJECTED: Final = "Deactivated due to AdmissionCheck in Rejected state: "
"""First words in the message of a rejected workload, before the name of the check."""


def rejection_phrase(workload: StoredWorkload) -> str:
    """Returns a phrase with the check that rejected the workload and the message of the check."""
    for row in workload.status.admission_checks:
        if row.state == "Rejected":
            return check_with_message(row.name, row.message)
    evicted = find(workload, Type.EVICTED)
    said = evicted.message if evicted is not None else ""
    return said.removeprefix(REJECTED)


def wait_message(workload: StoredWorkload) -> str:
    """The message of a wait: the checks in Retry, and the time of the next attempt."""
    retrying = sorted(
        (row for row in workload.status.admission_checks if row.state == "Retry"),
        key=lambda row: row.name,
    )
    if not retrying:
        return _next_attempt(workload)
    s = "s" if len(retrying) > 1 else ""
    said = "; ".join(check_with_message(row.name, row.message) for row in retrying)
    until = _next_attempt(workload)
    why = f"AdmissionCheck{s} in Retry state: {said}"[: MESSAGE_MAX - len(until) - 32]
    return f"{why}. {until}" if until else why


def _next_attempt(workload: StoredWorkload) -> str:
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    if until is None:
        return ""
    deciding = sorted(row.name for row in workload.status.admission_checks if end_of(row) == until)
    cause = f'"{deciding[0]}"' if deciding else "the backoff after PodsReadyTimeout"
    time = until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"Next attempt not before {time}, set by {cause}"


def with_wait_message(workload: StoredWorkload, context: TransitionContext) -> StoredWorkload:
    """The workload with the current wait in the messages of its conditions: T21, T21b."""
    message = wait_message(workload)
    if not message:
        # The same write ends the workload's wait, so no condition needs a message about the wait.
        return workload
    conditions = workload.status.conditions
    evicted = find_true(workload, Type.EVICTED)
    if evicted is not None and evicted.reason == reasons.ADMISSION_CHECK:
        text = f"Evicted due to {message}"
        conditions = put(conditions, Type.EVICTED, True, evicted.reason, text, now=context.now)
    if not holds_quota(workload):
        conditions = put(
            conditions, Type.REQUEUED, False, reasons.ADMISSION_CHECK, message, now=context.now
        )
        reserved = find(workload, Type.QUOTA_RESERVED)
        if reserved is None or reserved.reason not in KEPT_REASONS:
            conditions = put(
                conditions,
                Type.QUOTA_RESERVED,
                False,
                reasons.PENDING_EVALUATION,
                message,
                now=context.now,
            )
    return with_status(workload, conditions=conditions)


# Its end. -------------------------------------------------------------------------------


def wake(workload: StoredWorkload, context: TransitionContext) -> Change:
    """T20: ends the wait of the workload. All check rows are reset, and a new admission cycle
    begins."""
    waits = find_false(workload, Type.REQUEUED)
    if waits is None or waits.reason not in WAITS:
        return ignored(workload, reasons.NOT_WAITING)
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    if until is not None and context.now < until:
        return ignored(workload, reasons.TOO_EARLY, f"not before {until.isoformat()}")
    status = workload.status
    required = required_now(workload, context)
    fresh = cleared_rows(
        status.admission_checks, status.check_retry_counts, required, now=context.now, woken=True
    )
    conditions = put(
        status.conditions, Type.REQUEUED, True, reasons.BACKOFF_FINISHED, now=context.now
    )
    reserved = find(workload, Type.QUOTA_RESERVED)
    if reserved is None or reserved.reason not in KEPT_REASONS:
        conditions = put(
            conditions, Type.QUOTA_RESERVED, False, reasons.PENDING_EVALUATION, now=context.now
        )
    woken = with_status(
        workload,
        conditions=conditions,
        admission_checks=fresh.rows,
        admission_cycle=status.admission_cycle + 1,
        check_retry_counts=fresh.counts,
        requeue_state=no_wait(state),
    )
    return applied(woken, OutboxEntry(what="requeued", reason=reasons.BACKOFF_FINISHED))


def wake_if_over(change: Change, context: TransitionContext) -> Change:
    """Returns the change, which also ends the wait of the workload if the time of the wait is
    over."""
    workload = change.workload
    if (
        workload is None
        or holds_quota(workload)
        or not is_false(workload, Type.REQUEUED)
        or not head(workload).active
    ):
        return change
    woken = wake(workload, context)
    if woken.workload is None or woken.workload is workload:
        return change
    return woken.after(*change.outbox)


class RetryDelay(NamedTuple):
    """The effect of a check's Retry. ``delay``: whole seconds; None: the workload competes again at
    once. ``spent``: the check has no retries left, so its Retry counts as Rejected. ``remark``: a
    clause for the message; ``notes``: the same clause as outbox entries."""

    delay: int | None = None
    spent: bool = False
    remark: str = ""
    notes: tuple[OutboxEntry, ...] = ()


def retry_delay(
    wanted: int | None, rules: CheckRules, *, count: int, uid: str, limits: Limits
) -> RetryDelay:
    """Returns the delay of a workload after a check's Retry. ``wanted``: the delay in seconds that
    the check controller asks for; 0: no delay; None: the check's strategy decides. ``count``: the
    number of earlier retries of that check."""
    strategy = rules.retry
    if not limits.requeue_after:
        if not wanted and strategy is None:
            return RetryDelay()
        what = f"the delay of {wanted} s" if wanted else "the retry strategy"
        remark = f"{what} has no effect while the gate ACRequeueAfter is off"
        return RetryDelay(
            remark=remark, notes=(check_note(reasons.REQUEUE_AFTER_DISABLED, rules.name, remark),)
        )
    most = strategy.max_retries if strategy is not None else None
    if most is not None and count >= most:
        return RetryDelay(spent=True, remark=f"retried {count} times, {most} are allowed")
    delay = wanted
    if delay is None and strategy is not None:
        delay = strategy_delay(strategy, count, chance_of_retry(uid, rules.name, count))
    if not delay:
        return RetryDelay()
    longest = int(limits.check_delay.total_seconds())
    if delay <= longest:
        return RetryDelay(delay)
    remark = f"the delay of {delay} s is cut to {longest} s"
    return RetryDelay(
        longest, remark=remark, notes=(check_note(reasons.RETRY_DELAY_CLAMPED, rules.name, remark),)
    )


def strategy_delay(strategy: RetryStrategy, count: int, chance: float) -> int:
    """Returns the delay that a check's retry strategy gives, in whole seconds. ``chance``: the
    fraction of the strategy's jitter that is added, from 0 to 1."""
    delay = seconds(strategy.base_delay)
    if strategy.strategy == "backoff":
        delay *= _power(strategy.factor, count)
    if strategy.max_delay is not None:
        delay = min(delay, seconds(strategy.max_delay))
    delay = min(delay, Fraction(DELAY_MAX))
    return min(math.ceil(delay * (1 + Fraction(strategy.jitter) * Fraction(chance))), DELAY_MAX)


def _power(factor: float, count: int) -> Fraction:
    try:
        return Fraction(factor**count)
    except OverflowError:
        return Fraction(DELAY_MAX + 1)


def chance_of_retry(uid: str, check: str, count: int) -> float:
    """A deterministic number from 0 to 1 for the retry with the number ``count`` of that check."""
    digest = blake2b(f"{uid}/{check}/{count}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


IMMEDIATE: Final = 2
"""How many Retries without a delay in a row are immediate."""


def with_paced_retry(
    workload: StoredWorkload, check: str, cycle: int, want: RetryDelay, context: TransitionContext
) -> tuple[StoredWorkload, RetryDelay]:
    """Returns the workload with a Retry of the check counted, and the paced delay of that Retry. A
    repeated Retry in the same admission cycle counts once."""
    most = int(context.queues.limits.pacing_max.total_seconds())
    if want.delay is not None or not most:
        return without_retry_count(workload, check), want
    edition = _edition(workload, check, context)
    known = workload.status.immediate_retries.get(check)
    count = 1
    if known is not None and known.edition == edition:
        count = known.count if known.cycle == cycle else known.count + 1
    new = ImmediateRetries(count=count, cycle=cycle, edition=edition)
    counted = with_status(
        workload, immediate_retries={**workload.status.immediate_retries, check: new}
    )
    if count <= IMMEDIATE:
        return counted, want
    # The number of doublings is bounded, because more doublings of the delay would exceed every
    # limit.
    delay = min(1 << min(count - IMMEDIATE - 1, 20), most)
    delay = min(delay, int(context.queues.limits.check_delay.total_seconds()))
    remark = f"{count} Retries without a delay in a row: it waits {delay} s"
    joined = "; ".join(part for part in (want.remark, remark) if part)
    return counted, want._replace(delay=delay or None, remark=joined)


def without_retry_count(workload: StoredWorkload, check: str) -> StoredWorkload:
    """The workload with the count of immediate Retries of that check at 0."""
    counts = workload.status.immediate_retries
    if check not in counts:
        return workload
    left = {name: kept for name, kept in counts.items() if name != check}
    return with_status(workload, immediate_retries=left)


def _edition(workload: StoredWorkload, check: str, context: TransitionContext) -> str:
    meta = workload.metadata
    edition = context.queues.edition(meta.namespace, head(workload).queue_name, check)
    return f"{meta.generation}-{edition}"
