"""Delays workloads by the Retry of a check, also of one that sent no verdict in time.
docs/spec/lifecycle.md#2.5, #3.2.
"""

from __future__ import annotations

from msgspec.structs import replace

from admittance.api.workload import CheckState
from admittance.events import facts, reasons
from admittance.workload.change import (
    Change,
    applied,
    ignored,
    with_status,
)
from admittance.workload.checks.remarks import (
    verdict_reason,
    with_remarks,
)
from admittance.workload.checks.rows import Rows, row_of, with_row
from admittance.workload.conditions import MESSAGE_MAX
from admittance.workload.moves.backoff import (
    RetryDelay,
    requeue_state_of,
    retry_delay,
    wait_message,
    wake_if_over,
    with_paced_retry,
    with_wait_message,
)
from admittance.workload.moves.check_rejections import reject, rejected
from admittance.workload.moves.counted_verdicts import (
    ignore_stale_verdict,
    ignore_unlisted_check,
    is_known,
    is_under_check,
    waits_for_checks,
)
from admittance.workload.moves.eviction import evict
from admittance.workload.phase import Phase, is_stopping, phase
from admittance.workload.stored import OutboxEntry, StoredWorkload
from admittance.workload.transition_context import CheckRules, TransitionContext


def retry(
    workload: StoredWorkload,
    row: CheckState | None,
    fact: facts.CheckReported,
    rules: CheckRules,
    context: TransitionContext,
) -> Change:
    """Returns the change for a Retry about the current cycle or an earlier one."""
    before = workload
    count = _count(workload, row, fact.check)
    uid = workload.metadata.uid
    limits = context.queues.limits
    want = retry_delay(fact.delay_seconds, rules, count=count, uid=uid, limits=limits)
    if fact.cycle != workload.status.admission_cycle:
        holds = want.delay is not None or want.spent
        if not holds or not _is_late_but_counts(workload, row, fact):
            return (
                ignore_stale_verdict(workload, fact)
                if row is not None
                else ignore_unlisted_check(workload, fact)
            )
    elif row is None:
        return ignore_unlisted_check(workload, fact)
    elif not waits_for_checks(workload) and not is_under_check(workload) and not want.delay:
        # The workload's checks are not requested now, so a Retry without a delay does not delay the
        # workload.
        if phase(workload, context.now) is not Phase.PENDING:
            return ignored(workload, reasons.NO_RESERVATION, "it holds no quota to be judged")
        reason, remarks = verdict_reason(fact, row)
        said = replace(row, message=fact.message[:MESSAGE_MAX], reason=reason)
        if said == row:
            return ignored(workload, reasons.REPEATED)
        rows = with_row(workload.status.admission_checks, said)
        return applied(with_status(workload, admission_checks=rows), *remarks)
    if want.spent:
        return rejected(workload, row, fact, context, want.remark)
    workload, want = with_paced_retry(workload, fact.check, fact.cycle, want, context)
    reason, remarks = verdict_reason(fact, row)
    new = _in_retry(row, fact.check, fact.message, fact.cycle, want, count, context)
    new = replace(new, reason=reason)
    if new == row:
        return ignored(before, reasons.REPEATED, "the same Retry again changes nothing")
    return retried(workload, (new,), (*remarks, *want.notes), context)


def _is_late_but_counts(
    workload: StoredWorkload, row: CheckState | None, fact: facts.CheckReported
) -> bool:
    """Whether a Retry of an earlier cycle still delays the workload: after that cycle only waits
    for other checks ended, or no quota was reserved, and the check sent no newer verdict."""
    status = workload.status
    if fact.cycle > status.admission_cycle or not is_known(workload, row, fact.check):
        return False
    if row is not None and row.verdict_cycle is not None and row.verdict_cycle > fact.cycle:
        return False
    just_ended = fact.cycle == status.admission_cycle - 1 and not is_under_check(workload)
    return just_ended or fact.cycle >= status.rounds_since


def _in_retry(
    row: CheckState | None,
    check: str,
    message: str,
    cycle: int,
    want: RetryDelay,
    count: int,
    context: TransitionContext,
) -> CheckState:
    same = row is not None and row.state == "Retry" and row.requeue_after_seconds == want.delay
    return CheckState(
        name=check,
        state="Retry",
        message=with_remarks(message, want.remark),
        last_transition_time=row.last_transition_time if same and row is not None else context.now,
        requeue_after_seconds=want.delay,
        retry_count=count,
        verdict_cycle=cycle,
    )


def _count(workload: StoredWorkload, row: CheckState | None, check: str) -> int:
    return row.retry_count if row is not None else workload.status.check_retry_counts.get(check, 0)


def apply_overdue_checks(
    workload: StoredWorkload, late: tuple[str, ...], context: TransitionContext
) -> Change:
    """Returns the change for checks that sent no verdict in time. Each late check counts as if it
    had sent a Retry without a delay."""
    new: list[CheckState] = []
    notes: list[OutboxEntry] = []
    for name in late:
        row, rules = row_of(workload.status.admission_checks, name), context.queues.check(name)
        if row is None or rules is None:
            continue
        message = f"no verdict within {rules.timeout_seconds} s"
        want = retry_delay(
            None,
            rules,
            count=row.retry_count,
            uid=workload.metadata.uid,
            limits=context.queues.limits,
        )
        if want.spent:
            return reject(workload, name, with_remarks(message, want.remark), context)
        notes += want.notes
        cycle = workload.status.admission_cycle
        workload, want = with_paced_retry(workload, name, cycle, want, context)
        new.append(_in_retry(row, name, message, cycle, want, row.retry_count, context))
    return retried(workload, tuple(new), tuple(notes), context)


def retried(
    workload: StoredWorkload,
    new: tuple[CheckState, ...],
    notes: tuple[OutboxEntry, ...],
    context: TransitionContext,
) -> Change:
    """T10, T21 and T21b: check rows in Retry end the reservation, or change the workload's wait."""
    rows = workload.status.admission_checks
    for row in new:
        rows = with_row(rows, row)
    listed = {row.name for row in new}
    counts = {n: c for n, c in workload.status.check_retry_counts.items() if n not in listed}
    counted = with_status(workload, check_retry_counts=counts)
    return with_wait(counted, rows, context).after(*notes)


def with_wait(workload: StoredWorkload, rows: Rows, context: TransitionContext) -> Change:
    """Returns the workload with the check rows ``rows``, some of which are in Retry, so that the
    workload waits for their delays."""
    new = with_status(
        workload, admission_checks=rows, requeue_state=requeue_state_of(workload, rows)
    )
    message = wait_message(new)
    if is_under_check(new):
        text = f"Evicted due to {message}"
        return wake_if_over(
            evict(new, reasons.ADMISSION_CHECK, text, context, keep_rows=True), context
        )
    new = with_wait_message(new, context)
    if is_stopping(new):
        return applied(new)
    pending = OutboxEntry(what="pending", reason=reasons.ADMISSION_CHECK, message=message)
    return wake_if_over(applied(new, *([pending] if message else [])), context)
