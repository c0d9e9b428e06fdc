"""Rejects workloads because of their checks. docs/spec/lifecycle.md#2.5."""

from __future__ import annotations

from admittance.api.workload import CheckState
from admittance.events import facts, reasons
from admittance.workload.change import (
    Change,
    with_status,
)
from admittance.workload.checks.pod_set_updates import merged_additions
from admittance.workload.checks.remarks import (
    verdict_reason,
    with_remarks,
)
from admittance.workload.checks.rows import all_ready, with_row
from admittance.workload.conditions import MESSAGE_MAX
from admittance.workload.moves.backoff import (
    REJECTED,
    check_with_message,
)
from admittance.workload.moves.requests import deactivate
from admittance.workload.stored import OutboxEntry, StoredWorkload
from admittance.workload.transition_context import TransitionContext


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
