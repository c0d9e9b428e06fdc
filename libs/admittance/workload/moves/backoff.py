"""The wait before a workload competes again: how long, who decides it, and its end. LIFECYCLE 3.

One time is published, ``status.requeueState.requeueAt``, and it has two causes: what the checks in
Retry ask for, and the backoff after pods that were not ready. The former may be shortened as long
as the wait lasts, but never below the latter.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from hashlib import blake2b
from typing import Final, NamedTuple

from admittance.api.checks import RetryStrategy
from admittance.api.units import seconds
from admittance.api.workload import CheckState, ImmediateRetries, RequeueState
from admittance.events.shapes import DELAY_MAX
from admittance.workload.change import Change, applied, ignored, with_status
from admittance.workload.check_rows import Rows, cleared
from admittance.workload.conditions import MESSAGE_MAX, Type, find, is_false, put
from admittance.workload.due import WAITS
from admittance.workload.limits import Limits
from admittance.workload.phase import holds_quota
from admittance.workload.reasons import required_now
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import CheckRules, TransitionContext

KEPT_REASONS: Final = frozenset(
    {"Suspended", "Misconfigured", "OnHold", "AdmissionGated", "Deactivated"}
)
"""Reasons of QuotaReserved=False that outlast the wait: they are not hidden behind it."""


def rounded_up(at: datetime) -> datetime:
    """The next whole second: a delay is a minimum, and whoever reads it reads seconds."""
    return at if not at.microsecond else at.replace(microsecond=0) + timedelta(seconds=1)


def end_of(row: CheckState) -> datetime | None:
    """When the delay that the row asks for is over; None where it asks for none."""
    if row.state != "Retry" or not row.requeue_after_seconds or row.last_transition_time is None:
        return None
    return rounded_up(row.last_transition_time + timedelta(seconds=row.requeue_after_seconds))


def check_deadline(rows: Rows) -> datetime | None:
    """The latest end time over all rows in Retry: not the largest number of seconds."""
    return max((end for row in rows if (end := end_of(row)) is not None), default=None)


def pods_ready_part(workload: StoredWorkload) -> datetime | None:
    """The part of the wait that is no check's. A time that no row explains is such a one."""
    state = workload.status.requeue_state
    if state is None or state.requeue_at is None:
        return None
    if state.pods_ready_until is not None:
        return state.pods_ready_until
    explained = check_deadline(workload.status.admission_checks)
    if explained is not None and state.requeue_at <= explained:
        return None
    return state.requeue_at


def recomputed(before: StoredWorkload, rows: Rows) -> RequeueState | None:
    """The requeue state of the workload once it has these rows; the count stays."""
    pods, checks = pods_ready_part(before), check_deadline(rows)
    state = before.status.requeue_state or RequeueState()
    until = max((end for end in (pods, checks) if end is not None), default=None)
    if until is None and state.count is None:
        return None
    kept = pods if checks is not None else None
    return RequeueState(count=state.count, requeue_at=until, pods_ready_until=kept)


def no_wait(state: RequeueState | None) -> RequeueState | None:
    """The requeue state without its time; the count stays."""
    if state is None or state.count is None:
        return None
    return RequeueState(count=state.count)


# What people read. ----------------------------------------------------------------------


def quoted(check: str, why: str) -> str:
    """A check with what its controller said."""
    return f'"{check}" ({why})' if why else f'"{check}"'


REJECTED: Final = "Deactivated due to AdmissionCheck in Rejected state: "
"""The message of a workload that a check has rejected; it goes on with the check."""


def rejection(workload: StoredWorkload) -> str:
    """Which check rejected the workload, and what it said."""
    for row in workload.status.admission_checks:
        if row.state == "Rejected":
            return quoted(row.name, row.message)
    evicted = find(workload, Type.EVICTED)
    said = evicted.message if evicted is not None else ""
    return said.removeprefix(REJECTED)


def wait_message(workload: StoredWorkload) -> str:
    """Which checks said Retry and why, until when that holds, and who decides it."""
    retrying = sorted(
        (row for row in workload.status.admission_checks if row.state == "Retry"),
        key=lambda row: row.name,
    )
    if not retrying:
        return _next_attempt(workload)
    s = "s" if len(retrying) > 1 else ""
    said = "; ".join(quoted(row.name, row.message) for row in retrying)
    until = _next_attempt(workload)
    why = f"AdmissionCheck{s} in Retry state: {said}"[: MESSAGE_MAX - len(until) - 32]
    return f"{why}. {until}" if until else why


def _next_attempt(workload: StoredWorkload) -> str:
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    if until is None:
        return ""
    deciding = sorted(row.name for row in workload.status.admission_checks if end_of(row) == until)
    who = f'"{deciding[0]}"' if deciding else "the backoff after PodsReadyTimeout"
    time = until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"Next attempt not before {time}, set by {who}"


def with_wait_message(workload: StoredWorkload, context: TransitionContext) -> StoredWorkload:
    """The workload whose conditions tell of its wait as it is now: T21, T21b."""
    message = wait_message(workload)
    if not message:
        return workload  # Its end comes in the same write.
    conditions = workload.status.conditions
    evicted = find(workload, Type.EVICTED)
    if evicted is not None and evicted.status == "True" and evicted.reason == "AdmissionCheck":
        text = f"Evicted due to {message}"
        conditions = put(conditions, Type.EVICTED, True, evicted.reason, text, now=context.now)
    if not holds_quota(workload):
        conditions = put(
            conditions, Type.REQUEUED, False, "AdmissionCheck", message, now=context.now
        )
        reserved = find(workload, Type.QUOTA_RESERVED)
        if reserved is None or reserved.reason not in KEPT_REASONS:
            conditions = put(
                conditions,
                Type.QUOTA_RESERVED,
                False,
                "PendingEvaluation",
                message,
                now=context.now,
            )
    return with_status(workload, conditions=conditions)


# Its end. -------------------------------------------------------------------------------


def wake(workload: StoredWorkload, context: TransitionContext) -> Change:
    """T20: the wait is over; all rows start over in a new cycle."""
    requeued = find(workload, Type.REQUEUED)
    if requeued is None or requeued.status != "False" or requeued.reason not in WAITS:
        return ignored(workload, "NotWaiting")
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    if until is not None and context.now < until:
        return ignored(workload, "TooEarly", f"not before {until.isoformat()}")
    status = workload.status
    required = required_now(workload, context)
    fresh = cleared(
        status.admission_checks, status.check_retry_counts, required, now=context.now, woken=True
    )
    conditions = put(status.conditions, Type.REQUEUED, True, "BackoffFinished", now=context.now)
    reserved = find(workload, Type.QUOTA_RESERVED)
    if reserved is None or reserved.reason not in KEPT_REASONS:
        conditions = put(
            conditions, Type.QUOTA_RESERVED, False, "PendingEvaluation", now=context.now
        )
    woken = with_status(
        workload,
        conditions=conditions,
        admission_checks=fresh.rows,
        admission_cycle=status.admission_cycle + 1,
        check_retry_counts=fresh.counts,
        requeue_state=no_wait(state),
    )
    return applied(woken, OutboxEntry(what="requeued", reason="BackoffFinished"))


def wake_if_over(change: Change, context: TransitionContext) -> Change:
    """A wait that is over already goes on to compete in the same write."""
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
    return woken._replace(says=(*change.says, *woken.says))


class RetryDelay(NamedTuple):
    """What a Retry comes to. ``delay``: whole seconds, None: at once. ``spent``: the check may not
    be retried again, so that this counts as Rejected. ``remark``: what people should know, as a
    clause for the message; ``notes`` say it to everybody."""

    delay: int | None = None
    spent: bool = False
    remark: str = ""
    notes: tuple[OutboxEntry, ...] = ()


def retry_delay(
    wanted: int | None, rules: CheckRules, *, count: int, uid: str, limits: Limits
) -> RetryDelay:
    """The delay of a Retry. ``wanted``: as its controller named it, 0 like None: at once, but None
    leaves it to the strategy. ``count``: how often the check was retried before."""
    strategy = rules.retry
    if not limits.requeue_after:
        if not wanted and strategy is None:
            return RetryDelay()
        what = f"the delay of {wanted} s" if wanted else "the retry strategy"
        remark = f"{what} counts nothing while the gate ACRequeueAfter is off"
        return RetryDelay(remark=remark, notes=(_note("RequeueAfterDisabled", rules.name, remark),))
    most = strategy.max_retries if strategy is not None else None
    if most is not None and count >= most:
        return RetryDelay(spent=True, remark=f"retried {count} times, {most} are allowed")
    delay = wanted
    if delay is None and strategy is not None:
        delay = computed(strategy, count, chance(uid, rules.name, count))
    if not delay:
        return RetryDelay()
    longest = int(limits.check_delay.total_seconds())
    if delay <= longest:
        return RetryDelay(delay)
    remark = f"the delay of {delay} s is cut to {longest} s"
    return RetryDelay(
        longest, remark=remark, notes=(_note("RetryDelayClamped", rules.name, remark),)
    )


def computed(strategy: RetryStrategy, count: int, chance: float) -> int:
    """Whole seconds by a strategy. ``chance``: from 0 up to 1, how much of the jitter to add."""
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


def chance(uid: str, check: str, count: int) -> float:
    """A number from 0 up to 1 that is the same for everybody who asks again."""
    digest = blake2b(f"{uid}/{check}/{count}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def _note(reason: str, check: str, remark: str) -> OutboxEntry:
    return OutboxEntry(
        what="noted", reason=reason, message=f'AdmissionCheck "{check}": {remark}', detail=check
    )


IMMEDIATE: Final = 2
"""So many Retries without a delay in a row are immediate."""


def paced(
    workload: StoredWorkload, check: str, cycle: int, want: RetryDelay, context: TransitionContext
) -> tuple[StoredWorkload, RetryDelay]:
    """The workload with this Retry counted, and what it comes to. The same Retry heard again in its
    cycle counts once."""
    most = int(context.queues.limits.pacing_max.total_seconds())
    if want.delay is not None or not most:
        return forgotten(workload, check), want
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
    # More doublings than these are beyond any limit.
    delay = min(1 << min(count - IMMEDIATE - 1, 20), most)
    delay = min(delay, int(context.queues.limits.check_delay.total_seconds()))
    remark = f"{count} Retries without a delay in a row: it waits {delay} s"
    joined = "; ".join(part for part in (want.remark, remark) if part)
    return counted, want._replace(delay=delay or None, remark=joined)


def forgotten(workload: StoredWorkload, check: str) -> StoredWorkload:
    """The workload with the count of that check at 0."""
    counts = workload.status.immediate_retries
    if check not in counts:
        return workload
    left = {name: one for name, one in counts.items() if name != check}
    return with_status(workload, immediate_retries=left)


def _edition(workload: StoredWorkload, check: str, context: TransitionContext) -> str:
    meta = workload.metadata
    edition = context.queues.edition(meta.namespace, head(workload).queue_name, check)
    return f"{meta.generation}-{edition}"
