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
from admittance.api.workload import CheckState
from admittance.events import facts, reasons
from admittance.events.placement import placement_error
from admittance.workload.change import (
    Change,
    FactOutcome,
    applied,
    check_note,
    ignored,
    refused,
    with_status,
)
from admittance.workload.checks.remarks import (
    ASSIGNED_TOO_LATE,
    TOO_LATE,
    remark_notes,
    verdict_reason,
    verdict_remarks,
    with_remarks,
    with_whole_seconds,
)
from admittance.workload.checks.rows import row_of, with_row
from admittance.workload.conditions import Type, is_true
from admittance.workload.moves.backoff import without_retry_count
from admittance.workload.moves.check_rejections import contradiction, rejected
from admittance.workload.moves.check_retries import retry, with_wait
from admittance.workload.moves.counted_verdicts import (
    ignore_stale_verdict,
    ignore_unlisted_check,
    is_known,
    is_under_check,
    unfit,
    waits_for_checks,
)
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import OutboxEntry, StoredWorkload
from admittance.workload.transition_context import TransitionContext


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
    wrong = unfit(workload, fact)
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
