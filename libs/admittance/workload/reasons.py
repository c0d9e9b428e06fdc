"""Why a workload without a reservation is not even considered: reasons of QuotaReserved=False that
the queues, the workload itself or its user give. LIFECYCLE T02, T30.
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
    """The gates that keep it out of its queue, as its annotation names them; "" without any."""
    return workload.metadata.annotations.get(GATED_BY, "").strip()


def is_held(workload: StoredWorkload) -> bool:
    """A user keeps it out of its queue."""
    reserved = find(workload, Type.QUOTA_RESERVED)
    return reserved is not None and reserved.status == "False" and reserved.reason == "OnHold"


def pending_reason(workload: StoredWorkload, context: TransitionContext) -> PendingReason | None:
    """What keeps an active workload out of the running; None: it competes as soon as it may."""
    gates = gated_by(workload)
    if gates:
        return PendingReason("AdmissionGated", f"The admission is gated by: {gates}")
    spec = head(workload)
    inactive = context.queues.inactive_reason(workload.metadata.namespace, spec.queue_name)
    if inactive is not None:
        return PendingReason(inactive.reason, inactive.message)
    return None


def required_now(workload: StoredWorkload, context: TransitionContext) -> tuple[RequiredCheck, ...]:
    """The checks of the workload as long as no flavor is assigned to it. While its queue is missing
    nobody knows, and those that it has stay."""
    queue = context.queues.cluster_queue(workload.metadata.namespace, head(workload).queue_name)
    if queue:
        return context.queues.required_checks(queue, None)
    return tuple(RequiredCheck(row.name, "") for row in workload.status.admission_checks)


PREEMPTION_REQUIRED: Final = "PreemptionRequired"
"""Reason of a Pending: the check can say Ready only once the planned victims are gone."""
_SPELLINGS: Final[Mapping[str, str]] = {
    "BookQuotaRequired": PREEMPTION_REQUIRED,
    "BookCapacity": PREEMPTION_REQUIRED,
}
"""As KEP-993 calls the same in other places."""
_OF_STATE: Final[Mapping[str, frozenset[str]]] = {
    "Pending": frozenset({"Pending"}),
    "Ready": frozenset({"Ready"}),
    "Retry": frozenset({"Retry"}),
    "Rejected": frozenset({"Reject", "Rejected"}),
}
"""Reasons of the conditions that rows are shown as: they say no more than the state."""
REASON_MAX: Final = 1024


def reason_of(
    fact: facts.CheckReported, row: CheckState | None
) -> tuple[str, tuple[OutboxEntry, ...]]:
    """The reason that the row keeps, and what people should know of it: one that means nothing here
    is kept and noted, once."""
    reason = _SPELLINGS.get(fact.reason, fact.reason)[:REASON_MAX]
    if reason in ("", *_OF_STATE.get(fact.state, ())):
        return "", ()
    if reason == PREEMPTION_REQUIRED:
        if fact.state == "Pending":
            return reason, ()
        return "", (_note(fact, f"reason {reason} counts with Pending alone, not {fact.state}"),)
    if row is not None and row.reason == reason:
        return reason, ()
    return reason, (_note(fact, f"reason {reason[:64]!r} is kept, and means nothing here"),)


def _note(fact: facts.CheckReported, text: str) -> OutboxEntry:
    said = f'AdmissionCheck "{fact.check}": {text}'
    return OutboxEntry(what="noted", reason="UnknownReason", message=said, detail=fact.check)
