"""What a verdict of a check makes of a workload. LIFECYCLE 2.5, 2.6, 3.2.

A verdict names the cycle that it judged, and counts if that is the current one. Of earlier cycles
two kinds are taken late: a Rejected of the one that has just ended, and a Retry with a delay, both
only as long as the check has been asked nothing that this verdict would be no answer to. Whatever
does not count is answered with one of these words, which metrics count by: UnknownState, BadDelay,
BadUpdates (refused), NoSuchCheck, OtherController, Stale, NoReservation, Repeated, and the phase of
a workload that wants no verdicts any more.
"""

from __future__ import annotations

from datetime import datetime
from math import ceil
from typing import Final

import msgspec
from msgspec.structs import replace

from admittance.api.durations import BadDuration, seconds
from admittance.api.validate_status import UpdateOf, check_updates
from admittance.api.workload import CheckState
from admittance.events import facts
from admittance.events.shapes import CHECK_STATES, DELAY_MAX
from admittance.workload.change import Change, applied, ignored, refused, with_status
from admittance.workload.conditions import MESSAGE_MAX, Type, is_true
from admittance.workload.holding import (
    held,
    is_known,
    is_reserved_anew,
    reject,
    rejected,
    retry,
    stale,
    unlisted,
    waits_for_checks,
)
from admittance.workload.occasion import Occasion
from admittance.workload.pacing import forgotten
from admittance.workload.phase import Phase, phase
from admittance.workload.reasons import PREEMPTION_REQUIRED, reason_of
from admittance.workload.rows import all_ready, placed, row_of
from admittance.workload.stored import Say, StoredWorkload
from admittance.workload.updates import merged, pod_set_names
from admittance.workload.waits import check_deadline

UPDATES_TOO_LATE: Final = "PodSetUpdatesTooLate"
"""Reason of the note that a check's podSetUpdates are not applied: the workload is admitted."""


def weigh(workload: StoredWorkload, fact: facts.CheckReported, at: Occasion) -> Change:
    """A verdict on one row."""
    fact = _in_seconds(fact)
    wrong = _unfit(workload, fact)
    if wrong is not None:
        return wrong
    rules = at.around.check(fact.check)
    if rules is None:
        return ignored(workload, "NoSuchCheck", f"there is no AdmissionCheck {fact.check}")
    if fact.controller != rules.controller:
        return ignored(workload, "OtherController", f"{fact.check} is judged by {rules.controller}")
    if fact.cycle < 0:
        return stale(workload, fact)  # Before the first cycle there was none that could have ended.
    row = row_of(workload.status.admission_checks, fact.check)
    match fact.state:
        case "Rejected":
            return _rejected(workload, row, fact, at)
        case "Retry":
            return retry(workload, row, fact, rules, at)
    if row is None:
        return unlisted(workload, fact)
    if fact.cycle != workload.status.admission_cycle:
        return stale(workload, fact)
    return _stored(workload, row, fact, at)


def drop(workload: StoredWorkload, fact: facts.CheckReported, at: Occasion) -> Change:
    """A verdict on a workload that is turned off or finished."""
    return ignored(workload, str(phase(workload, at.now)), f"it wants no verdict of {fact.check}")


def _in_seconds(fact: facts.CheckReported) -> facts.CheckReported:
    """The verdict with a delay that is written as a duration as a number; a text that is no
    duration stays."""
    written = fact.requeue_after_seconds
    if not isinstance(written, str):
        return fact
    try:
        return replace(fact, requeue_after_seconds=ceil(seconds(written)))
    except BadDuration:
        return fact


def _unfit(workload: StoredWorkload, fact: facts.CheckReported) -> Change | None:
    """Why a verdict makes no sense whatever the workload does; None when it does."""
    if fact.state not in CHECK_STATES:
        return refused(
            workload, "UnknownState", f"{fact.state[:64]!r} is none of {', '.join(CHECK_STATES)}"
        )
    delay = fact.requeue_after_seconds
    if isinstance(delay, str):
        return refused(
            workload, "BadDelay", f"requeueAfterSeconds {delay[:40]!r} is no duration like 8m0s"
        )
    if delay is not None and not 0 <= delay <= DELAY_MAX:
        return refused(workload, "BadDelay", f"requeueAfterSeconds is {delay}, not 0 to 2^31 - 1")
    if fact.pod_set_updates and fact.state == "Ready":
        try:
            updates = msgspec.convert(
                msgspec.to_builtins(fact.pod_set_updates), tuple[UpdateOf, ...]
            )
        except msgspec.ValidationError as error:
            return refused(workload, "BadUpdates", f"podSetUpdates: {error}")
        problems = check_updates(updates, pod_set_names(workload), "podSetUpdates")
        if problems:
            first = problems[0]
            return refused(workload, "BadUpdates", f"{first.field}: {first.message}")
    return None


# Pending and Ready. ---------------------------------------------------------------------


def _stored(
    workload: StoredWorkload, row: CheckState, fact: facts.CheckReported, at: Occasion
) -> Change:
    frozen = waits_for_checks(workload)
    anew = is_reserved_anew(workload)
    ready = fact.state == "Ready"
    competes = phase(workload, at.now) is Phase.PENDING
    if not frozen and not anew and (ready or not competes):
        # A Ready that is given before the flavor is known proves nothing.
        return ignored(workload, "NoReservation", "it holds no quota that could be judged")
    admitted = anew and is_true(workload, Type.ADMITTED)
    if admitted and ready and row.state == "Ready":
        return ignored(workload, "Repeated", "what it says of pods comes too late")
    # Its pods were made when it was admitted: nothing can be added to them any more.
    late = admitted and bool(fact.pod_set_updates)
    moved = row.state != fact.state
    taken_back = row.state == "Retry" and not ready
    reason, remarks = reason_of(fact, row)
    new = CheckState(
        name=row.name,
        state=fact.state,
        message=fact.message[:MESSAGE_MAX],
        reason=reason,
        last_transition_time=at.now if moved else row.last_transition_time,
        retry_count=0 if ready else row.retry_count + taken_back,
        pod_set_updates=_plain(fact) if ready and anew and not late else (),
        verdict_cycle=fact.cycle,
    )
    if new == row:
        return ignored(workload, "Repeated")
    if ready:
        workload = forgotten(workload, row.name)
    rows = placed(workload.status.admission_checks, new)
    if frozen:
        change = held(workload, rows, at)
        return change._replace(says=(*remarks, *change.says))
    kept = with_status(workload, admission_checks=rows)
    says: tuple[Say, ...] = ()
    if ready and late:
        says = (_note(UPDATES_TOO_LATE, new, "what it adds to the pods comes after their start"),)
    elif admitted and moved and not ready:
        # Only False suspends: what runs goes on.
        says = (_note("AdmissionCheckUpdated", new, f"from {row.state} to Pending: {new.message}"),)
    elif (
        anew
        and new.reason == PREEMPTION_REQUIRED != row.reason
        and not workload.status.pending_preemption
    ):
        says = (_note(PREEMPTION_REQUIRED, new, "there is nobody whom the reservation displaces"),)
    if not admitted and anew:
        conflict = contradiction(kept, at)
        if conflict is not None:
            return conflict
    # Also the last Ready is only written down: the scheduler looks again before it admits.
    return applied(kept, *remarks, *says)


def _plain(fact: facts.CheckReported) -> tuple[dict[str, object], ...]:
    return tuple(msgspec.to_builtins(update) for update in fact.pod_set_updates)


def _note(reason: str, row: CheckState, text: str) -> Say:
    said = f'AdmissionCheck "{row.name}": {text}'
    return Say(what="noted", reason=reason, message=said[:MESSAGE_MAX], detail=row.name)


def contradiction(workload: StoredWorkload, at: Occasion) -> Change | None:
    """Once all checks of a reservation are Ready: what becomes of it if what they add to its pods
    cannot be (T11 of the last one by name); None: it can."""
    admission = workload.status.admission
    if admission is None:
        return None
    required = at.around.required_checks(admission.cluster_queue, admission)
    if not required or not all_ready(workload.status.admission_checks, required):
        return None
    _, conflicts = merged(workload, at.around.flavor)
    if not conflicts:
        return None
    check = max(one.check for one in conflicts)
    why = "; ".join(one.message for one in conflicts)[:MESSAGE_MAX]
    change = reject(workload, check, why, at)
    note = Say(what="noted", reason="ConflictingChecks", message=why, detail=check)
    return change._replace(says=(note, *change.says))


# Rejected. ------------------------------------------------------------------------------


def _rejected(
    workload: StoredWorkload, row: CheckState | None, fact: facts.CheckReported, at: Occasion
) -> Change:
    cycle = workload.status.admission_cycle
    if fact.cycle == cycle:
        if row is None:
            return unlisted(workload, fact)
        return rejected(workload, row, fact, at)
    if not is_known(workload, row, fact.check):
        return unlisted(workload, fact)
    if fact.cycle != cycle - 1 or is_reserved_anew(workload):
        return stale(workload, fact)
    return rejected(workload, row, fact, at)


def deadline(workload: StoredWorkload) -> datetime | None:
    """The latest end of a delay that a check asks for; None: no check asks for one."""
    return check_deadline(workload.status.admission_checks)
