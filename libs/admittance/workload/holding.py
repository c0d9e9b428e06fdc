"""What Retry and Rejected do to a workload: T10, T11, T21, T21b. LIFECYCLE 2.5, 2.6, 3.2."""

from __future__ import annotations

from msgspec.structs import replace

from admittance.api.workload import CheckState
from admittance.events import facts
from admittance.workload.activity import deactivate
from admittance.workload.change import Change, applied, ignored, with_status
from admittance.workload.conditions import MESSAGE_MAX, Type, find
from admittance.workload.leave import evict
from admittance.workload.occasion import Occasion
from admittance.workload.pacing import paced
from admittance.workload.phase import REJECTION, Phase, holds_quota, is_stopping, phase
from admittance.workload.reasons import reason_of
from admittance.workload.retries import Asked, asked
from admittance.workload.rows import Rows, placed, row_of
from admittance.workload.stored import Say, StoredWorkload
from admittance.workload.surroundings import CheckRules
from admittance.workload.waits import REJECTED, quoted, recomputed, spoken, told, wake_if_over


def unlisted(workload: StoredWorkload, fact: facts.CheckReported) -> Change:
    """The verdict is on a row that the workload does not have."""
    return ignored(workload, "NoSuchCheck", f"the workload has no check {fact.check}")


def stale(workload: StoredWorkload, fact: facts.CheckReported) -> Change:
    """The verdict is of a cycle that does not count any more, or not yet."""
    now = workload.status.admission_cycle
    return ignored(workload, "Stale", f"{fact.check} judged cycle {fact.cycle}, now it is {now}")


def is_reserved_anew(workload: StoredWorkload) -> bool:
    """It holds quota that it is not about to lose: checks are asked about it now."""
    return holds_quota(workload) and not is_stopping(workload)


def is_known(workload: StoredWorkload, row: CheckState | None, check: str) -> bool:
    """The check has a row, or had one and nothing was reserved since."""
    return row is not None or (
        check in workload.status.check_retry_counts and not is_reserved_anew(workload)
    )


def waits_for_checks(workload: StoredWorkload) -> bool:
    """Evicting or Backoff by AdmissionCheck: the rows are frozen, and verdicts are welcome."""
    if is_stopping(workload):
        evicted = find(workload, Type.EVICTED)
        return evicted is not None and evicted.reason == "AdmissionCheck"
    requeued = find(workload, Type.REQUEUED)
    return (
        not holds_quota(workload)
        and requeued is not None
        and (requeued.status, requeued.reason) == ("False", "AdmissionCheck")
    )


def retry(
    workload: StoredWorkload,
    row: CheckState | None,
    fact: facts.CheckReported,
    rules: CheckRules,
    at: Occasion,
) -> Change:
    """A verdict that says Retry, of the current cycle or of an earlier one."""
    before = workload
    count = _count(workload, row, fact.check)
    uid = workload.metadata.uid
    limits = at.around.limits
    want = asked(fact.delay_seconds, rules, count=count, uid=uid, limits=limits)
    if fact.cycle != workload.status.admission_cycle:
        holds = want.delay is not None or want.spent
        if not holds or not _is_late_and_welcome(workload, row, fact):
            return stale(workload, fact) if row is not None else unlisted(workload, fact)
    elif row is None:
        return unlisted(workload, fact)
    elif not waits_for_checks(workload) and not is_reserved_anew(workload) and not want.delay:
        # It was asked nothing, and holds nobody.
        if phase(workload, at.now) is not Phase.PENDING:
            return ignored(workload, "NoReservation", "it holds no quota that could be judged")
        reason, remarks = reason_of(fact, row)
        said = replace(row, message=fact.message[:MESSAGE_MAX], reason=reason)
        if said == row:
            return ignored(workload, "Repeated")
        rows = placed(workload.status.admission_checks, said)
        return applied(with_status(workload, admission_checks=rows), *remarks)
    if want.spent:
        return rejected(workload, row, fact, at, want.remark)
    workload, want = paced(workload, fact.check, fact.cycle, want, at)
    reason, remarks = reason_of(fact, row)
    new = _in_retry(row, fact.check, fact.message, fact.cycle, want, count, at)
    new = replace(new, reason=reason)
    if new == row:
        return ignored(before, "Repeated", "a Retry said again moves nothing")
    return retried(workload, (new,), (*remarks, *want.notes), at)


def _is_late_and_welcome(
    workload: StoredWorkload, row: CheckState | None, fact: facts.CheckReported
) -> bool:
    """A Retry of an earlier cycle still holds the workload: since then only the waits of other
    checks ended, or nothing at all was reserved; and the check has said nothing newer."""
    status = workload.status
    if fact.cycle > status.admission_cycle or not is_known(workload, row, fact.check):
        return False
    if row is not None and row.verdict_cycle is not None and row.verdict_cycle > fact.cycle:
        return False
    just_ended = fact.cycle == status.admission_cycle - 1 and not is_reserved_anew(workload)
    return just_ended or fact.cycle >= status.rounds_since


def _in_retry(
    row: CheckState | None,
    check: str,
    message: str,
    cycle: int,
    want: Asked,
    count: int,
    at: Occasion,
) -> CheckState:
    same = row is not None and row.state == "Retry" and row.requeue_after_seconds == want.delay
    return CheckState(
        name=check,
        state="Retry",
        message=_joined(message, want.remark),
        last_transition_time=row.last_transition_time if same and row is not None else at.now,
        requeue_after_seconds=want.delay,
        retry_count=count,
        verdict_cycle=cycle,
    )


def _joined(message: str, remark: str) -> str:
    return "; ".join(part for part in (message, remark) if part)[:MESSAGE_MAX]


def _count(workload: StoredWorkload, row: CheckState | None, check: str) -> int:
    return row.retry_count if row is not None else workload.status.check_retry_counts.get(check, 0)


def overdue(workload: StoredWorkload, late: tuple[str, ...], at: Occasion) -> Change:
    """Checks that took too long to judge: as if each had said Retry without a delay."""
    new: list[CheckState] = []
    notes: list[Say] = []
    for name in late:
        row, rules = row_of(workload.status.admission_checks, name), at.around.check(name)
        if row is None or rules is None:
            continue
        message = f"no verdict within {rules.timeout_seconds} s"
        want = asked(
            None, rules, count=row.retry_count, uid=workload.metadata.uid, limits=at.around.limits
        )
        if want.spent:
            return reject(workload, name, _joined(message, want.remark), at)
        notes += want.notes
        cycle = workload.status.admission_cycle
        workload, want = paced(workload, name, cycle, want, at)
        new.append(_in_retry(row, name, message, cycle, want, row.retry_count, at))
    return retried(workload, tuple(new), tuple(notes), at)


def retried(
    workload: StoredWorkload, new: tuple[CheckState, ...], notes: tuple[Say, ...], at: Occasion
) -> Change:
    """T10, T21 and T21b: rows in Retry take the reservation, or make the wait what they ask for."""
    rows = workload.status.admission_checks
    for row in new:
        rows = placed(rows, row)
    listed = {row.name for row in new}
    counts = {n: c for n, c in workload.status.check_retry_counts.items() if n not in listed}
    change = held(with_status(workload, check_retry_counts=counts), rows, at)
    return change._replace(says=(*notes, *change.says))


def held(workload: StoredWorkload, rows: Rows, at: Occasion) -> Change:
    """With these rows, some of them in Retry, as long as they ask for it."""
    new = with_status(workload, admission_checks=rows, requeue_state=recomputed(workload, rows))
    message = spoken(new)
    if is_reserved_anew(new):
        text = f"Evicted due to {message}"
        return wake_if_over(evict(new, "AdmissionCheck", text, at, keep_rows=True), at)
    new = told(new, at)
    if is_stopping(new):
        return applied(new)
    said = (Say(what="pending", reason="AdmissionCheck", message=message),) if message else ()
    return wake_if_over(applied(new, *said), at)


def rejected(
    workload: StoredWorkload,
    row: CheckState | None,
    fact: facts.CheckReported,
    at: Occasion,
    remark: str = "",
) -> Change:
    """T11 by a verdict. ``remark``: why it counts as Rejected if it says something else."""
    reason, remarks = reason_of(fact, row)
    why = _joined(fact.message, remark)
    change = reject(workload, fact.check, why, at, reason=reason)
    return change._replace(says=(*remarks, *change.says))


def reject(
    workload: StoredWorkload, check: str, why: str, at: Occasion, *, reason: str = ""
) -> Change:
    """T11, from any phase: it is never lost to an eviction under way. The row of the check says so
    until the workload is turned on again, also where no flavor asks for that check any more."""
    message = f"{REJECTED}{quoted(check, why)}"[:MESSAGE_MAX]
    change = deactivate(workload, REJECTION, message, at, cause="AdmissionCheck")
    assert change.workload is not None, "nothing was deleted"
    row = CheckState(
        name=check,
        state="Rejected",
        message=why[:MESSAGE_MAX],
        reason=reason,
        last_transition_time=at.now,
        verdict_cycle=workload.status.admission_cycle,
    )
    rows = placed(change.workload.status.admission_checks, row)
    told = Say(what="rejected", reason="AdmissionCheckRejected", message=message, detail=check)
    return change._replace(
        workload=with_status(change.workload, admission_checks=rows),
        says=(told, *change.says),
    )
