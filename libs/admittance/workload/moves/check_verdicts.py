"""Applies the verdicts of checks. docs/spec/lifecycle.md#2.5, #2.6, #3.2.

A verdict names the admission cycle of the workload that the verdict is about, and counts if that
cycle is the current one. Two verdicts on an earlier cycle count too, if the check was not requested
again after that cycle: a Rejected of the cycle that has just ended, and a Retry with a delay. A
verdict without effect gets one of these reasons, which metrics use as labels: for a refused verdict
UnknownState, BadDelay, BadPlacement or BadUpdates; otherwise NoSuchCheck, OtherController, Stale,
NoReservation, Repeated, or the phase of a workload that accepts no verdicts.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from admittance.api.checks import MACHINES_CONTROLLER
from admittance.api.validation.workload import TypedPodSetUpdate, check_updates
from admittance.api.workload import CheckState
from admittance.events import facts, reasons
from admittance.events.placement import placement_error
from admittance.events.shapes import CHECK_STATES, DELAY_MAX
from admittance.workload.change import (
    Change,
    FactOutcome,
    applied,
    check_note,
    ignored,
    refused,
    with_status,
)
from admittance.workload.check_rows import Rows, all_ready, row_of, with_row
from admittance.workload.conditions import MESSAGE_MAX, Type, find, find_false, is_true
from admittance.workload.moves.backoff import (
    REJECTED,
    RetryDelay,
    check_with_message,
    requeue_state_of,
    retry_delay,
    wait_message,
    wake_if_over,
    with_paced_retry,
    with_wait_message,
    without_retry_count,
)
from admittance.workload.moves.eviction import evict
from admittance.workload.moves.requests import deactivate
from admittance.workload.phase import Phase, holds_quota, is_stopping, phase
from admittance.workload.pod_set_updates import merged_additions, pod_set_names
from admittance.workload.stored import OutboxEntry, StoredWorkload
from admittance.workload.transition_context import CheckRules, TransitionContext
from admittance.workload.verdict_remarks import (
    ASSIGNED_TOO_LATE,
    TOO_LATE,
    remark_notes,
    verdict_reason,
    verdict_remarks,
    with_remarks,
    with_whole_seconds,
)


def apply_verdict(
    workload: StoredWorkload, fact: facts.CheckReported, context: TransitionContext
) -> Change:
    """Returns the change that a verdict of one check makes to the workload. Parts of the verdict
    without effect are noted if the verdict itself has an effect."""
    remarks = verdict_remarks(fact, context.logged_at)
    fact = with_whole_seconds(fact)
    if not remarks:
        return _apply(workload, fact, context)
    message = with_remarks(fact.message, *(remark.text for remark in remarks))
    change = _apply(workload, replace(fact, message=message), context)
    if change.outcome is not FactOutcome.APPLIED:
        return change
    row = row_of(workload.status.admission_checks, fact.check)
    return change.after(*remark_notes(fact.check, remarks, row))


def _apply(
    workload: StoredWorkload, fact: facts.CheckReported, context: TransitionContext
) -> Change:
    wrong = _unfit(workload, fact)
    if wrong is not None:
        return wrong
    rules = context.queues.check(fact.check)
    if rules is None:
        return ignored(workload, reasons.NO_SUCH_CHECK, f"there is no AdmissionCheck {fact.check}")
    if fact.controller != rules.controller:
        return ignored(
            workload, reasons.OTHER_CONTROLLER, f"{fact.check} is judged by {rules.controller}"
        )
    if fact.cycle < 0:
        # Cycles are counted from 0, so a verdict on a negative cycle belongs to no cycle.
        return ignore_stale_verdict(workload, fact)
    row = row_of(workload.status.admission_checks, fact.check)
    match fact.state:
        case "Rejected":
            return _rejected(workload, row, fact, context)
        case "Retry":
            return retry(workload, row, fact, rules, context)
    if row is None:
        return ignore_unlisted_check(workload, fact)
    if fact.cycle != workload.status.admission_cycle:
        return ignore_stale_verdict(workload, fact)
    return _stored(workload, row, fact, context)


def ignore_verdict(
    workload: StoredWorkload, fact: facts.CheckReported, context: TransitionContext
) -> Change:
    """Returns the change for a verdict on an inactive or finished workload."""
    return ignored(
        workload, str(phase(workload, context.now)), f"it accepts no verdict of {fact.check}"
    )


def _unfit(workload: StoredWorkload, fact: facts.CheckReported) -> Change | None:
    """Why a verdict is invalid for any workload; None: the verdict is valid."""
    if fact.state not in CHECK_STATES:
        message = f"{fact.state[:64]!r} is not one of {', '.join(CHECK_STATES)}"
        return refused(workload, reasons.UNKNOWN_STATE, message)
    delay = fact.requeue_after_seconds
    if isinstance(delay, str):
        message = f"requeueAfterSeconds {delay[:40]!r} is not a duration like 8m0s"
        return refused(workload, reasons.BAD_DELAY, message)
    if delay is not None and not 0 <= delay <= DELAY_MAX:
        return refused(
            workload, reasons.BAD_DELAY, f"requeueAfterSeconds is {delay:.12g}, not 0 to 2^31 - 1"
        )
    if fact.placement and fact.controller != MACHINES_CONTROLLER:
        message = f"placement: only the controller {MACHINES_CONTROLLER} assigns runners"
        return refused(workload, reasons.BAD_PLACEMENT, message)
    if fact.pod_set_updates and fact.state == "Ready":
        try:
            updates = msgspec.convert(
                msgspec.to_builtins(fact.pod_set_updates), tuple[TypedPodSetUpdate, ...]
            )
        except msgspec.ValidationError as error:
            return refused(workload, reasons.BAD_UPDATES, f"podSetUpdates: {error}")
        problems = check_updates(updates, pod_set_names(workload), "podSetUpdates")
        if problems:
            first = problems[0]
            return refused(workload, reasons.BAD_UPDATES, f"{first.field}: {first.message}")
    return None


# Pending and Ready. ---------------------------------------------------------------------


def _stored(
    workload: StoredWorkload, row: CheckState, fact: facts.CheckReported, context: TransitionContext
) -> Change:
    frozen = waits_for_checks(workload)
    reserved = is_under_check(workload)
    ready = fact.state == "Ready"
    competes = phase(workload, context.now) is Phase.PENDING
    if not frozen and not reserved and (ready or not competes):
        # A Ready verdict before a flavor is assigned does not count.
        return ignored(workload, reasons.NO_RESERVATION, "it holds no quota to be judged")
    admitted = reserved and is_true(workload, Type.ADMITTED)
    assigns = ready and reserved and not admitted and fact.controller == MACHINES_CONTROLLER
    if assigns and (wrong := _placement_error(workload, fact)):
        return refused(workload, reasons.BAD_PLACEMENT, f"placement: {wrong}")
    taken = context.overlap(workload, fact.placement) if assigns else ""
    if taken:
        # The check decided from an older state. Its row says so, and it chooses again.
        fact = replace(fact, state="Pending", message=taken, placement=(), pod_set_updates=())
        ready = assigns = False
    if admitted and ready and row.state == "Ready":
        return _with_late_updates(workload, row, fact)
    # The pods of an admitted workload exist already, so additions to the pods come too late.
    late = admitted and bool(fact.pod_set_updates)
    moves = admitted and ready and fact.placement not in ((), workload.status.placement)
    moved = row.state != fact.state
    taken_back = row.state == "Retry" and not ready
    reason, remarks = verdict_reason(fact, row)
    if taken:
        reason = reasons.MACHINE_TAKEN
        remarks = (check_note(reason, row.name, taken),)
    new = CheckState(
        name=row.name,
        state=fact.state,
        message=with_remarks(
            fact.message, TOO_LATE if late and ready else "", ASSIGNED_TOO_LATE if moves else ""
        ),
        reason=reason,
        last_transition_time=context.now if moved else row.last_transition_time,
        retry_count=0 if ready else row.retry_count + taken_back,
        pod_set_updates=_plain(fact) if ready and reserved and not late else (),
        verdict_cycle=fact.cycle,
        placement=tuple(msgspec.to_builtins(part) for part in fact.placement) if assigns else (),
    )
    if new == row:
        return ignored(workload, reasons.REPEATED)
    if ready:
        workload = without_retry_count(workload, row.name)
    rows = with_row(workload.status.admission_checks, new)
    if frozen:
        return with_wait(workload, rows, context).after(*remarks)
    kept = with_status(workload, admission_checks=rows)
    outbox: tuple[OutboxEntry, ...] = ()
    if ready and late:
        outbox = (check_note(reasons.POD_SET_UPDATES_TOO_LATE, row.name, TOO_LATE),)
    elif moves:
        outbox = (check_note(reasons.VERDICT_PART_IGNORED, row.name, ASSIGNED_TOO_LATE),)
    elif admitted and moved and not ready:
        # The verdict Pending does not stop a running job.
        text = f"from {row.state} to Pending: {new.message}"
        outbox = (check_note(reasons.ADMISSION_CHECK_UPDATED, row.name, text),)
    elif (
        reserved
        and new.reason == reasons.PREEMPTION_REQUIRED != row.reason
        and not workload.status.pending_preemption
    ):
        text = "the reservation preempts no workload"
        outbox = (check_note(reasons.PREEMPTION_REQUIRED, row.name, text),)
    if not admitted and reserved:
        conflict = contradiction(kept, context)
        if conflict is not None:
            return conflict
    # The last Ready verdict is stored without admitting the workload, because the scheduler must
    # confirm the reservation first.
    return applied(kept, *remarks, *outbox)


def _placement_error(workload: StoredWorkload, fact: facts.CheckReported) -> str:
    """Why the verdict does not assign every pod with quota to a runner; "": it does."""
    admission = workload.status.admission
    assert admission is not None, "it holds quota"
    return placement_error(
        fact.placement, {place.name: place.count for place in admission.pod_set_assignments}
    )


def _with_late_updates(
    workload: StoredWorkload, row: CheckState, fact: facts.CheckReported
) -> Change:
    """A Ready for a check of an admitted workload that is Ready already changes nothing; other
    additions to the pods than before are noted."""
    new = replace(row, message=with_remarks(row.message, TOO_LATE))
    if not fact.pod_set_updates or _plain(fact) == row.pod_set_updates or TOO_LATE in row.message:
        return ignored(workload, reasons.REPEATED, "the check is Ready already")
    rows = with_row(workload.status.admission_checks, new)
    return applied(
        with_status(workload, admission_checks=rows),
        check_note(reasons.POD_SET_UPDATES_TOO_LATE, row.name, TOO_LATE),
    )


def _plain(fact: facts.CheckReported) -> tuple[dict[str, object], ...]:
    return tuple(msgspec.to_builtins(update) for update in fact.pod_set_updates)


def contradiction(workload: StoredWorkload, context: TransitionContext) -> Change | None:
    """Returns the rejection (T11) by the last check in the order of names, if all checks of the
    reservation are Ready and their additions to the pods conflict; None: there is no conflict."""
    admission = workload.status.admission
    if admission is None:
        return None
    required = context.queues.required_checks(admission.cluster_queue, admission)
    if not required or not all_ready(workload.status.admission_checks, required):
        return None
    _, conflicts = merged_additions(workload, context.queues.flavor)
    if not conflicts:
        return None
    check = max(conflict.check for conflict in conflicts)
    why = "; ".join(conflict.message for conflict in conflicts)[:MESSAGE_MAX]
    note = OutboxEntry(what="noted", reason=reasons.CONFLICTING_CHECKS, message=why, detail=check)
    return reject(workload, check, why, context).after(note)


# Rejected. ------------------------------------------------------------------------------


def _rejected(
    workload: StoredWorkload,
    row: CheckState | None,
    fact: facts.CheckReported,
    context: TransitionContext,
) -> Change:
    cycle = workload.status.admission_cycle
    if fact.cycle == cycle:
        if row is None:
            return ignore_unlisted_check(workload, fact)
        return rejected(workload, row, fact, context)
    if not is_known(workload, row, fact.check):
        return ignore_unlisted_check(workload, fact)
    if fact.cycle != cycle - 1 or is_under_check(workload):
        return ignore_stale_verdict(workload, fact)
    return rejected(workload, row, fact, context)


def ignore_unlisted_check(workload: StoredWorkload, fact: facts.CheckReported) -> Change:
    """Returns the change for a verdict of a check that the workload does not have."""
    return ignored(workload, reasons.NO_SUCH_CHECK, f"the workload has no check {fact.check}")


def ignore_stale_verdict(workload: StoredWorkload, fact: facts.CheckReported) -> Change:
    """Returns the change for a verdict on a cycle that does not count any more, or does not count
    yet."""
    now = workload.status.admission_cycle
    return ignored(
        workload, reasons.STALE, f"{fact.check} judged cycle {fact.cycle}, now it is {now}"
    )


def is_under_check(workload: StoredWorkload) -> bool:
    """Whether the workload holds quota and is not being evicted, so that its checks are
    requested."""
    return holds_quota(workload) and not is_stopping(workload)


def is_known(workload: StoredWorkload, row: CheckState | None, check: str) -> bool:
    """Whether the check has a row, or had a row and the workload has reserved no quota after losing
    that row."""
    return row is not None or (
        check in workload.status.check_retry_counts and not is_under_check(workload)
    )


def waits_for_checks(workload: StoredWorkload) -> bool:
    """Whether the workload is Evicting or in Backoff because of a check, so that its rows are
    frozen and still accept verdicts."""
    if is_stopping(workload):
        evicted = find(workload, Type.EVICTED)
        return evicted is not None and evicted.reason == reasons.ADMISSION_CHECK
    waits = None if holds_quota(workload) else find_false(workload, Type.REQUEUED)
    return waits is not None and waits.reason == reasons.ADMISSION_CHECK


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


def rejected(
    workload: StoredWorkload,
    row: CheckState | None,
    fact: facts.CheckReported,
    context: TransitionContext,
    remark: str = "",
) -> Change:
    """T11: rejects the workload because of a verdict. ``remark``: why a verdict other than Rejected
    counts as Rejected."""
    reason, remarks = verdict_reason(fact, row)
    why = with_remarks(fact.message, remark)
    return reject(workload, fact.check, why, context, reason=reason).after(*remarks)


def reject(
    workload: StoredWorkload, check: str, why: str, context: TransitionContext, *, reason: str = ""
) -> Change:
    """T11: rejects the workload because of a check, in any phase, also during an eviction. The row
    of the check stays Rejected until the workload is activated again, even if no assigned flavor
    requires the check."""
    message = f"{REJECTED}{check_with_message(check, why)}"[:MESSAGE_MAX]
    change = deactivate(
        workload,
        reasons.DEACTIVATED_DUE_TO_ADMISSION_CHECK,
        message,
        context,
        cause=reasons.ADMISSION_CHECK,
    )
    assert change.workload is not None, "nothing was deleted"
    row = CheckState(
        name=check,
        state="Rejected",
        message=why[:MESSAGE_MAX],
        reason=reason,
        last_transition_time=context.now,
        verdict_cycle=workload.status.admission_cycle,
    )
    rows = with_row(change.workload.status.admission_checks, row)
    note = OutboxEntry(
        what="rejected", reason=reasons.ADMISSION_CHECK_REJECTED, message=message, detail=check
    )
    workload = with_status(change.workload, admission_checks=rows)
    return change._replace(workload=workload).after(note)
