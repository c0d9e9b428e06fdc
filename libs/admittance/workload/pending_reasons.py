"""The reasons why a workload cannot be considered by the scheduler, and those of check verdicts.
docs/spec/lifecycle.md#T02, #T30.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from admittance.api.workload import GATED_BY, CheckState
from admittance.events import facts
from admittance.workload.conditions import Type, find
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import RequiredCheck, TransitionContext


class PendingReason(NamedTuple):
    """A reason of QuotaReserved=False and its message."""

    reason: str
    message: str


def gated_by(workload: StoredWorkload) -> str:
    """The admission gates in its annotation; "": none."""
    return workload.metadata.annotations.get(GATED_BY, "").strip()


def is_held(workload: StoredWorkload) -> bool:
    """Whether a user has put it on hold."""
    reserved = find(workload, Type.QUOTA_RESERVED)
    return reserved is not None and reserved.status == "False" and reserved.reason == "OnHold"


def pending_reason(workload: StoredWorkload, context: TransitionContext) -> PendingReason | None:
    """Why the scheduler does not consider an active workload; None: it competes."""
    gates = gated_by(workload)
    if gates:
        return PendingReason("AdmissionGated", f"The admission is gated by: {gates}")
    spec = head(workload)
    inactive = context.queues.inactive_reason(workload.metadata.namespace, spec.queue_name)
    if inactive is not None:
        return PendingReason(inactive.reason, inactive.message)
    return None


def required_now(workload: StoredWorkload, context: TransitionContext) -> tuple[RequiredCheck, ...]:
    """The required checks of a workload without an assigned flavor. While its queue is missing, its
    existing checks stay."""
    queue = context.queues.cluster_queue(workload.metadata.namespace, head(workload).queue_name)
    if queue:
        return context.queues.required_checks(queue, None)
    return tuple(RequiredCheck(row.name, "") for row in workload.status.admission_checks)


PREEMPTION_REQUIRED: Final = "PreemptionRequired"
"""Reason of a Pending verdict: the check can be Ready only after the planned preemptions."""
_SPELLINGS: Final[Mapping[str, str]] = {
    "BookQuotaRequired": PREEMPTION_REQUIRED,
    "BookCapacity": PREEMPTION_REQUIRED,
}
"""Other spellings in KEP-993."""
_OF_STATE: Final[Mapping[str, frozenset[str]]] = {
    "Pending": frozenset({"Pending"}),
    "Ready": frozenset({"Ready"}),
    "Retry": frozenset({"Retry"}),
    "Rejected": frozenset({"Reject", "Rejected"}),
}
"""Reasons that only repeat the state."""
REASON_MAX: Final = 1024


def verdict_reason(
    fact: facts.CheckReported, row: CheckState | None
) -> tuple[str, tuple[OutboxEntry, ...]]:
    """The reason that the row keeps, and notes for users. An unknown reason is kept, with one
    note."""
    reason = _SPELLINGS.get(fact.reason, fact.reason)[:REASON_MAX]
    if reason in ("", *_OF_STATE.get(fact.state, ())):
        return "", ()
    if reason == PREEMPTION_REQUIRED:
        if fact.state == "Pending":
            return reason, ()
        return "", (
            _note(fact, f"reason {reason} has an effect only with Pending, not with {fact.state}"),
        )
    if row is not None and row.reason == reason:
        return reason, ()
    return reason, (_note(fact, f"reason {reason[:64]!r} is unknown: it is kept, without effect"),)


def _note(fact: facts.CheckReported, text: str) -> OutboxEntry:
    said = f'AdmissionCheck "{fact.check}": {text}'
    return OutboxEntry(what="noted", reason="UnknownReason", message=said, detail=fact.check)
